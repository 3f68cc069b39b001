// Functions of elements. Each is branch-free where it can be, so that g++ turns the loops around it
// into vector code. Errors in f32, against correctly rounded results: exp at most 1 ulp; those that
// come from the vector C library (libmvec) at most 4 ulp.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "numbers.hpp"

//# declarations
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
SKETCH_VECTORS float exp2f(float x) noexcept;
SKETCH_VECTORS double exp2(double x) noexcept;
SKETCH_VECTORS float logf(float x) noexcept;
SKETCH_VECTORS double log(double x) noexcept;
SKETCH_VECTORS float log2f(float x) noexcept;
SKETCH_VECTORS double log2(double x) noexcept;
SKETCH_VECTORS float sinf(float x) noexcept;
SKETCH_VECTORS double sin(double x) noexcept;
SKETCH_VECTORS float cosf(float x) noexcept;
SKETCH_VECTORS double cos(double x) noexcept;
SKETCH_VECTORS float tanf(float x) noexcept;
SKETCH_VECTORS double tan(double x) noexcept;
SKETCH_VECTORS float atanf(float x) noexcept;
SKETCH_VECTORS double atan(double x) noexcept;
SKETCH_VECTORS float tanhf(float x) noexcept;
SKETCH_VECTORS double tanh(double x) noexcept;
SKETCH_VECTORS float erff(float x) noexcept;
SKETCH_VECTORS double erf(double x) noexcept;
SKETCH_VECTORS float expm1f(float x) noexcept;
SKETCH_VECTORS double expm1(double x) noexcept;
SKETCH_VECTORS float log1pf(float x) noexcept;
SKETCH_VECTORS double log1p(double x) noexcept;
SKETCH_VECTORS double exp(double x) noexcept;
SKETCH_VECTORS float powf(float x, float y) noexcept;
SKETCH_VECTORS double pow(double x, double y) noexcept;
SKETCH_VECTORS float atan2f(float x, float y) noexcept;
SKETCH_VECTORS double atan2(double x, double y) noexcept;
}

namespace sketch {

template <class T> inline T absolute(T x)
{
    if constexpr (std::is_unsigned_v<T>) {
        return x;
    } else {
        return static_cast<T>(x < T{0} ? T{0} - x : x);
    }
}
inline float absolute(float x) { return __builtin_fabsf(x); }
inline double absolute(double x) { return __builtin_fabs(x); }

template <class T> inline T sign(T x)
{
    if constexpr (std::is_unsigned_v<T>) {
        return x > T{0} ? T{1} : x;
    } else {
        return x > T{0} ? T{1} : (x < T{0} ? static_cast<T>(-1) : x);
    }
}

// The larger of a and b; NaN wins. Only `larger` depends on `a`, the accumulator of a loop.
template <class T> inline T max(T a, T b)
{
    const T larger = b > a ? b : a;
    return b != b ? b : larger;
}
inline bool max(bool a, bool b) { return a || b; }

// The smaller of a and b; NaN wins. Only `smaller` depends on `a`, the accumulator of a loop.
template <class T> inline T min(T a, T b)
{
    const T smaller = b < a ? b : a;
    return b != b ? b : smaller;
}
inline bool min(bool a, bool b) { return a && b; }

template <class T> inline T at_least(T x, T low) { return x < low ? low : x; }

template <class T> inline T at_most(T x, T high) { return x > high ? high : x; }

template <class T> inline T relu(T x)
{
    if constexpr (std::is_unsigned_v<T>) {
        return x;
    } else {
        return x < T{0} ? T{0} : x;
    }
}

template <class T> inline T floor(T x) { return x; }
inline float floor(float x) { return __builtin_floorf(x); }
inline double floor(double x) { return __builtin_floor(x); }

template <class T> inline T ceil(T x) { return x; }
inline float ceil(float x) { return __builtin_ceilf(x); }
inline double ceil(double x) { return __builtin_ceil(x); }

template <class T> inline T round(T x) { return x; }
inline float round(float x) { return __builtin_rintf(x); }
inline double round(double x) { return __builtin_rint(x); }

template <class T> inline T trunc(T x) { return x; }
inline float trunc(float x) { return __builtin_truncf(x); }
inline double trunc(double x) { return __builtin_trunc(x); }

inline float sqrt(float x) { return __builtin_sqrtf(x); }
inline double sqrt(double x) { return __builtin_sqrt(x); }

inline float rsqrt(float x) { return 1.0F / __builtin_sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }

inline float exp2(float x) { return ::exp2f(x); }
inline double exp2(double x) { return ::exp2(x); }

inline float log(float x) { return ::logf(x); }
inline double log(double x) { return ::log(x); }

inline float log2(float x) { return ::log2f(x); }
inline double log2(double x) { return ::log2(x); }

inline float sin(float x) { return ::sinf(x); }
inline double sin(double x) { return ::sin(x); }

inline float cos(float x) { return ::cosf(x); }
inline double cos(double x) { return ::cos(x); }

inline float tan(float x) { return ::tanf(x); }
inline double tan(double x) { return ::tan(x); }

inline float atan(float x) { return ::atanf(x); }
inline double atan(double x) { return ::atan(x); }

inline float tanh(float x) { return ::tanhf(x); }
inline double tanh(double x) { return ::tanh(x); }

inline float erf(float x) { return ::erff(x); }
inline double erf(double x) { return ::erf(x); }

inline float expm1(float x) { return ::expm1f(x); }
inline double expm1(double x) { return ::expm1(x); }

inline float log1p(float x) { return ::log1pf(x); }
inline double log1p(double x) { return ::log1p(x); }

inline float atan2(float y, float x) { return ::atan2f(y, x); }
inline double atan2(double y, double x) { return ::atan2(y, x); }

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

template <class T> inline T sigmoid(T x) { return T{1} / (T{1} + exp(-x)); }

template <class T> inline T silu(T x) { return x / (T{1} + exp(-x)); }

// erf(x) = x * P(x^2) / Q(x^2) to 6 ulp (a weighted least-squares fit); beyond 3.92 it is 1, to the
// last bit: some callers scale 1 + erf(x) by a large number.
inline float short_erf(float x)
{
    const float bounded = x < -3.92F ? -3.92F : (x > 3.92F ? 3.92F : x);
    const float square = bounded * bounded;
    float p = 2.04198341e-06F;
    p = p * square + 0.000284808542F;
    p = p * square + 0.00377962808F;
    p = p * square + 0.0527903177F;
    p = p * square + 0.190784082F;
    p = p * square + 1.12837923F;
    float q = 3.80040765e-05F;
    q = q * square + 0.00116521586F;
    q = q * square + 0.0149974739F;
    q = q * square + 0.114257619F;
    q = q * square + 0.50241071F;
    q = q * square + 1.0F;
    const float result = bounded * p / q;
    const float inside = result < -1.0F ? -1.0F : (result > 1.0F ? 1.0F : result);
    return x < -3.92F ? -1.0F : (x > 3.92F ? 1.0F : inside);
}

// Of erf in float, 1 + erf(x) needs no more bits than short_erf has.
inline float gelu(float x) { return 0.5F * x * (1.0F + short_erf(x * 0.707106781F)); }
inline double gelu(double x) { return 0.5 * x * (1.0 + erf(x * 0.7071067811865475244)); }

template <class T> inline T gelu_tanh(T x)
{
    const T inner = x + static_cast<T>(0.044715) * x * x * x;
    return static_cast<T>(0.5) * x * (T{1} + tanh(static_cast<T>(0.7978845608028653559) * inner));
}

template <class T> inline T softplus(T x)
{
    const T bounded = x > T{30} ? T{30} : x;
    return x > T{30} ? x : log1p(exp(bounded));
}

template <class T> inline T softsign(T x) { return x / (T{1} + absolute(x)); }

template <class T> inline T hardsigmoid(T x)
{
    return at_most(at_least(x / T{6} + static_cast<T>(0.5), T{0}), T{1});
}

template <class T> inline T hardswish(T x) { return x * hardsigmoid(x); }

template <class T> inline T elu(T x, T alpha)
{
    const T negative = alpha * expm1(x > T{0} ? T{0} : x);
    return x > T{0} ? x : negative;
}

template <class T> inline T selu(T x)
{
    return static_cast<T>(1.0507009873554804934) * elu(x, static_cast<T>(1.6732632423543772848));
}

template <class T> inline T leaky_relu(T x, T slope) { return x > T{0} ? x : slope * x; }

template <class T> inline bool isnan(T x) { return x != x; }

template <class T> inline bool isinf(T x)
{
    return absolute(x) == std::numeric_limits<T>::infinity() && std::is_floating_point_v<T>;
}

template <class T> inline bool isfinite(T x)
{
    return absolute(x) < std::numeric_limits<T>::infinity() || !std::is_floating_point_v<T>;
}

inline float pow(float a, float b) { return ::powf(a, b); }
inline double pow(double a, double b) { return ::pow(a, b); }
// Wraps on overflow; a negative exponent (an error on valid lanes) gives 1.
template <class T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
inline T pow(T a, T b)
{
    T result = 1;
    for (T exponent = b; exponent > 0; exponent = static_cast<T>(exponent >> 1)) {
        result = static_cast<T>((exponent & 1) != 0 ? result * a : result);
        a = static_cast<T>(a * a);
    }
    return result;
}

template <class T> inline T shl(T a, T b)
{
    return static_cast<T>(a << (b & static_cast<T>(sizeof(T) * 8 - 1)));
}

template <class T> inline T shr(T a, T b)
{
    return static_cast<T>(a >> (b & static_cast<T>(sizeof(T) * 8 - 1)));
}

} // namespace sketch
