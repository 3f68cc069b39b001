// layer_norm: a C++ kernel for cpu, made from a sketch.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <omp.h>

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

// The larger; NaN wins.
template <class T> inline T max(T a, T b) { return (a > b || a != a) ? a : b; }
inline bool max(bool a, bool b) { return a || b; }

inline float rsqrt(float x) { return 1.0F / __builtin_sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }

} // namespace sketch

extern "C" int64_t layer_norm(
    const float *__restrict X, const float *__restrict WEIGHT, const float *__restrict BIAS, float
    *__restrict Y, int64_t M, int64_t N, double eps)
{
    {
        // Scratch memory of each thread.
        sketch::arena arena;
        const int64_t x_sub_place = arena.add(sizeof(float), {N});
        if (!arena.allocate(omp_get_max_threads())) {
            return -1;
        }
        #pragma omp parallel
        {
            float *const __restrict x_sub = arena.at<float>(x_sub_place, omp_get_thread_num());
            #pragma omp for schedule(static)
            for (int64_t i = 0; i < M; ++i) {
                float variance = 0.0f;
                float mean = 0.0f;
                // load(X[i, 0:N] -> x)
                // reduce_sum(x, 0, mean)
                const float *const X_row = X + i * N;
                #pragma omp simd reduction(+ : mean)
                for (int64_t lane = 0; lane < N; ++lane) {
                    const float x = X_row[lane];
                    mean += x;
                }
                // div(mean, N, mean)
                const float mean_div = mean / static_cast<float>(N);
                // load(X[i, 0:N] -> x)
                // sub(x, mean, x)
                // mul(x, x, square)
                // reduce_sum(square, 0, variance)
                const float *const X_row_2 = X + i * N;
                #pragma omp simd reduction(+ : variance)
                for (int64_t lane = 0; lane < N; ++lane) {
                    const float x = X_row_2[lane];
                    const float x_sub_value = x - mean_div;
                    x_sub[lane] = x_sub_value;
                    const float square = x_sub_value * x_sub_value;
                    variance += square;
                }
                // div(variance, N, variance)
                const float variance_div = variance / static_cast<float>(N);
                // add(variance, eps, variance)
                const float variance_add = variance_div + static_cast<float>(eps);
                // rsqrt(variance, variance)
                const float variance_rsqrt = sketch::rsqrt(variance_add);
                // mul(x, variance, x)
                // load(WEIGHT[0:N] -> weight)
                // load(BIAS[0:N] -> bias)
                // fma(x, weight, bias, x)
                // store(x -> Y[i, 0:N])
                float *const Y_row = Y + i * N;
                #pragma omp simd
                for (int64_t lane = 0; lane < N; ++lane) {
                    const float x_sub_value = x_sub[lane];
                    const float x_mul = x_sub_value * variance_rsqrt;
                    const float weight = WEIGHT[lane];
                    const float bias = BIAS[lane];
                    const float x_fma = x_mul * weight + bias;
                    Y_row[lane] = x_fma;
                }
            }
        }
    }
    return 0;
}
