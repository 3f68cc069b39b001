// softmax: a C++ kernel for cpu, made from a sketch.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <omp.h>

// g++ calls the vector versions of these (libmvec) from SIMD loops.
#if defined(__x86_64__) && defined(__GLIBC__)
#if __GLIBC_PREREQ(2, 35)
#define SKETCH_VECTORS __attribute__((simd("notinbranch"), const))
#endif
#endif
#ifndef SKETCH_VECTORS
#define SKETCH_VECTORS
#endif
extern "C" {
SKETCH_VECTORS double exp(double x) noexcept;
}

namespace sketch {

// Scratch memory: pieces are added, then allocated at once for all threads, on cache lines.
class arena {
public:
    arena() = default;
    arena(const arena &) = delete;
    arena &operator=(const arena &) = delete;
    ~arena() { std::free(memory_); }

    // Adds a piece of `extents` elements and returns its place.
    int64_t add(int64_t element_bytes, std::initializer_list<int64_t> extents)
    {
        const int64_t place = bytes_;
        int64_t size = element_bytes;
        for (const int64_t extent : extents) {
            fits_ = !__builtin_mul_overflow(size, std::max<int64_t>(extent, 0), &size) && fits_;
        }
        fits_ = !__builtin_add_overflow(size, int64_t{63}, &size) && fits_;
        fits_ = !__builtin_add_overflow(bytes_, size / 64 * 64, &bytes_) && fits_;
        return place;
    }

    // False when the memory cannot be had.
    bool allocate(int64_t threads)
    {
        int64_t total = 0;
        fits_ = !__builtin_mul_overflow(bytes_, threads, &total) && fits_;
        if (fits_ && total > 0) {
            memory_ = static_cast<char *>(std::aligned_alloc(64, static_cast<size_t>(total)));
        }
        return fits_ && (total == 0 || memory_ != nullptr);
    }

    template <class T> T *at(int64_t place, int64_t thread) const
    {
        return reinterpret_cast<T *>(memory_ + thread * bytes_ + place);
    }

private:
    char *memory_ = nullptr;
    int64_t bytes_ = 0;
    bool fits_ = true;
};

inline float float_of(uint32_t bits)
{
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

// The larger; NaN wins.
template <class T> inline T max(T a, T b) { return (a > b || a != a) ? a : b; }
inline bool max(bool a, bool b) { return a || b; }

// e^x = 2^n * e^r with |r| <= ln(2)/2, e^r by its Taylor polynomial of degree 7; the power of two
// is applied in two halves, so that subnormal results and overflow to infinity come out right.
inline float exp(float x)
{
    const float bounded = x < -104.0F ? -104.0F : (x > 89.0F ? 89.0F : x);
    const float n = __builtin_rintf(bounded * 1.44269504F);
    const float r = (bounded - n * 0.693145752F) - n * 1.42860677e-06F;
    float p = 1.0F / 5040.0F;
    p = p * r + 1.0F / 720.0F;
    p = p * r + 1.0F / 120.0F;
    p = p * r + 1.0F / 24.0F;
    p = p * r + 1.0F / 6.0F;
    p = p * r + 0.5F;
    p = p * r + 1.0F;
    p = p * r + 1.0F;
    const int32_t k = static_cast<int32_t>(n);
    const int32_t first = k >> 1;
    const float low = float_of(static_cast<uint32_t>(first + 127) << 23);
    const float high = float_of(static_cast<uint32_t>(k - first + 127) << 23);
    return p * low * high;
}
inline double exp(double x) { return ::exp(x); }

} // namespace sketch

#pragma omp declare reduction(propagating_max : float, double \
                              : omp_out = sketch::max(omp_out, omp_in)) \
    initializer(omp_priv = omp_orig)

extern "C" int64_t softmax(const float *__restrict X, float *__restrict Y, int64_t M, int64_t N)
{
    {
        // Scratch memory of each thread.
        sketch::arena arena;
        const int64_t x_exp_place = arena.add(sizeof(float), {N});
        if (!arena.allocate(omp_get_max_threads())) {
            return -1;
        }
        #pragma omp parallel
        {
            float *const __restrict x_exp = arena.at<float>(x_exp_place, omp_get_thread_num());
            #pragma omp for schedule(static)
            for (int64_t i = 0; i < M; ++i) {
                float total = 0.0f;
                float largest = -std::numeric_limits<float>::infinity();
                // load(X[i, 0:N] -> x)
                // reduce_max(x, 0, largest)
                const float *const X_row = X + i * N;
                #pragma omp simd reduction(propagating_max : largest)
                for (int64_t lane = 0; lane < N; ++lane) {
                    const float x = X_row[lane];
                    largest = sketch::max(largest, x);
                }
                // load(X[i, 0:N] -> x)
                // sub(x, largest, x)
                // exp(x, x)
                // reduce_sum(x, 0, total)
                const float *const X_row_2 = X + i * N;
                #pragma omp simd reduction(+ : total)
                for (int64_t lane = 0; lane < N; ++lane) {
                    const float x = X_row_2[lane];
                    const float x_sub = x - largest;
                    const float x_exp_value = sketch::exp(x_sub);
                    x_exp[lane] = x_exp_value;
                    total += x_exp_value;
                }
                // div(x, total, x)
                // store(x -> Y[i, 0:N])
                float *const Y_row = Y + i * N;
                #pragma omp simd
                for (int64_t lane = 0; lane < N; ++lane) {
                    const float x_exp_value = x_exp[lane];
                    const float x_div = x_exp_value / total;
                    Y_row[lane] = x_div;
                }
            }
        }
    }
    return 0;
}
