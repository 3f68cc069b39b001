// segment_max: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o segment_max.so segment_max.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, max, min, max_of_floats, min_of_floats,
// divisor, atomic_replace, larger_of, atomic_max, filled, fill.

extern "C" __global__ void segment_max_1(
    const float *__restrict X, const int32_t *__restrict SEGMENT, const float *__restrict WEIGHT,
    float *__restrict Y, int64_t N, int64_t S, int64_t programs)
{
    constexpr int64_t T = 1024;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t i = program;
        // load(X[i*T:(i+1)*T] -> x)
        // load(SEGMENT[i*T:(i+1)*T] -> segment)
        // load(WEIGHT[segment] -> weight)
        // mul(x, weight, x)
        // atomic_max(x -> Y[segment])
        for (int64_t lane = thread; lane < std::min<int64_t>(T, N - i * T); lane += threads) {
            const float x = X[i * T + lane];
            const int32_t segment = SEGMENT[i * T + lane];
            const int64_t segment_index = static_cast<int64_t>(segment);
            const float weight = (0 <= segment_index && segment_index < S) ? WEIGHT[segment_index] :
                0.0f;
            const float x_mul = x * weight;
            if (0 <= segment_index && segment_index < S) {
                sketch::atomic_max(&Y[segment_index], x_mul);
            }
        }
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  N >= 0 and S >= 0
extern "C" int64_t segment_max(
    const float *__restrict X, const int32_t *__restrict SEGMENT, const float *__restrict WEIGHT,
    float *__restrict Y, int64_t N, int64_t S)
{
    constexpr int64_t T = 1024;

    if (N < 0 || S < 0) {
        return 1;
    }
    // Y starts as -inf.
    if (!sketch::fill<float>(Y, S, -std::numeric_limits<float>::infinity())) {
        return -2;
    }
    {
        const int64_t programs = sketch::ceil_div(N, T);
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        if (blocks > 0) {
            segment_max_1<<<static_cast<unsigned>(blocks), 128, 256>>>(X, SEGMENT, WEIGHT, Y, N, S,
                programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
