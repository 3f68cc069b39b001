// online_softmax: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o online_softmax.so online_softmax.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, max, exp, too_large, max_of_floats, plus,
// largest, lanes, enough, aligned, at_once, load_lanes, load_all_lanes, store_lanes,
// store_all_lanes, over_lanes, divisor, combined_in_warp, combined.

extern "C" __global__ void online_softmax_1(
    const float *__restrict X, float *__restrict Y, int64_t M, int64_t N, int64_t programs)
{
    constexpr int64_t TILE = 2048;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t i = program;
        // running_sum = alloc([1], init=0.0)
        float running_sum = 0.0f;
        // running_max = alloc([1], init=-inf)
        float running_max = -std::numeric_limits<float>::infinity();
        // for j in range(ceil(N, TILE)):
        for (int64_t j = 0; j < sketch::ceil_div(N, TILE); ++j) {
            float block_sum = 0.0f;
            float block_max = -std::numeric_limits<float>::infinity();
            // load(X[i, j*TILE:(j+1)*TILE] -> x)
            // reduce_max(x, 0, block_max)
            const float *const X_row = X + (i * N + j * TILE);
            float block_max_of_thread = sketch::largest<float>::start;
            sketch::over_lanes<4, 4>(thread * 4, threads * 4, std::min<int64_t>(TILE, N - j * TILE),
                sketch::aligned<4>(X_row), [&](int64_t first, auto left) {
                const auto X_row_lanes = sketch::load_lanes<4>(X_row + first, left);
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    const float x = X_row_lanes[part];
                    block_max_of_thread = sketch::largest<float>::combine(block_max_of_thread, part
                        < left ? x : sketch::largest<float>::start);
                }
            });
            block_max = sketch::largest<float>::combine(block_max,
                sketch::combined<sketch::largest<float>>(block_max_of_thread, block_memory));
            // max(running_max, block_max, new_max)
            const float new_max = sketch::max(running_max, block_max);
            // sub(running_max, new_max, correction)
            const float correction = running_max - new_max;
            // exp(correction, correction)
            const float correction_exp = sketch::exp(correction);
            // load(X[i, j*TILE:(j+1)*TILE] -> x)
            // sub(x, new_max, x)
            // exp(x, x)
            // reduce_sum(x, 0, block_sum)
            const float *const X_row_2 = X + (i * N + j * TILE);
            float block_sum_of_thread = sketch::plus<float>::start;
            sketch::over_lanes<4, 4>(thread * 4, threads * 4, std::min<int64_t>(TILE, N - j * TILE),
                sketch::aligned<4>(X_row_2), [&](int64_t first, auto left) {
                const auto X_row_2_lanes = sketch::load_lanes<4>(X_row_2 + first, left);
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    const float x = X_row_2_lanes[part];
                    const float x_sub = x - new_max;
                    const float x_exp = sketch::exp(x_sub);
                    block_sum_of_thread = sketch::plus<float>::combine(block_sum_of_thread, part <
                        left ? x_exp : sketch::plus<float>::start);
                }
            });
            block_sum = sketch::plus<float>::combine(block_sum,
                sketch::combined<sketch::plus<float>>(block_sum_of_thread, block_memory));
            // fma(running_sum, correction, block_sum, running_sum)
            running_sum = running_sum * correction_exp + block_sum;
            // copy(new_max, running_max)
            running_max = new_max;
        }
        // for j in range(ceil(N, TILE)):
        for (int64_t j_2 = 0; j_2 < sketch::ceil_div(N, TILE); ++j_2) {
            // load(X[i, j*TILE:(j+1)*TILE] -> x)
            // sub(x, running_max, x)
            // exp(x, x)
            // div(x, running_sum, x)
            // store(x -> Y[i, j*TILE:(j+1)*TILE])
            __syncthreads();
            const float *const X_row_3 = X + (i * N + j_2 * TILE);
            float *const Y_row = Y + (i * N + j_2 * TILE);
            sketch::over_lanes<4, 4>(thread * 4, threads * 4, std::min<int64_t>(TILE, N - j_2 *
                TILE), sketch::aligned<4>(X_row_3, Y_row), [&, divisor =
                sketch::divisor(running_sum)](int64_t first, auto left) {
                sketch::lanes<float, 4> Y_row_lanes;
                const auto X_row_3_lanes = sketch::load_lanes<4>(X_row_3 + first, left);
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    const float x_2 = X_row_3_lanes[part];
                    const float x_2_sub = x_2 - running_max;
                    const float x_2_exp = sketch::exp(x_2_sub);
                    const float x_2_div = x_2_exp / divisor;
                    Y_row_lanes[part] = x_2_div;
                }
                sketch::store_lanes(Y_row + first, left, Y_row_lanes);
            });
        }
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  M >= 0 and N >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t online_softmax(
    const float *__restrict X, float *__restrict Y, int64_t M, int64_t N)
{
    if (M < 0 || N < 0) {
        return 1;
    }
    if (sketch::too_large({M, N})) {
        return 2;
    }
    {
        const int64_t programs = M;
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        if (blocks > 0) {
            online_softmax_1<<<static_cast<unsigned>(blocks), 128, 256>>>(X, Y, M, N, programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
