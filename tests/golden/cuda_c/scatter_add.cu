// scatter_add: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o scatter_add.so scatter_add.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, max, too_large, max_of_floats, divisor,
// atomic_replace, added, atomic_add.

extern "C" __global__ void scatter_add_1(
    float *__restrict TOTAL, const int64_t *__restrict INDEX, const float *__restrict SRC,
    int64_t R, int64_t N, int64_t D, int64_t programs)
{
    constexpr int64_t TN = 8;
    constexpr int64_t TD = 128;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t j = program % sketch::ceil_div(D, TD);
        const int64_t i = program / sketch::ceil_div(D, TD);
        for (int64_t row = 0; row < std::min<int64_t>(TN, N - i * TN); ++row) {
            // load(SRC[i*TN:(i+1)*TN, j*TD:(j+1)*TD] -> x)
            // load(INDEX[i*TN:(i+1)*TN] -> index)
            // atomic_add(x -> TOTAL[index, j*TD:(j+1)*TD])
            const int64_t index = INDEX[i * TN + row];
            __syncthreads();
            for (int64_t lane = thread; lane < std::min<int64_t>(TD, D - j * TD); lane += threads) {
                const float x = SRC[(i * TN + row) * D + (j * TD + lane)];
                if (0 <= index && index < R) {
                    sketch::atomic_add(&TOTAL[index * D + (j * TD + lane)], x);
                }
            }
        }
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  R >= 0 and N >= 0 and D >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t scatter_add(
    float *__restrict TOTAL, const int64_t *__restrict INDEX, const float *__restrict SRC, int64_t
    R, int64_t N, int64_t D)
{
    constexpr int64_t TN = 8;
    constexpr int64_t TD = 128;

    if (R < 0 || N < 0 || D < 0) {
        return 1;
    }
    if (sketch::too_large({R, D}) || sketch::too_large({N, D})) {
        return 2;
    }
    {
        const int64_t programs = sketch::ceil_div(N, TN) * sketch::ceil_div(D, TD);
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        if (blocks > 0) {
            scatter_add_1<<<static_cast<unsigned>(blocks), 128, 256>>>(TOTAL, INDEX, SRC, R, N, D,
                programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
