// gather: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o gather.so gather.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, max, too_large, max_of_floats, divisor.

extern "C" __global__ void gather_1(
    const float *__restrict X, const int64_t *__restrict INDEX, float *__restrict Y, int64_t M,
    int64_t N, int64_t K, int64_t programs)
{
    constexpr int64_t T = 512;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t j = program % sketch::ceil_div(K, T);
        const int64_t i = program / sketch::ceil_div(K, T);
        // load(INDEX[i, j*T:(j+1)*T] -> index)
        // load(X[i, index] -> y)
        // store(y -> Y[i, j*T:(j+1)*T])
        const int64_t *const INDEX_row = INDEX + (i * K + j * T);
        float *const Y_row = Y + (i * K + j * T);
        for (int64_t lane = thread; lane < std::min<int64_t>(T, K - j * T); lane += threads) {
            const int64_t index = INDEX_row[lane];
            const float y = (0 <= index && index < N) ? X[i * N + index] : 0.0f;
            Y_row[lane] = y;
        }
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  M >= 0 and N >= 0 and K >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t gather(
    const float *__restrict X, const int64_t *__restrict INDEX, float *__restrict Y, int64_t M,
    int64_t N, int64_t K)
{
    constexpr int64_t T = 512;

    if (M < 0 || N < 0 || K < 0) {
        return 1;
    }
    if (sketch::too_large({M, N}) || sketch::too_large({M, K})) {
        return 2;
    }
    {
        const int64_t programs = M * sketch::ceil_div(K, T);
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        if (blocks > 0) {
            gather_1<<<static_cast<unsigned>(blocks), 128, 256>>>(X, INDEX, Y, M, N, K, programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
