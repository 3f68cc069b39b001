// `__half` on the CPU: sixteen bits, rounded after each operation.
#pragma once

#include "cuda_runtime.h"

struct __half {
    uint16_t bits;
    __half() = default;
    __half(float x) : bits(emulated::same_bits<uint16_t>(static_cast<_Float16>(x))) {}
    operator float() const { return static_cast<float>(emulated::same_bits<_Float16>(bits)); }
};
using half = __half;

inline __half __float2half(float x) { return x; }
inline __half __float2half_rn(float x) { return x; }
inline float __half2float(__half x) { return x; }
inline uint16_t __half_as_ushort(__half x) { return x.bits; }
inline __half __ushort_as_half(uint16_t bits) { return emulated::same_bits<__half>(bits); }

inline __half operator+(__half a, __half b) { return float{a} + float{b}; }
inline __half operator-(__half a, __half b) { return float{a} - float{b}; }
inline __half operator*(__half a, __half b) { return float{a} * float{b}; }
inline __half operator/(__half a, __half b) { return float{a} / float{b}; }
