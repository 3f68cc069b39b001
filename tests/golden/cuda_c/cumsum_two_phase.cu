// cumsum_two_phase: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o cumsum_two_phase.so cumsum_two_phase.cu

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
// line_of_block, lanes_along, put_along, line_places, scan_line, scan_tile, cumsum, strides,
// layout, arena.

extern "C" __global__ void cumsum_two_phase_1(
    const float *__restrict X, float *__restrict TOTALS, int64_t M, int64_t N, int64_t blocks,
    int64_t programs)
{
    constexpr int64_t T = 2048;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t j = program % blocks;
        const int64_t i = program / blocks;
        float total = 0.0f;
        // load(X[i, j*T:(j+1)*T] -> x)
        // reduce_sum(x, 0, total)
        const float *const X_row = X + (i * N + j * T);
        float total_of_thread = sketch::plus<float>::start;
        sketch::over_lanes<4, 4>(thread * 4, threads * 4, std::min<int64_t>(T, N - j * T),
            sketch::aligned<4>(X_row), [&](int64_t first, auto left) {
            const auto X_row_lanes = sketch::load_lanes<4>(X_row + first, left);
            #pragma unroll
            for (int part = 0; part < 4; ++part) {
                const float x = X_row_lanes[part];
                total_of_thread = sketch::plus<float>::combine(total_of_thread, part < left ? x :
                    sketch::plus<float>::start);
            }
        });
        total = sketch::plus<float>::combine(total,
            sketch::combined<sketch::plus<float>>(total_of_thread, block_memory));
        // store(total -> TOTALS[i, j])
        if (thread == 0) {
            TOTALS[i * blocks + j] = total;
        }
        __syncthreads();
    }
}

extern "C" __global__ void cumsum_two_phase_2(
    const float *__restrict X, float *__restrict Y, float *__restrict TOTALS, int64_t M,
    int64_t N, int64_t blocks, int64_t programs)
{
    constexpr int64_t T = 2048;
    constexpr int64_t TB = 128;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t j_2 = program % blocks;
        const int64_t i_2 = program / blocks;
        float *const cumsum_0 = reinterpret_cast<float *>(block_memory + 256);
        float *const cumsum_result = reinterpret_cast<float *>(block_memory + 8448);
        // before = alloc([1], init=0.0)
        float before = 0.0f;
        // for b in range(ceil(j, TB)):
        for (int64_t b = 0; b < sketch::ceil_div(j_2, TB); ++b) {
            float sum_ = 0.0f;
            // load(TOTALS[i, b*TB:min((b+1)*TB, j)] -> totals)
            // reduce_sum(totals, 0, sum)
            const float *const TOTALS_row = TOTALS + (i_2 * blocks + b * TB);
            float sum__of_thread = sketch::plus<float>::start;
            for (int64_t lane = thread; lane < std::min<int64_t>(TB, j_2 - b * TB); lane +=
                threads) {
                const float totals = TOTALS_row[lane];
                sum__of_thread = sketch::plus<float>::combine(sum__of_thread, totals);
            }
            sum_ = sketch::plus<float>::combine(sum_,
                sketch::combined<sketch::plus<float>>(sum__of_thread, block_memory));
            // add(before, sum, before)
            before = before + sum_;
        }
        // load(X[i, j*T:(j+1)*T] -> x)
        const float *const X_row = X + (i_2 * N + j_2 * T);
        sketch::over_lanes<4, 4>(thread * 4, threads * 4, std::min<int64_t>(T, N - j_2 * T),
            sketch::aligned<4>(X_row, cumsum_0), [&](int64_t first, auto left) {
            sketch::lanes<float, 4> cumsum_0_lanes;
            const auto X_row_lanes = sketch::load_lanes<4>(X_row + first, left);
            #pragma unroll
            for (int part = 0; part < 4; ++part) {
                const float x_2 = X_row_lanes[part];
                cumsum_0_lanes[part] = x_2;
            }
            sketch::store_lanes(cumsum_0 + first, left, cumsum_0_lanes);
        });
        // cumsum(x, 0, y)
        __syncthreads();
        sketch::cumsum<0, false, false>(
            sketch::tile<const float, 1>{cumsum_0, {0}, {std::min<int64_t>(T, N - j_2 * T)}, {1}},
            sketch::tile<float, 1>{cumsum_result, {0}, {std::min<int64_t>(T, N - j_2 * T)}, {1}},
            block_memory);
        // add(y, before, y)
        // store(y -> Y[i, j*T:(j+1)*T])
        __syncthreads();
        float *const Y_row = Y + (i_2 * N + j_2 * T);
        sketch::over_lanes<4, 4>(thread * 4, threads * 4, std::min<int64_t>(T, N - j_2 * T),
            sketch::aligned<4>(cumsum_result, Y_row), [&](int64_t first, auto left) {
            sketch::lanes<float, 4> Y_row_lanes;
            const auto cumsum_result_lanes = sketch::load_lanes<4>(cumsum_result + first, left);
            #pragma unroll
            for (int part = 0; part < 4; ++part) {
                const float cumsum_result_value = cumsum_result_lanes[part];
                const float y = cumsum_result_value;
                const float y_add = y + before;
                Y_row_lanes[part] = y_add;
            }
            sketch::store_lanes(Y_row + first, left, Y_row_lanes);
        });
        __syncthreads();
    }
}

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  M >= 0 and N >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t cumsum_two_phase(
    const float *__restrict X, float *__restrict Y, int64_t M, int64_t N)
{
    constexpr int64_t T = 2048;

    if (M < 0 || N < 0) {
        return 1;
    }
    [[maybe_unused]] const int64_t blocks = sketch::ceil_div(N, T);
    if (sketch::too_large({M, N}) || sketch::too_large({M, blocks})) {
        return 2;
    }
    // Memory shared by the phases.
    sketch::arena workspace;
    const int64_t TOTALS_place = workspace.add(sizeof(float), {M, blocks});
    if (!workspace.allocate(1)) {
        return -1;
    }
    float *const TOTALS = workspace.at<float>(TOTALS_place, 0);
    // Phase 1 of 2.
    {
        const int64_t programs = M * blocks;
        const int64_t blocks_ = std::min<int64_t>(programs, 65536);
        if (blocks_ > 0) {
            cumsum_two_phase_1<<<static_cast<unsigned>(blocks_), 128, 256>>>(X, TOTALS, M, N,
                blocks, programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    // Phase 2 of 2.
    {
        const int64_t programs = M * blocks;
        const int64_t blocks_ = std::min<int64_t>(programs, 65536);
        if (blocks_ > 0) {
            cumsum_two_phase_2<<<static_cast<unsigned>(blocks_), 128, 16640>>>(X, Y, TOTALS, M, N,
                blocks, programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
