// cumsum: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o cumsum.so cumsum.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, max, tile, too_large, max_of_floats, plus,
// lanes, enough, aligned, at_once, load_lanes, load_all_lanes, store_lanes, store_all_lanes,
// over_lanes, divisor, combined_in_warp, combined, lane_count, numbered_lane, kept_running,
// shuffled, before_and_whole, scan_in_warp, scan_in_block, line_of_thread, line_of_warp,
// line_of_block, lanes_along, put_along, line_places, scan_line, scan_tile, cumsum, strides.

extern "C" __global__ void cumsum_1(
    const float *__restrict X, float *__restrict Y, int64_t M, int64_t N, int64_t programs)
{
    constexpr int64_t T = 2048;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t i = program;
        float *const cumsum_0 = reinterpret_cast<float *>(block_memory + 256);
        float *const cumsum_result = reinterpret_cast<float *>(block_memory + 8448);
        // total = alloc([1], init=0.0)
        float total = 0.0f;
        // for j in range(ceil(N, T)):
        for (int64_t j = 0; j < sketch::ceil_div(N, T); ++j) {
            float y_block = 0.0f;
            // load(X[i, j*T:(j+1)*T] -> x)
            __syncthreads();
            const float *const X_row = X + (i * N + j * T);
            sketch::over_lanes<4, 4>(thread * 4, threads * 4, std::min<int64_t>(T, N - j * T),
                sketch::aligned<4>(X_row, cumsum_0), [&](int64_t first, auto left) {
                sketch::lanes<float, 4> cumsum_0_lanes;
                const auto X_row_lanes = sketch::load_lanes<4>(X_row + first, left);
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    const float x = X_row_lanes[part];
                    cumsum_0_lanes[part] = x;
                }
                sketch::store_lanes(cumsum_0 + first, left, cumsum_0_lanes);
            });
            // cumsum(x, 0, y)
            __syncthreads();
            sketch::cumsum<0, false, false>(
                sketch::tile<const float, 1>{cumsum_0, {0}, {std::min<int64_t>(T, N - j * T)}, {1}},
                sketch::tile<float, 1>{cumsum_result, {0}, {std::min<int64_t>(T, N - j * T)}, {1}},
                block_memory);
            // add(y, total, y)
            // load(X[i, j*T:(j+1)*T] -> x)
            // reduce_sum(x, 0, y_block)
            // store(y -> Y[i, j*T:(j+1)*T])
            __syncthreads();
            const float *const X_row_2 = X + (i * N + j * T);
            float *const Y_row = Y + (i * N + j * T);
            float y_block_of_thread = sketch::plus<float>::start;
            sketch::over_lanes<4, 4>(thread * 4, threads * 4, std::min<int64_t>(T, N - j * T),
                sketch::aligned<4>(cumsum_result, X_row_2, Y_row), [&](int64_t first, auto left) {
                sketch::lanes<float, 4> Y_row_lanes;
                const auto cumsum_result_lanes = sketch::load_lanes<4>(cumsum_result + first, left);
                const auto X_row_2_lanes = sketch::load_lanes<4>(X_row_2 + first, left);
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    const float cumsum_result_value = cumsum_result_lanes[part];
                    const float y = cumsum_result_value;
                    const float y_add = y + total;
                    const float x = X_row_2_lanes[part];
                    y_block_of_thread = sketch::plus<float>::combine(y_block_of_thread, part < left
                        ? x : sketch::plus<float>::start);
                    Y_row_lanes[part] = y_add;
                }
                sketch::store_lanes(Y_row + first, left, Y_row_lanes);
            });
            y_block = sketch::plus<float>::combine(y_block,
                sketch::combined<sketch::plus<float>>(y_block_of_thread, block_memory));
            // add(total, y_block, total)
            total = total + y_block;
        }
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  M >= 0 and N >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t cumsum(const float *__restrict X, float *__restrict Y, int64_t M, int64_t N)
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
            cumsum_1<<<static_cast<unsigned>(blocks), 128, 16640>>>(X, Y, M, N, programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
