// normalise_rows: a C++ kernel for cpu, made from a sketch.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <omp.h>
#if defined(__AVX__)
#include <immintrin.h>
#endif

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

// Outputs of more bytes than this do not stay in the caches: they are written past them.
constexpr double cache_bytes = 33554432;

// Whether a tensor is too large for the caches.
inline bool streams([[maybe_unused]] int64_t element_bytes,
                    [[maybe_unused]] std::initializer_list<int64_t> extents)
{
#if defined(__AVX__)
    double bytes = static_cast<double>(element_bytes);
    for (const int64_t extent : extents) {
        bytes *= static_cast<double>(extent);
    }
    return bytes > cache_bytes;
#else
    return false;
#endif
}

// Copies past the caches: whole lines are written without reading them first.
template <class T> inline void stream(T *to, const T *from, int64_t count)
{
    int64_t done = 0;
#if defined(__AVX__)
    constexpr int64_t line = 64 / sizeof(T);
    const uintptr_t into = reinterpret_cast<uintptr_t>(to) % 64;
    const int64_t head = (line - static_cast<int64_t>(into / sizeof(T))) % line;
    done = into % sizeof(T) == 0 && head < count ? head : count;
    std::copy_n(from, done, to);
    for (; done + line <= count; done += line) {
        for (int64_t part = 0; part < line; part += line / 2) {
            const void *const source = from + done + part;
            _mm256_stream_si256(reinterpret_cast<__m256i *>(to + done + part),
                                _mm256_loadu_si256(static_cast<const __m256i *>(source)));
        }
    }
#endif
    std::copy_n(from + done, count - done, to + done);
}

// Other threads see what this one has streamed.
inline void end_streams()
{
#if defined(__AVX__)
    _mm_sfence();
#endif
}

inline uint32_t bits_of(float x)
{
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

inline float float_of(uint32_t bits)
{
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

// The larger; NaN wins. Only `larger` waits for `a`, the accumulator of a loop.
template <class T> inline T max(T a, T b)
{
    const T larger = b > a ? b : a;
    return b != b ? b : larger;
}
inline bool max(bool a, bool b) { return a || b; }

inline float rsqrt(float x) { return 1.0F / __builtin_sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }

// e^x = 2^n * e^r with |r| <= ln(2)/2, e^r by a polynomial; n is the nearest integer, from the low
// bits of a large float. The power of two is applied in two parts, so that subnormal results and
// overflow to infinity come out right.
inline float exp(float x)
{
    const float bounded = x < -104.0F ? -104.0F : (x > 89.0F ? 89.0F : x);
    const float shifted = bounded * 1.44269504F + 12582912.0F;
    const float n = shifted - 12582912.0F;
    const float r = (bounded - n * 0.693145752F) - n * 1.42860677e-06F;
    float p = 0.00138145403F;
    p = p * r + 0.00836874527F;
    p = p * r + 0.0416683908F;
    p = p * r + 0.166665204F;
    p = p * r + 0.499999934F;
    p = p * r + 1.0F;
    p = p * r + 1.0F;
    const bool small = x < 0.0F;
    const float power = float_of((bits_of(shifted) + (small ? 191U : 126U)) << 23);
    return p * power * (small ? 0x1p-64F : 2.0F);
}
inline double exp(double x) { return ::exp(x); }

// Whether a tensor has more elements than memory, an extent of 0 counted as 1.
inline bool too_large(std::initializer_list<int64_t> extents)
{
    int64_t elements = 1;
    bool wraps = false;
    for (const int64_t extent : extents) {
        wraps |= __builtin_mul_overflow(elements, std::max<int64_t>(extent, 1), &elements);
    }
    return wraps || elements >= int64_t{1} << 48;
}

} // namespace sketch

#pragma omp declare reduction(propagating_max : float, double \
                              : omp_out = sketch::max(omp_out, omp_in)) \
    initializer(omp_priv = omp_orig)

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  M >= 0 and N >= 0
//   2  N <= 4096
//   3  fewer than 2**48 elements in each tensor
extern "C" int64_t normalise_rows(
    const float *__restrict X, float *__restrict SOFTMAX, float *__restrict LAYER, float
    *__restrict RMS, int64_t M, int64_t N)
{
    if (M < 0 || N < 0) {
        return 1;
    }
    if (N > 4096) {
        return 2;
    }
    if (sketch::too_large({M, N})) {
        return 3;
    }
    const bool RMS_streams = sketch::streams(sizeof(float), {M, N});
    {
        // Scratch memory of each thread.
        sketch::arena arena;
        const int64_t y_powers_exp_place = arena.add(sizeof(float), {N});
        const int64_t y_centred_place = arena.add(sizeof(float), {N});
        if (!arena.allocate(omp_get_max_threads())) {
            return -1;
        }
        #pragma omp parallel
        {
            float *const __restrict y_powers_exp = arena.at<float>(y_powers_exp_place,
                omp_get_thread_num());
            float *const __restrict y_centred = arena.at<float>(y_centred_place,
                omp_get_thread_num());
            #pragma omp for schedule(static)
            for (int64_t i = 0; i < M; ++i) {
                float y_scale_2 = 0.0f;
                float y_count_2 = 0.0f;
                float y_scale = 0.0f;
                float y_mean = 0.0f;
                float y_count = 0.0f;
                float y_total = 0.0f;
                float y_largest = -std::numeric_limits<float>::infinity();
                // load(X[i, 0:N] -> x)
                // reduce_max(x, 0, y_largest)
                const float *const X_row = X + i * N;
                #pragma omp simd reduction(propagating_max : y_largest)
                for (int64_t lane = 0; lane < N; ++lane) {
                    const float x = X_row[lane];
                    y_largest = sketch::max(y_largest, x);
                }
                // load(X[i, 0:N] -> x)
                // sub(x, y_largest, y_powers)
                // exp(y_powers, y_powers)
                // reduce_sum(y_powers, 0, y_total)
                const float *const X_row_2 = X + i * N;
                #pragma omp simd reduction(+ : y_total)
                for (int64_t lane = 0; lane < N; ++lane) {
                    const float x = X_row_2[lane];
                    const float y_powers = x - y_largest;
                    const float y_powers_exp_value = sketch::exp(y_powers);
                    y_powers_exp[lane] = y_powers_exp_value;
                    y_total += y_powers_exp_value;
                }
                // div(y_powers, y_total, y)
                // store(y -> SOFTMAX[i, 0:N])
                // load(X[i, 0:N] -> x)
                // eq(x, x, y_valid)
                // where(y_valid, 1.0, 0.0, y_ones)
                // reduce_sum(y_ones, 0, y_count)
                // reduce_sum(x, 0, y_mean)
                float *const SOFTMAX_row = SOFTMAX + i * N;
                const float *const X_row_3 = X + i * N;
                #pragma omp simd reduction(+ : y_count, y_mean)
                for (int64_t lane = 0; lane < N; ++lane) {
                    const float y_powers_exp_value = y_powers_exp[lane];
                    const float y = y_powers_exp_value / y_total;
                    SOFTMAX_row[lane] = y;
                    const float x = X_row_3[lane];
                    const bool y_valid = x == x;
                    const float y_ones = y_valid ? 1.0f : 0.0f;
                    y_count += y_ones;
                    y_mean += x;
                }
                // div(y_mean, y_count, y_mean)
                const float y_mean_div = y_mean / y_count;
                // load(X[i, 0:N] -> x)
                // sub(x, y_mean, y_centred)
                // mul(y_centred, y_centred, y_squares)
                // reduce_sum(y_squares, 0, y_scale)
                const float *const X_row_4 = X + i * N;
                #pragma omp simd reduction(+ : y_scale)
                for (int64_t lane = 0; lane < N; ++lane) {
                    const float x = X_row_4[lane];
                    const float y_centred_value = x - y_mean_div;
                    y_centred[lane] = y_centred_value;
                    const float y_squares = y_centred_value * y_centred_value;
                    y_scale += y_squares;
                }
                // div(y_scale, y_count, y_scale)
                const float y_scale_div = y_scale / y_count;
                // add(y_scale, 1e-05, y_scale)
                const float y_scale_add = y_scale_div + 1e-05f;
                // rsqrt(y_scale, y_scale)
                const float y_scale_rsqrt = sketch::rsqrt(y_scale_add);
                // mul(y_centred, y_scale, y)
                // store(y -> LAYER[i, 0:N])
                // load(X[i, 0:N] -> x)
                // eq(x, x, y_valid_2)
                // where(y_valid_2, 1.0, 0.0, y_ones_2)
                // reduce_sum(y_ones_2, 0, y_count_2)
                // mul(x, x, y_squares_2)
                // reduce_sum(y_squares_2, 0, y_scale_2)
                float *const LAYER_row = LAYER + i * N;
                const float *const X_row_5 = X + i * N;
                #pragma omp simd reduction(+ : y_count_2, y_scale_2)
                for (int64_t lane = 0; lane < N; ++lane) {
                    const float y_centred_value = y_centred[lane];
                    const float y_mul = y_centred_value * y_scale_rsqrt;
                    LAYER_row[lane] = y_mul;
                    const float x = X_row_5[lane];
                    const bool y_valid_2 = x == x;
                    const float y_ones_2 = y_valid_2 ? 1.0f : 0.0f;
                    y_count_2 += y_ones_2;
                    const float y_squares_2 = x * x;
                    y_scale_2 += y_squares_2;
                }
                // div(y_scale_2, y_count_2, y_scale_2)
                const float y_scale_2_div = y_scale_2 / y_count_2;
                // add(y_scale_2, 1e-05, y_scale_2)
                const float y_scale_2_add = y_scale_2_div + 1e-05f;
                // rsqrt(y_scale_2, y_scale_2)
                const float y_scale_2_rsqrt = sketch::rsqrt(y_scale_2_add);
                // load(X[i, 0:N] -> x)
                // mul(x, y_scale_2, y)
                // store(y -> RMS[i, 0:N])
                const float *const X_row_6 = X + i * N;
                for (int64_t block = 0; block < N; block += 1024) {
                    const int64_t block_end = std::min<int64_t>(N, block + 1024);
                    alignas(64) float RMS_block[1024];
                    float *const RMS_row = RMS_streams ? RMS_block : RMS + (i * N + block);
                    #pragma omp simd
                    for (int64_t lane = block; lane < block_end; ++lane) {
                        const float x = X_row_6[lane];
                        const float y_mul_2 = x * y_scale_2_rsqrt;
                        RMS_row[lane - block] = y_mul_2;
                    }
                    if (RMS_streams) {
                        sketch::stream(RMS + (i * N + block), RMS_block, block_end - block);
                    }
                }
            }
            sketch::end_streams();
        }
    }
    return 0;
}
