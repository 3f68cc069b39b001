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

// Floor division; a divisor of 0 gives 0, so that lanes nobody reads cannot trap.
template <class T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
constexpr T floor_div(T a, T b)
{
    if (b == 0 || b == -1) {
        return b == 0 ? T{0} : static_cast<T>(T{0} - a);
    }
    const T quotient = static_cast<T>(a / b);
    return static_cast<T>(quotient - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0));
}
constexpr int64_t floor_div(int64_t a, int b) { return floor_div(a, int64_t{b}); }
constexpr int64_t floor_div(int a, int64_t b) { return floor_div(int64_t{a}, b); }
inline float floor_div(float a, float b) { return __builtin_floorf(a / b); }
inline double floor_div(double a, double b) { return __builtin_floor(a / b); }

constexpr int64_t ceil_div(int64_t a, int64_t b) { return -floor_div(-a, b); }

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

extern "C" int64_t online_softmax(
    const float *__restrict X, float *__restrict Y, int64_t M, int64_t N)
{
    constexpr int64_t TILE = 4096;

    #pragma omp parallel for schedule(static)
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
            float *const Y_row = Y + (i * N + j_2 * TILE);
            #pragma omp simd
            for (int64_t lane = 0; lane < std::min<int64_t>(TILE, N - j_2 * TILE); ++lane) {
                const float x_2 = X_row_3[lane];
                const float x_2_sub = x_2 - running_max;
                const float x_2_exp = sketch::exp(x_2_sub);
                const float x_2_div = x_2_exp / running_sum;
                Y_row[lane] = x_2_div;
            }
        }
    }
    return 0;
}
