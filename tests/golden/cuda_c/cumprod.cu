// cumprod: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o cumprod.so cumprod.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, max, min, tile, too_large, max_of_floats,
// min_of_floats, plus, times, largest, smallest, either, lanes, enough, aligned, at_once,
// load_lanes, load_all_lanes, store_lanes, store_all_lanes, over_lanes, divisor,
// combined_in_warp, combined, lane_count, numbered_lane, kept_running, size_and_power,
// first_to_leave, shared_products, shuffled, shuffled_pair, before_and_whole, scan_in_warp,
// scan_in_block, line_of_thread, line_of_warp, line_of_block, lanes_along, put_along,
// line_places, scan_line, scan_tile, cumprod, strides.

extern "C" __global__ void cumprod_1(
    const float *__restrict X, float *__restrict Y, int64_t M, int64_t N, int64_t programs)
{
    constexpr int64_t T = 2048;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t i = program;
        int64_t *const y_lanes = reinterpret_cast<int64_t *>(block_memory + 256);
        bool *const y_last = reinterpret_cast<bool *>(block_memory + 16640);
        float *const y_factor = reinterpret_cast<float *>(block_memory + 18688);
        float *const cumprod_0 = reinterpret_cast<float *>(block_memory + 26880);
        float *const cumprod_result = reinterpret_cast<float *>(block_memory + 35072);
        // so_far = alloc([1], init=1.0)
        float so_far = 1.0f;
        // for j in range(ceil(N, T)):
        for (int64_t j = 0; j < sketch::ceil_div(N, T); ++j) {
            bool y_some = false;
            float y_total = 0.0f;
            int64_t y_highest = std::numeric_limits<int64_t>::min();
            int64_t y_lowest = INT64_C(9223372036854775807);
            // load(X[i, j*T:(j+1)*T] -> x)
            // eq(x, 0.0, y_valid)
            // where(y_valid, iota(T), iota(T), y_lanes)
            // reduce_min(y_lanes, 0, y_lowest)
            // reduce_max(y_lanes, 0, y_highest)
            __syncthreads();
            const float *const X_row = X + (i * N + j * T);
            int64_t y_lowest_of_thread = sketch::smallest<int64_t>::start;
            int64_t y_highest_of_thread = sketch::largest<int64_t>::start;
            sketch::over_lanes<2, 4>(thread * 2, threads * 2, std::min<int64_t>(T, N - j * T),
                sketch::aligned<2>(X_row, y_lanes), [&](int64_t first, auto left) {
                sketch::lanes<int64_t, 2> y_lanes_lanes;
                const auto X_row_lanes = sketch::load_lanes<2>(X_row + first, left);
                #pragma unroll
                for (int part = 0; part < 2; ++part) {
                    const int64_t lane = first + part;
                    const float x = X_row_lanes[part];
                    const bool y_valid = x == 0.0f;
                    const int64_t y_lanes_value = y_valid ? lane : lane;
                    y_lanes_lanes[part] = y_lanes_value;
                    y_lowest_of_thread = sketch::smallest<int64_t>::combine(y_lowest_of_thread, part
                        < left ? y_lanes_value : sketch::smallest<int64_t>::start);
                    y_highest_of_thread = sketch::largest<int64_t>::combine(y_highest_of_thread,
                        part < left ? y_lanes_value : sketch::largest<int64_t>::start);
                }
                sketch::store_lanes(y_lanes + first, left, y_lanes_lanes);
            });
            y_lowest = sketch::smallest<int64_t>::combine(y_lowest,
                sketch::combined<sketch::smallest<int64_t>>(y_lowest_of_thread, block_memory));
            y_highest = sketch::largest<int64_t>::combine(y_highest,
                sketch::combined<sketch::largest<int64_t>>(y_highest_of_thread, block_memory));
            // eq(iota(T), y_lowest, y_first)
            // eq(iota(T), y_highest, y_last)
            // where(y_first, so_far, 1.0, y_factor)
            sketch::over_lanes<4, 4>(thread * 4, threads * 4, T, sketch::aligned<4>(y_last,
                y_factor), [&](int64_t first, auto left) {
                sketch::lanes<bool, 4> y_last_lanes;
                sketch::lanes<float, 4> y_factor_lanes;
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    const int64_t lane = first + part;
                    const bool y_first = lane == y_lowest;
                    const bool y_last_value = lane == y_highest;
                    y_last_lanes[part] = y_last_value;
                    const float y_factor_value = y_first ? so_far : 1.0f;
                    y_factor_lanes[part] = y_factor_value;
                }
                sketch::store_lanes(y_last + first, left, y_last_lanes);
                sketch::store_lanes(y_factor + first, left, y_factor_lanes);
            });
            // load(X[i, j*T:(j+1)*T] -> x)
            // mul(y_factor, x, y_factor)
            const float *const X_row_2 = X + (i * N + j * T);
            sketch::over_lanes<4, 4>(thread * 4, threads * 4, std::min<int64_t>(T, N - j * T),
                sketch::aligned<4>(y_factor, X_row_2, cumprod_0), [&](int64_t first, auto left) {
                sketch::lanes<float, 4> cumprod_0_lanes;
                const auto y_factor_lanes = sketch::load_lanes<4>(y_factor + first, left);
                const auto X_row_2_lanes = sketch::load_lanes<4>(X_row_2 + first, left);
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    const float y_factor_value = y_factor_lanes[part];
                    const float x = X_row_2_lanes[part];
                    const float y_factor_mul = y_factor_value * x;
                    const float cumprod_0_value = y_factor_mul;
                    cumprod_0_lanes[part] = cumprod_0_value;
                }
                sketch::store_lanes(cumprod_0 + first, left, cumprod_0_lanes);
            });
            // cumprod(y_factor, 0, y)
            __syncthreads();
            sketch::cumprod<0, false, false>(
                sketch::tile<const float, 1>{cumprod_0, {0}, {std::min<int64_t>(T, N - j * T)},
                    {1}},
                sketch::tile<float, 1>{cumprod_result, {0}, {std::min<int64_t>(T, N - j * T)}, {1}},
                block_memory);
            // where(y_last, y, 0.0, y_factor)
            // reduce_sum(y_factor, 0, y_total)
            // ge(y_lanes, 0, y_valid)
            // reduce_any(y_valid, 0, y_some)
            // store(y -> Y[i, j*T:(j+1)*T])
            __syncthreads();
            float *const Y_row = Y + (i * N + j * T);
            float y_total_of_thread = sketch::plus<float>::start;
            bool y_some_of_thread = sketch::either<bool>::start;
            sketch::over_lanes<2, 4>(thread * 2, threads * 2, std::min<int64_t>(T, N - j * T),
                sketch::aligned<2>(cumprod_result, y_last, y_lanes, Y_row), [&](int64_t first, auto
                left) {
                sketch::lanes<float, 2> Y_row_lanes;
                const auto cumprod_result_lanes = sketch::load_lanes<2>(cumprod_result + first,
                    left);
                const auto y_last_lanes = sketch::load_lanes<2>(y_last + first, left);
                const auto y_lanes_lanes = sketch::load_lanes<2>(y_lanes + first, left);
                #pragma unroll
                for (int part = 0; part < 2; ++part) {
                    const float cumprod_result_value = cumprod_result_lanes[part];
                    const float y = cumprod_result_value;
                    const bool y_last_value = y_last_lanes[part];
                    const float y_factor_where = y_last_value ? y : 0.0f;
                    y_total_of_thread = sketch::plus<float>::combine(y_total_of_thread, part < left
                        ? y_factor_where : sketch::plus<float>::start);
                    const int64_t y_lanes_value = y_lanes_lanes[part];
                    const bool y_valid_ge = y_lanes_value >= int64_t{0};
                    y_some_of_thread = sketch::either<bool>::combine(y_some_of_thread, part < left ?
                        y_valid_ge : sketch::either<bool>::start);
                    Y_row_lanes[part] = y;
                }
                sketch::store_lanes(Y_row + first, left, Y_row_lanes);
            });
            y_total = sketch::plus<float>::combine(y_total,
                sketch::combined<sketch::plus<float>>(y_total_of_thread, block_memory));
            y_some = sketch::either<bool>::combine(y_some,
                sketch::combined<sketch::either<bool>>(y_some_of_thread, block_memory));
            // where(y_some, y_total, so_far, so_far)
            so_far = y_some ? y_total : so_far;
        }
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  M >= 0 and N >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t cumprod(const float *__restrict X, float *__restrict Y, int64_t M, int64_t N)
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
            cumprod_1<<<static_cast<unsigned>(blocks), 128, 43264>>>(X, Y, M, N, programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
