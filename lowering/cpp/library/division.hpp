// Floor division and remainders of integers and floats.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

namespace sketch {

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

// What floor division leaves, exactly, with the sign of b, also where nothing is left.
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

} // namespace sketch
