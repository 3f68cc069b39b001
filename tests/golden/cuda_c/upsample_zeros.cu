// upsample_zeros: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o upsample_zeros.so upsample_zeros.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, max, min, too_large, max_of_floats,
// min_of_floats, divisor, filled, fill.

extern "C" __global__ void upsample_zeros_1(
    const float *__restrict X, float *__restrict Y, int64_t M, int64_t N, int64_t programs)
{
    constexpr int64_t FACTOR = 3;
    constexpr int64_t T = 512;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t j = program % sketch::ceil_div(N, T);
        const int64_t i = program / sketch::ceil_div(N, T);
        // load(X[i, j*T:(j+1)*T] -> x)
        // store(x -> Y[i, j*T*FACTOR:(j+1)*T*FACTOR:FACTOR])
        const float *const X_row = X + (i * N + j * T);
        for (int64_t lane = thread; lane < std::min<int64_t>(T, N - j * T); lane += threads) {
            const float x = X_row[lane];
            Y[i * (N * FACTOR) + (j * T * FACTOR + lane * FACTOR)] = x;
        }
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  M >= 0 and N >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t upsample_zeros(
    const float *__restrict X, float *__restrict Y, int64_t M, int64_t N)
{
    constexpr int64_t FACTOR = 3;
    constexpr int64_t T = 512;

    if (M < 0 || N < 0) {
        return 1;
    }
    if (sketch::too_large({M, N})) {
        return 2;
    }
    // Y starts as 0.0.
    if (!sketch::fill<float>(Y, M * (N * FACTOR), 0.0f)) {
        return -2;
    }
    {
        const int64_t programs = M * sketch::ceil_div(N, T);
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        if (blocks > 0) {
            upsample_zeros_1<<<static_cast<unsigned>(blocks), 128, 256>>>(X, Y, M, N, programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
