// What a GPU has instructions or functions of its own for. A piece takes the place of that of its
// name for any machine.
#pragma once

#include "functions.hpp"

namespace sketch {

// e^x, which CUDA has in half the instructions of a polynomial.
__host__ __device__ inline float exp(float x) { return ::expf(x); }
__host__ __device__ inline double exp(double x) { return ::exp(x); }

//# max_of_floats (with max)
__host__ __device__ inline float max(float a, float b)
{
#ifdef __CUDA_ARCH__
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
    return larger;
#else
    return max<float>(a, b);
#endif
}

//# min_of_floats (with min)
__host__ __device__ inline float min(float a, float b)
{
#ifdef __CUDA_ARCH__
    float smaller;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(smaller) : "f"(a), "f"(b));
    return smaller;
#else
    return min<float>(a, b);
#endif
}

__host__ __device__ inline half to_half(float x)
{
#ifdef __CUDA_ARCH__
    half nearest;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(nearest.bits) : "f"(x));
    return nearest;
#else
    return half{half_bits(x)};
#endif
}

//# half_to_float (with to_half)
__host__ __device__ inline float to_float(half x)
{
#ifdef __CUDA_ARCH__
    float same;
    asm("cvt.f32.f16 %0, %1;" : "=f"(same) : "h"(x.bits));
    return same;
#else
    return float_of_half(x.bits);
#endif
}

__host__ __device__ inline bfloat16 to_bfloat16(float x)
{
#ifdef __CUDA_ARCH__
    bfloat16 nearest;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(nearest.bits) : "f"(x));
    return nearest;
#else
    return bfloat16{bfloat16_bits(x)};
#endif
}

} // namespace sketch
