// Divisions of integers that g++ turns into vector code.
#pragma once

#include <cstdint>

#include "numbers.hpp"

namespace sketch {

// As floor_div, for loops over lanes: no CPU divides integers in vectors. A double has the quotient
// but for its last bits, and what is left is divided again.
inline int64_t lane_floor_div(int64_t a, int64_t b)
{
#if defined(__AVX512DQ__)
    if (!__builtin_constant_p(b)) {
        // All ones where b is -1, 0 or 1. Selects are arithmetic: g++ makes no vectors of others.
        const int64_t special = ((b - 2) & ~(b + 1)) >> 63;
        const int64_t divisor = (b & ~special) | (2 & special);
        const double inverse = 1.0 / static_cast<double>(divisor);
        const auto first = static_cast<int64_t>(static_cast<double>(a) * inverse);
        const int64_t left = a - first * divisor;
        const auto second = static_cast<int64_t>(static_cast<double>(left) * inverse);
        // The rest and the divisor with the divisor's sign taken from both. Quotients are cut off,
        // and of a divisor beyond 2^53 by rounded numbers: two steps may be missing downwards.
        const int64_t sign = divisor >> 63;
        const int64_t rest = ((left - second * divisor) ^ sign) - sign;
        const int64_t size = (divisor ^ sign) - sign;
        const int64_t below = rest >> 63;
        const int64_t nearer = rest + (size & below);
        const int64_t again = nearer >> 63;
        // -1 where the rest, which is negative no more, is smaller than the divisor.
        const int64_t within = (nearer + (size & again) - size) >> 63;
        const int64_t quotient = first + second + below + again + within + 1;
        return (quotient & ~special) | ((a * b) & special);
    }
#endif
    return floor_div(a, b);
}

inline int64_t lane_floor_mod(int64_t a, int64_t b) { return a - b * lane_floor_div(a, b); }

inline int64_t lane_ceil_div(int64_t a, int64_t b) { return -lane_floor_div(-a, b); }

} // namespace sketch
