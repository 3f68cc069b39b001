// gelu: a C++ kernel for cpu, made from a sketch.

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
SKETCH_VECTORS float erff(float x) noexcept;
SKETCH_VECTORS double erf(double x) noexcept;
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

inline float erf(float x) { return ::erff(x); }
inline double erf(double x) { return ::erf(x); }

template <class T> inline T gelu(T x)
{
    return static_cast<T>(0.5) * x * (T{1} + erf(x * static_cast<T>(0.7071067811865475244)));
}

} // namespace sketch

extern "C" int64_t gelu(const float *__restrict X, float *__restrict Y, int64_t M, int64_t N)
{
    constexpr int64_t TILE = 4096;

    #pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < sketch::ceil_div(M * N, TILE); ++i) {
        // load(XF[i*TILE:(i+1)*TILE] -> x)
        // gelu(x, y)
        // store(y -> YF[i*TILE:(i+1)*TILE])
        const float *const X_row = X + i * TILE;
        float *const Y_row = Y + i * TILE;
        #pragma omp simd
        for (int64_t lane = 0; lane < std::min<int64_t>(TILE, M * N - i * TILE); ++lane) {
            const float x = X_row[lane];
            const float y = sketch::gelu(x);
            Y_row[lane] = y;
        }
    }
    return 0;
}
