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

} // namespace sketch
