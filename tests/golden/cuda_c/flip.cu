// flip: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o flip.so flip.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, max, too_large, max_of_floats, divisor.

extern "C" __global__ void flip_1(
    const float *__restrict X, float *__restrict Y, int64_t M, int64_t N, int64_t programs)
{
    constexpr int64_t T = 1024;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t j = program % sketch::ceil_div(N, T);
        const int64_t i = program / sketch::ceil_div(N, T);
        // load(X[i, N-1-j*T:N-1-(j+1)*T:-1] -> x)
        // store(x -> Y[i, j*T:(j+1)*T])
        float *const Y_row = Y + (i * N + j * T);
        for (int64_t lane = thread; lane < std::min<int64_t>(T, N - T * j); lane += threads) {
            const float x = X[i * N + (N - 1 - j * T + lane * -1)];
            Y_row[lane] = x;
        }
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  M >= 0 and N >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t flip(const float *__restrict X, float *__restrict Y, int64_t M, int64_t N)
{
    constexpr int64_t T = 1024;

    if (M < 0 || N < 0) {
        return 1;
    }
    if (sketch::too_large({M, N})) {
        return 2;
    }
    {
        const int64_t programs = M * sketch::ceil_div(N, T);
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        if (blocks > 0) {
            flip_1<<<static_cast<unsigned>(blocks), 128, 256>>>(X, Y, M, N, programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
