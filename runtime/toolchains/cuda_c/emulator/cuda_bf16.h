// `__nv_bfloat16` on the CPU: the upper half of a float, rounded after each operation.
#pragma once

#include "cuda_runtime.h"

struct __nv_bfloat16 {
    uint16_t bits;
    __nv_bfloat16() = default;
    __nv_bfloat16(float x)
    {
        const unsigned all = __float_as_uint(x);
        bits = static_cast<uint16_t>(x != x ? all >> 16 | 0x40U
                                            : (all + 0x7fffU + (all >> 16 & 1U)) >> 16);
    }
    operator float() const { return __uint_as_float(unsigned{bits} << 16); }
};

inline __nv_bfloat16 __float2bfloat16(float x) { return x; }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return x; }
inline float __bfloat162float(__nv_bfloat16 x) { return x; }
inline uint16_t __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
inline __nv_bfloat16 __ushort_as_bfloat16(uint16_t bits)
{
    return emulated::same_bits<__nv_bfloat16>(bits);
}

inline __nv_bfloat16 operator+(__nv_bfloat16 a, __nv_bfloat16 b) { return float{a} + float{b}; }
inline __nv_bfloat16 operator-(__nv_bfloat16 a, __nv_bfloat16 b) { return float{a} - float{b}; }
inline __nv_bfloat16 operator*(__nv_bfloat16 a, __nv_bfloat16 b) { return float{a} * float{b}; }
inline __nv_bfloat16 operator/(__nv_bfloat16 a, __nv_bfloat16 b) { return float{a} / float{b}; }
