// embedding: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o embedding.so embedding.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, max, too_large, max_of_floats, divisor.

extern "C" __global__ void embedding_1(
    const int64_t *__restrict TOKENS, const float *__restrict WEIGHT, float *__restrict Y,
    int64_t B, int64_t L, int64_t V, int64_t D, int64_t programs)
{
    constexpr int64_t TM = 8;
    constexpr int64_t TD = 128;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t j = program % sketch::ceil_div(D, TD);
        const int64_t i = program / sketch::ceil_div(D, TD);
        for (int64_t row = thread / 32; row < std::min<int64_t>(TM, B * L - i * TM); row += threads
            / 32) {
            // load(TOKEN[i*TM:(i+1)*TM] -> token)
            // load(WEIGHT[token, j*TD:(j+1)*TD] -> y)
            // store(y -> YF[i*TM:(i+1)*TM, j*TD:(j+1)*TD])
            const int64_t token = TOKENS[i * TM + row];
            const float *const WEIGHT_row = WEIGHT + (token * D + j * TD);
            float *const Y_row = Y + ((i * TM + row) * D + j * TD);
            for (int64_t lane = thread % 32; lane < std::min<int64_t>(TD, D - j * TD); lane += 32) {
                const float y = (0 <= token && token < V) ? WEIGHT_row[lane] : 0.0f;
                Y_row[lane] = y;
            }
        }
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  B >= 0 and L >= 0 and V >= 0 and D >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t embedding(
    const int64_t *__restrict TOKENS, const float *__restrict WEIGHT, float *__restrict Y, int64_t
    B, int64_t L, int64_t V, int64_t D)
{
    constexpr int64_t TM = 8;
    constexpr int64_t TD = 128;

    if (B < 0 || L < 0 || V < 0 || D < 0) {
        return 1;
    }
    if (sketch::too_large({V, D}) || sketch::too_large({B, L, D})) {
        return 2;
    }
    {
        const int64_t programs = sketch::ceil_div(B * L, TM) * sketch::ceil_div(D, TD);
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        if (blocks > 0) {
            embedding_1<<<static_cast<unsigned>(blocks), 128, 256>>>(TOKENS, WEIGHT, Y, B, L, V, D,
                programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
