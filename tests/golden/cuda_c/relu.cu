// relu: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o relu.so relu.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, max, relu, too_large, max_of_floats,
// lanes, enough, aligned, at_once, load_lanes, load_all_lanes, store_lanes, store_all_lanes,
// over_lanes, divisor.

extern "C" __global__ void relu_1(
    const float *__restrict X, float *__restrict Y, int64_t M, int64_t N, int64_t programs)
{
    constexpr int64_t TILE = 1024;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t i = program;
        // load(XF[i*TILE:(i+1)*TILE] -> x)
        // relu(x, y)
        // store(y -> YF[i*TILE:(i+1)*TILE])
        const float *const X_row = X + i * TILE;
        float *const Y_row = Y + i * TILE;
        sketch::over_lanes<4, 2>(thread * 4, threads * 4, std::min<int64_t>(TILE, M * N - i * TILE),
            sketch::aligned<4>(X_row, Y_row), [&](int64_t first, auto left) {
            sketch::lanes<float, 4> Y_row_lanes;
            const auto X_row_lanes = sketch::load_lanes<4>(X_row + first, left);
            #pragma unroll
            for (int part = 0; part < 4; ++part) {
                const float x = X_row_lanes[part];
                const float y = sketch::relu(x);
                Y_row_lanes[part] = y;
            }
            sketch::store_lanes(Y_row + first, left, Y_row_lanes);
        });
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  M >= 0 and N >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t relu(const float *__restrict X, float *__restrict Y, int64_t M, int64_t N)
{
    constexpr int64_t TILE = 1024;

    if (M < 0 || N < 0) {
        return 1;
    }
    if (sketch::too_large({M, N})) {
        return 2;
    }
    {
        const int64_t programs = sketch::ceil_div(M * N, TILE);
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        if (blocks > 0) {
            relu_1<<<static_cast<unsigned>(blocks), 128, 256>>>(X, Y, M, N, programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
