// block_scale: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o block_scale.so block_scale.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, absolute, max, tile, reshape,
// max_of_floats, largest, lanes, enough, aligned, at_once, load_lanes, load_all_lanes,
// store_lanes, store_all_lanes, over_lanes, divisor, combined_in_warp, combined, lane_count,
// numbered_lane, strides.

extern "C" __global__ void block_scale_1(
    const float *__restrict X, float *__restrict Y, float *__restrict SCALE, int64_t M,
    int64_t programs)
{
    constexpr int64_t T = 4;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t i = program;
        float *const reshape_0 = reinterpret_cast<float *>(block_memory + 256);
        float *const reshape_result = reinterpret_cast<float *>(block_memory + 4352);
        float *const block = reinterpret_cast<float *>(block_memory + 8448);
        float *const scale_max = reinterpret_cast<float *>(block_memory + 8576);
        float *const reshape_0_2 = reinterpret_cast<float *>(block_memory + 8704);
        float *const reshape_result_2 = reinterpret_cast<float *>(block_memory + 12800);
        float *const y = reinterpret_cast<float *>(block_memory + 16896);
        float *const reshape_0_3 = reinterpret_cast<float *>(block_memory + 20992);
        float *const reshape_result_3 = reinterpret_cast<float *>(block_memory + 21120);
        for (int64_t row = thread / 32; row < std::min<int64_t>(T, M - i * T); row += threads /
            32) {
            // load(X[i*T:(i+1)*T, 0:256] -> x)
            const float *const X_row = X + (i * T + row) * 256;
            float *const reshape_0_row = reshape_0 + row * 256;
            sketch::over_lanes<4, 2>(thread % 32 * 4, 32 * 4, 256, sketch::aligned<4>(X_row,
                reshape_0_row), [&](int64_t first, auto left) {
                sketch::lanes<float, 4> reshape_0_row_lanes;
                const auto X_row_lanes = sketch::load_lanes<4>(X_row + first, left);
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    const float x = X_row_lanes[part];
                    reshape_0_row_lanes[part] = x;
                }
                sketch::store_lanes(reshape_0_row + first, left, reshape_0_row_lanes);
            });
        }
        // reshape(x, block)
        __syncthreads();
        sketch::reshape(
            sketch::tile<const float, 2>{reshape_0, {0, 0}, {std::min<int64_t>(T, M - i * T), 256},
                {256, 1}},
            sketch::tile<float, 3>{reshape_result, {0, 0, 0}, {std::min<int64_t>(T, M - i * T), 8,
                32}, {8 * 32, 32, 1}});
        for (int64_t plane = 0; plane < std::min<int64_t>(T, M - i * T); ++plane) {
            for (int64_t row = 0; row < 8; ++row) {
                float scale = -std::numeric_limits<float>::infinity();
                // abs(block, size)
                // reduce_max(size, 2, scale)
                __syncthreads();
                const float *const reshape_result_row = reshape_result + (plane * 8 + row) * 32;
                float scale_of_thread = sketch::largest<float>::start;
                for (int64_t lane = thread; lane < 32; lane += threads) {
                    const float reshape_result_value = reshape_result_row[lane];
                    block[lane] = reshape_result_value;
                    const float size = sketch::absolute(reshape_result_value);
                    scale_of_thread = sketch::largest<float>::combine(scale_of_thread, size);
                }
                scale = sketch::largest<float>::combine(scale,
                    sketch::combined<sketch::largest<float>>(scale_of_thread, block_memory));
                // max(scale, 1e-12, scale)
                const float scale_max_value = sketch::max(scale, 1e-12f);
                if (thread == 0) {
                    scale_max[plane * 8 + row] = scale_max_value;
                }
                // div(block, scale, block)
                float *const reshape_0_2_row = reshape_0_2 + (plane * 8 + row) * 32;
                for (int64_t lane = thread; lane < 32; lane += threads) {
                    const float block_value = block[lane];
                    const float block_div = block_value / scale_max_value;
                    const float reshape_0_2_value = block_div;
                    reshape_0_2_row[lane] = reshape_0_2_value;
                }
            }
        }
        // reshape(block, y)
        __syncthreads();
        sketch::reshape(
            sketch::tile<const float, 3>{reshape_0_2, {0, 0, 0}, {std::min<int64_t>(T, M - i * T),
                8, 32}, {8 * 32, 32, 1}},
            sketch::tile<float, 2>{reshape_result_2, {0, 0}, {std::min<int64_t>(T, M - i * T), 256},
                {256, 1}});
        __syncthreads();
        for (int64_t row = thread / 32; row < std::min<int64_t>(T, M - i * T); row += threads /
            32) {
            const float *const reshape_result_2_row = reshape_result_2 + row * 256;
            float *const y_row = y + row * 256;
            sketch::over_lanes<4, 2>(thread % 32 * 4, 32 * 4, 256,
                sketch::aligned<4>(reshape_result_2_row, y_row), [&](int64_t first, auto left) {
                sketch::lanes<float, 4> y_row_lanes;
                const auto reshape_result_2_row_lanes = sketch::load_lanes<4>(reshape_result_2_row +
                    first, left);
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    const float reshape_result_2_value = reshape_result_2_row_lanes[part];
                    y_row_lanes[part] = reshape_result_2_value;
                }
                sketch::store_lanes(y_row + first, left, y_row_lanes);
            });
            const float *const scale_max_row = scale_max + row * 8;
            float *const reshape_0_3_row = reshape_0_3 + row * 8;
            for (int64_t lane = thread % 32; lane < 8; lane += 32) {
                const float scale_max_value = scale_max_row[lane];
                reshape_0_3_row[lane] = scale_max_value;
            }
        }
        // reshape(scale, flat)
        __syncthreads();
        sketch::reshape(
            sketch::tile<const float, 3>{reshape_0_3, {0, 0, 0}, {std::min<int64_t>(T, M - i * T),
                8, 1}, {8, 1, 1}},
            sketch::tile<float, 2>{reshape_result_3, {0, 0}, {std::min<int64_t>(T, M - i * T), 8},
                {8, 1}});
        __syncthreads();
        for (int64_t row = thread / 32; row < std::min<int64_t>(T, M - i * T); row += threads /
            32) {
            // store(flat -> SCALE[i*T:(i+1)*T, 0:8])
            const float *const reshape_result_3_row = reshape_result_3 + row * 8;
            float *const SCALE_row = SCALE + (i * T + row) * 8;
            for (int64_t lane = thread % 32; lane < 8; lane += 32) {
                const float reshape_result_3_value = reshape_result_3_row[lane];
                const float flat = reshape_result_3_value;
                SCALE_row[lane] = flat;
            }
            // store(y -> Y[i*T:(i+1)*T, 0:256])
            const float *const y_row_2 = y + row * 256;
            float *const Y_row = Y + (i * T + row) * 256;
            sketch::over_lanes<4, 2>(thread % 32 * 4, 32 * 4, 256, sketch::aligned<4>(y_row_2,
                Y_row), [&](int64_t first, auto left) {
                sketch::lanes<float, 4> Y_row_lanes;
                const auto y_row_2_lanes = sketch::load_lanes<4>(y_row_2 + first, left);
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    const float y_value = y_row_2_lanes[part];
                    Y_row_lanes[part] = y_value;
                }
                sketch::store_lanes(Y_row + first, left, Y_row_lanes);
            });
        }
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  M >= 0
extern "C" int64_t block_scale(
    const float *__restrict X, float *__restrict Y, float *__restrict SCALE, int64_t M)
{
    constexpr int64_t T = 4;

    if (M < 0) {
        return 1;
    }
    {
        const int64_t programs = sketch::ceil_div(M, T);
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        if (blocks > 0) {
            block_scale_1<<<static_cast<unsigned>(blocks), 128, 21248>>>(X, Y, SCALE, M, programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
