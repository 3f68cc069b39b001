// repeat_heads: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o repeat_heads.so repeat_heads.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, max, too_large, max_of_floats, lanes,
// enough, aligned, at_once, load_lanes, load_all_lanes, store_lanes, store_all_lanes, over_lanes,
// divisor.

extern "C" __global__ void repeat_heads_1(
    const float *__restrict X, float *__restrict Y, int64_t B, int64_t H, int64_t S, int64_t D,
    int64_t programs)
{
    constexpr int64_t COPIES = 4;
    constexpr int64_t T = 256;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t j = program % sketch::ceil_div(S * D, T);
        const int64_t h = program / sketch::ceil_div(S * D, T);
        for (int64_t row = thread / 32; row < COPIES; row += threads / 32) {
            // load(XV[h, j*T:(j+1)*T] -> x)
            // broadcast(x, copies)
            // store(copies -> YV[h, 0:COPIES, j*T:(j+1)*T])
            const float *const X_row = X + (h * (S * D) + j * T);
            float *const Y_row = Y + ((h * COPIES + row) * (S * D) + j * T);
            sketch::over_lanes<4, 2>(thread % 32 * 4, 32 * 4, std::min<int64_t>(T, S * D - j * T),
                sketch::aligned<4>(X_row, Y_row), [&](int64_t first, auto left) {
                sketch::lanes<float, 4> Y_row_lanes;
                const auto X_row_lanes = sketch::load_lanes<4>(X_row + first, left);
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    const float x = X_row_lanes[part];
                    const float copies = x;
                    Y_row_lanes[part] = copies;
                }
                sketch::store_lanes(Y_row + first, left, Y_row_lanes);
            });
        }
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  B >= 0 and H >= 0 and S >= 0 and D >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t repeat_heads(
    const float *__restrict X, float *__restrict Y, int64_t B, int64_t H, int64_t S, int64_t D)
{
    constexpr int64_t T = 256;

    if (B < 0 || H < 0 || S < 0 || D < 0) {
        return 1;
    }
    if (sketch::too_large({B, H, S, D})) {
        return 2;
    }
    {
        const int64_t programs = B * H * sketch::ceil_div(S * D, T);
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        if (blocks > 0) {
            repeat_heads_1<<<static_cast<unsigned>(blocks), 128, 256>>>(X, Y, B, H, S, D, programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
