// online_softmax: a C++ kernel for cpu, made from a sketch.

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

// Floor division; a divisor of 0 gives 0, so that lanes nobody reads cannot trap.
template <class T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
constexpr T floor_div(T a, T b)
{
    if constexpr (std::is_unsigned_v<T>) {
        return b == 0 ? T{0} : static_cast<T>(a / b);
    } else {
        if (b == 0 || b == -1) {
            return b == 0 ? T{0} : static_cast<T>(T{0} - a);
        }
        const T quotient = static_cast<T>(a / b);
        return static_cast<T>(quotient - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0));
    }
}
constexpr int64_t floor_div(int64_t a, int b) { return floor_div(a, int64_t{b}); }
constexpr int64_t floor_div(int a, int64_t b) { return floor_div(int64_t{a}, b); }

constexpr int64_t ceil_div(int64_t a, int64_t b) { return -floor_div(-a, b); }

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

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  M >= 0 and N >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t online_softmax(
    const float *__restrict X, float *__restrict Y, int64_t M, int64_t N)
{
    constexpr int64_t TILE = 4096;

    if (M < 0 || N < 0) {
        return 1;
    }
    if (sketch::too_large({M, N})) {
        return 2;
    }
    const bool Y_streams = sketch::streams(sizeof(float), {M, N});
    #pragma omp parallel
    {
        #pragma omp for schedule(static)
        for (int64_t i = 0; i < M; ++i) {
            // running_sum = alloc([1], init=0.0)
            float running_sum = 0.0f;
            // running_max = alloc([1], init=-inf)
            float running_max = -std::numeric_limits<float>::infinity();
            // for j in range(ceil(N, TILE)):
            for (int64_t j = 0; j < sketch::ceil_div(N, TILE); ++j) {
                float block_sum = 0.0f;
                float block_max = -std::numeric_limits<float>::infinity();
                // load(X[i, j*TILE:(j+1)*TILE] -> x)
                // reduce_max(x, 0, block_max)
                const float *const X_row = X + (i * N + j * TILE);
                #pragma omp simd reduction(propagating_max : block_max)
                for (int64_t lane = 0; lane < std::min<int64_t>(TILE, N - j * TILE); ++lane) {
                    const float x = X_row[lane];
                    block_max = sketch::max(block_max, x);
                }
                // max(running_max, block_max, new_max)
                const float new_max = sketch::max(running_max, block_max);
                // sub(running_max, new_max, correction)
                const float correction = running_max - new_max;
                // exp(correction, correction)
                const float correction_exp = sketch::exp(correction);
                // load(X[i, j*TILE:(j+1)*TILE] -> x)
                // sub(x, new_max, x)
                // exp(x, x)
                // reduce_sum(x, 0, block_sum)
                const float *const X_row_2 = X + (i * N + j * TILE);
                #pragma omp simd reduction(+ : block_sum)
                for (int64_t lane = 0; lane < std::min<int64_t>(TILE, N - j * TILE); ++lane) {
                    const float x = X_row_2[lane];
                    const float x_sub = x - new_max;
                    const float x_exp = sketch::exp(x_sub);
                    block_sum += x_exp;
                }
                // fma(running_sum, correction, block_sum, running_sum)
                running_sum = running_sum * correction_exp + block_sum;
                // copy(new_max, running_max)
                running_max = new_max;
            }
            // for j in range(ceil(N, TILE)):
            for (int64_t j_2 = 0; j_2 < sketch::ceil_div(N, TILE); ++j_2) {
                // load(X[i, j*TILE:(j+1)*TILE] -> x)
                // sub(x, running_max, x)
                // exp(x, x)
                // div(x, running_sum, x)
                // store(x -> Y[i, j*TILE:(j+1)*TILE])
                const float *const X_row_3 = X + (i * N + j_2 * TILE);
                for (int64_t block = 0; block < std::min<int64_t>(TILE, N - j_2 * TILE); block +=
                    1024) {
                    const int64_t block_end = std::min<int64_t>(std::min<int64_t>(TILE, N - j_2 *
                        TILE), block + 1024);
                    alignas(64) float Y_block[1024];
                    float *const Y_row = Y_streams ? Y_block : Y + (i * N + j_2 * TILE + block);
                    #pragma omp simd
                    for (int64_t lane = block; lane < block_end; ++lane) {
                        const float x_2 = X_row_3[lane];
                        const float x_2_sub = x_2 - running_max;
                        const float x_2_exp = sketch::exp(x_2_sub);
                        const float x_2_div = x_2_exp / running_sum;
                        Y_row[lane - block] = x_2_div;
                    }
                    if (Y_streams) {
                        sketch::stream(Y + (i * N + j_2 * TILE + block), Y_block, block_end -
                            block);
                    }
                }
            }
        }
        sketch::end_streams();
    }
    return 0;
}
