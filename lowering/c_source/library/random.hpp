// The generator of random numbers.
#pragma once

#include <cmath>
#include <cstdint>

#include "functions.hpp"

namespace sketch {

// Philox4x32-10 (Salmon et al. 2011): the first two words for a key and a counter.
inline uint64_t philox(int64_t seed, int64_t offset)
{
    constexpr uint64_t low = 0xffffffffU;
    uint64_t k0 = static_cast<uint64_t>(seed) & low;
    uint64_t k1 = static_cast<uint64_t>(seed) >> 32;
    uint64_t c0 = static_cast<uint64_t>(offset) & low;
    uint64_t c1 = static_cast<uint64_t>(offset) >> 32;
    uint64_t c2 = 0;
    uint64_t c3 = 0;
#pragma GCC unroll 10
    for (int turn = 0; turn < 10; ++turn) {
        const uint64_t p0 = 0xd2511f53U * c0;
        const uint64_t p1 = 0xcd9e8d57U * c2;
        c0 = (p1 >> 32) ^ c1 ^ k0;
        c1 = p1 & low;
        c2 = (p0 >> 32) ^ c3 ^ k1;
        c3 = p0 & low;
        k0 = (k0 + 0x9e3779b9U) & low;
        k1 = (k1 + 0xbb67ae85U) & low;
    }
    return c0 | c1 << 32;
}

// Uniform in [0, 1): the upper 24 bits of a word.
inline float rand(int64_t seed, int64_t offset)
{
    const uint32_t word = static_cast<uint32_t>(philox(seed, offset));
    return static_cast<float>(static_cast<int32_t>(word >> 8)) * 0x1p-24F;
}

// Standard normal, by Box-Muller.
inline double randn(int64_t seed, int64_t offset)
{
    const uint64_t words = philox(seed, offset);
    const int32_t first = static_cast<int32_t>(static_cast<uint32_t>(words) >> 8);
    const int32_t second = static_cast<int32_t>(words >> 40);
    const double radius = std::sqrt(-2.0 * log((first + 1.0) * 0x1p-24));
    return radius * cos(6.283185307179586 * (second * 0x1p-24));
}

} // namespace sketch
