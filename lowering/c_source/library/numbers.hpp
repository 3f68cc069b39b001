// Floor division and remainders. Number formats: f16 and bf16, rounding modes, conversions to
// integers. The conversions are integer arithmetic without branches, which g++ vectorises (g++ 12
// does not vectorise its own _Float16).
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace sketch {

// Floor division; a divisor of 0 gives 0, so that lanes nobody reads cannot trap.
template <class T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
constexpr T floor_div(T a, T b)
{
    if constexpr (std::is_unsigned_v<T>) {
        return b == 0 ? T{0} : static_cast<T>(a / b);
    } else {
        // Without branches: nvcc takes minutes for the paths through a few of them in a row.
        const bool special = (b == 0) | (b == -1);
        const T divisor = special ? T{1} : b;
        const T quotient = static_cast<T>(a / divisor);
        const T rest = static_cast<T>(a - quotient * divisor);
        const T below = (rest != 0) & ((rest < 0) != (divisor < 0)) ? T{1} : T{0};
        return static_cast<T>(special ? b * a : quotient - below);
    }
}
constexpr int64_t floor_div(int64_t a, int b) { return floor_div(a, int64_t{b}); }
constexpr int64_t floor_div(int a, int64_t b) { return floor_div(int64_t{a}, b); }

template <class T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
constexpr T floor_mod(T a, T b)
{
    return static_cast<T>(a - b * floor_div(a, b));
}
constexpr int64_t floor_mod(int64_t a, int b) { return floor_mod(a, int64_t{b}); }
constexpr int64_t floor_mod(int a, int64_t b) { return floor_mod(int64_t{a}, b); }

// The floor of the quotient before it is rounded: 1 // 0.1 is 9. A zero has the quotient's sign.
template <class T, std::enable_if_t<std::is_floating_point_v<T>, int> = 0>
inline T whole_quotient(T a, T b)
{
    const T rest = std::fmod(a, b);
    T whole = (a - rest) / b;
    if (rest != 0 && (rest < 0) != (b < 0)) {
        whole -= 1;
    }
    if (whole == 0 || b == 0) {
        return b == 0 ? a / b : std::copysign(T{0}, a / b);
    }
    const T floor = std::floor(whole);
    return whole - floor > T{0.5} ? floor + 1 : floor;
}

// The remainder of floor division, exactly, with the sign of b, also where it is zero.
template <class T, std::enable_if_t<std::is_floating_point_v<T>, int> = 0>
inline T floor_rest(T a, T b)
{
    const T rest = std::fmod(a, b);
    if (rest == 0) {
        return std::copysign(rest, b);
    }
    return (rest < 0) != (b < 0) ? rest + b : rest;
}

constexpr int64_t ceil_div(int64_t a, int64_t b) { return -floor_div(-a, b); }

inline int64_t truncate(double x) { return static_cast<int64_t>(x); }

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

// double to float, rounded to odd: a second rounding to fewer bits is then exact.
inline float odd(double x)
{
    const float nearest = static_cast<float>(x);
    const bool inexact = static_cast<double>(nearest) != x && x == x;
    const bool above = std::fabs(static_cast<double>(nearest)) > std::fabs(x);
    const uint32_t bits = bits_of(nearest) - ((inexact && above) ? 1U : 0U);
    return float_of(bits | (inexact ? 1U : 0U));
}

// IEEE binary16 as it lies in memory; arithmetic happens in float.
struct half {
    uint16_t bits;
};

inline uint16_t half_bits(float x)
{
    const uint32_t sign = bits_of(x) & 0x80000000U;
    const uint32_t magnitude = bits_of(x) ^ sign;
    // Subnormal results: adding 0.5 leaves the rounded bits at the bottom of the significand.
    const uint32_t small = bits_of(float_of(magnitude) + 0.5F) - 0x3f000000U;
    // Normal results: rebias the exponent, round half to even by carrying.
    const uint32_t normal = (magnitude + 0xc8000fffU + ((magnitude >> 13) & 1U)) >> 13;
    const uint32_t special = magnitude > 0x7f800000U ? 0x7e00U : 0x7c00U;
    const uint32_t finite = magnitude < 0x38800000U ? small : normal;
    const uint32_t result = magnitude >= 0x47800000U ? special : finite;
    return static_cast<uint16_t>(result | (sign >> 16));
}

inline half to_half(float x) { return half{half_bits(x)}; }

//# to_half_double (with to_half)
inline half to_half(double x) { return to_half(odd(x)); }

inline float float_of_half(uint32_t x)
{
    const uint32_t magnitude = x & 0x7fffU;
    const uint32_t sign = (x & 0x8000U) << 16;
    // 2^112 rebiases the exponent and normalises subnormals.
    const float finite = float_of(magnitude << 13) * 0x1p112F;
    const uint32_t special = (magnitude << 13) + 0x70000000U;
    return float_of((magnitude >= 0x7c00U ? special : bits_of(finite)) | sign);
}

//# half_to_float (with to_half)
inline float to_float(half x) { return float_of_half(x.bits); }

// The upper half of a float.
struct bfloat16 {
    uint16_t bits;
};

inline uint16_t bfloat16_bits(float x)
{
    const uint32_t bits = bits_of(x);
    const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    const uint32_t quiet = (bits >> 16) | 0x40U;
    return static_cast<uint16_t>(x != x ? quiet : rounded);
}

inline bfloat16 to_bfloat16(float x) { return bfloat16{bfloat16_bits(x)}; }

//# to_bfloat16_double (with to_bfloat16)
inline bfloat16 to_bfloat16(double x) { return to_bfloat16(odd(x)); }

//# bfloat16_to_float (with to_bfloat16)
inline float to_float(bfloat16 x) { return float_of(static_cast<uint32_t>(x.bits) << 16); }

inline float round_nearest(float x) { return __builtin_rintf(x); }
inline double round_nearest(double x) { return __builtin_rint(x); }

inline float round_down(float x) { return __builtin_floorf(x); }
inline double round_down(double x) { return __builtin_floor(x); }

inline float round_up(float x) { return __builtin_ceilf(x); }
inline double round_up(double x) { return __builtin_ceil(x); }

inline float round_zero(float x) { return __builtin_truncf(x); }
inline double round_zero(double x) { return __builtin_trunc(x); }

// A rounded float as an integer; what does not fit (NaN too) gives 0.
template <class T, class F>
inline T to_integer(F x)
{
    constexpr F least = static_cast<F>(std::numeric_limits<T>::min());
    constexpr F limit = static_cast<F>(std::numeric_limits<T>::max() / 2 + 1) * F{2};
    const bool fits = x >= least && x < limit;
    return static_cast<T>(fits ? x : F{0});
}

template <class T, class F>
inline T saturated(F x)
{
    constexpr F least = static_cast<F>(std::numeric_limits<T>::min());
    constexpr F limit = static_cast<F>(std::numeric_limits<T>::max() / 2 + 1) * F{2};
    const T low = x < least ? std::numeric_limits<T>::min() : to_integer<T>(x);
    return x >= limit ? std::numeric_limits<T>::max() : low;
}

// The nearest value of another integer type.
template <class T>
inline T clamped(int64_t x)
{
    constexpr int64_t least = std::numeric_limits<T>::min();
    constexpr int64_t greatest = std::numeric_limits<T>::max();
    return static_cast<T>(x < least ? least : (x > greatest ? greatest : x));
}

// The neighbour of a number, upwards or downwards; `Bits` orders like the magnitude.
template <class Bits>
inline Bits next_to(Bits bits, bool upwards)
{
    constexpr Bits sign = static_cast<Bits>(Bits{1} << (sizeof(Bits) * 8 - 1));
    if ((bits & ~sign) == 0) {
        return static_cast<Bits>(upwards ? 1 : sign + 1);
    }
    const bool grows = ((bits & sign) == 0) == upwards;
    return static_cast<Bits>(grows ? bits + 1 : bits - 1);
}

//# narrow_half (with to_half, directed)
inline half narrow(double x, half) { return to_half(x); }

//# narrow_bfloat16 (with to_bfloat16, directed)
inline bfloat16 narrow(double x, bfloat16) { return to_bfloat16(x); }

// x in a narrower type, rounded down (-1), up (1) or towards zero (0).
template <class T, int mode>
inline T directed(double x)
{
    T nearest;
    double back;
    if constexpr (std::is_same_v<T, float>) {
        nearest = static_cast<float>(x);
        back = static_cast<double>(nearest);
    } else {
        nearest = narrow(x, T{});
        back = static_cast<double>(to_float(nearest));
    }
    const bool upwards = mode == 1 || (mode == 0 && x < 0);
    const bool wrong = upwards ? back < x : back > x;
    std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t> bits;
    std::memcpy(&bits, &nearest, sizeof bits);
    bits = wrong ? next_to(bits, upwards) : bits;
    std::memcpy(&nearest, &bits, sizeof bits);
    return nearest;
}

} // namespace sketch
