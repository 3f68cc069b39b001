// masked_select: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o masked_select.so masked_select.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, max, min, tile, max_of_floats,
// min_of_floats, plus, lanes, enough, aligned, at_once, load_lanes, load_all_lanes, store_lanes,
// store_all_lanes, over_lanes, divisor, combined_in_warp, combined, lane_count, numbered_lane,
// atomic_replace, added, atomic_add, kept_running, shuffled, before_and_whole, scan_in_warp,
// scan_in_block, line_of_thread, line_of_warp, line_of_block, lanes_along, put_along,
// line_places, scan_line, scan_tile, cumsum, strides, layout, arena, filled, fill.

extern "C" __global__ void masked_select_1(
    const bool *__restrict MASK, int64_t *__restrict COUNT, int64_t *__restrict COUNTS, int64_t N,
    int64_t blocks, int64_t programs)
{
    constexpr int64_t T = 1024;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t i = program;
        int64_t count = 0;
        // load(MASK[i*T:(i+1)*T] -> mask)
        // cast(mask, one)
        // reduce_sum(one, 0, count)
        const bool *const MASK_row = MASK + i * T;
        int64_t count_of_thread = sketch::plus<int64_t>::start;
        sketch::over_lanes<8, 1>(thread * 8, threads * 8, std::min<int64_t>(T, N - i * T),
            sketch::aligned<8>(MASK_row), [&](int64_t first, auto left) {
            const auto MASK_row_lanes = sketch::load_lanes<8>(MASK_row + first, left);
            #pragma unroll
            for (int part = 0; part < 8; ++part) {
                const bool mask = MASK_row_lanes[part];
                const int64_t one = static_cast<int64_t>(mask);
                count_of_thread = sketch::plus<int64_t>::combine(count_of_thread, part < left ? one
                    : sketch::plus<int64_t>::start);
            }
        });
        count = sketch::plus<int64_t>::combine(count,
            sketch::combined<sketch::plus<int64_t>>(count_of_thread, block_memory));
        // store(count -> COUNTS[i])
        if (thread == 0) {
            COUNTS[i] = count;
        }
        // atomic_add(count -> COUNT[])
        if (thread == 0) {
            sketch::atomic_add(&COUNT[0], count);
        }
        __syncthreads();
    }
}

extern "C" __global__ void masked_select_2(
    const float *__restrict X, const bool *__restrict MASK, float *__restrict Y,
    int64_t *__restrict COUNTS, int64_t N, int64_t blocks, int64_t programs)
{
    constexpr int64_t T = 1024;
    constexpr int64_t TB = 128;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t i_2 = program;
        int64_t *const cumsum_0 = reinterpret_cast<int64_t *>(block_memory + 256);
        int64_t *const cumsum_result = reinterpret_cast<int64_t *>(block_memory + 8448);
        // before = alloc([1], init=0)
        int64_t before = 0;
        // for b in range(ceil(i, TB)):
        for (int64_t b = 0; b < sketch::ceil_div(i_2, TB); ++b) {
            int64_t sum_ = 0;
            // load(COUNTS[b*TB:min((b+1)*TB, i)] -> counts)
            // reduce_sum(counts, 0, sum)
            const int64_t *const COUNTS_row = COUNTS + b * TB;
            int64_t sum__of_thread = sketch::plus<int64_t>::start;
            for (int64_t lane = thread; lane < std::min<int64_t>(TB, i_2 - b * TB); lane +=
                threads) {
                const int64_t counts = COUNTS_row[lane];
                sum__of_thread = sketch::plus<int64_t>::combine(sum__of_thread, counts);
            }
            sum_ = sketch::plus<int64_t>::combine(sum_,
                sketch::combined<sketch::plus<int64_t>>(sum__of_thread, block_memory));
            // add(before, sum, before)
            before = before + sum_;
        }
        // load(MASK[i*T:(i+1)*T] -> mask)
        // cast(mask, one)
        const bool *const MASK_row = MASK + i_2 * T;
        sketch::over_lanes<2, 4>(thread * 2, threads * 2, std::min<int64_t>(T, N - i_2 * T),
            sketch::aligned<2>(MASK_row, cumsum_0), [&](int64_t first, auto left) {
            sketch::lanes<int64_t, 2> cumsum_0_lanes;
            const auto MASK_row_lanes = sketch::load_lanes<2>(MASK_row + first, left);
            #pragma unroll
            for (int part = 0; part < 2; ++part) {
                const bool mask_2 = MASK_row_lanes[part];
                const int64_t one_2 = static_cast<int64_t>(mask_2);
                const int64_t cumsum_0_value = one_2;
                cumsum_0_lanes[part] = cumsum_0_value;
            }
            sketch::store_lanes(cumsum_0 + first, left, cumsum_0_lanes);
        });
        // cumsum(one, 0, place, exclusive=True)
        __syncthreads();
        sketch::cumsum<0, false, true>(
            sketch::tile<const int64_t, 1>{cumsum_0, {0}, {std::min<int64_t>(T, N - i_2 * T)}, {1}},
            sketch::tile<int64_t, 1>{cumsum_result, {0}, {std::min<int64_t>(T, N - i_2 * T)}, {1}},
            block_memory);
        // add(place, before, place)
        // load(X[i*T:(i+1)*T] -> x)
        // load(MASK[i*T:(i+1)*T] -> mask)
        // store(x -> Y[place], where=mask, unique=True)
        __syncthreads();
        if (thread == 0) {
            for (int64_t lane = 0; lane < std::min<int64_t>(T, N - i_2 * T); ++lane) {
                const int64_t cumsum_result_value = cumsum_result[lane];
                const int64_t place = cumsum_result_value;
                const int64_t place_add = place + before;
                const float x = X[i_2 * T + lane];
                const bool mask_2 = MASK[i_2 * T + lane];
                if (mask_2 && 0 <= place_add && place_add < N) {
                    Y[place_add] = x;
                }
            }
        }
        __syncthreads();
    }
}

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  N >= 0
extern "C" int64_t masked_select(
    const float *__restrict X, const bool *__restrict MASK, float *__restrict Y, int64_t
    *__restrict COUNT, int64_t N)
{
    constexpr int64_t T = 1024;

    if (N < 0) {
        return 1;
    }
    [[maybe_unused]] const int64_t blocks = sketch::ceil_div(N, T);
    // Memory shared by the phases.
    sketch::arena workspace;
    const int64_t COUNTS_place = workspace.add(sizeof(int64_t), {blocks});
    if (!workspace.allocate(1)) {
        return -1;
    }
    int64_t *const COUNTS = workspace.at<int64_t>(COUNTS_place, 0);
    // Y starts as 0.0.
    if (!sketch::fill<float>(Y, N, 0.0f)) {
        return -2;
    }
    // COUNT starts as 0.
    if (!sketch::fill<int64_t>(COUNT, 1, 0)) {
        return -2;
    }
    // Phase 1 of 2.
    {
        const int64_t programs = blocks;
        const int64_t blocks_ = std::min<int64_t>(programs, 65536);
        if (blocks_ > 0) {
            masked_select_1<<<static_cast<unsigned>(blocks_), 128, 256>>>(MASK, COUNT, COUNTS, N,
                blocks, programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    // Phase 2 of 2.
    {
        const int64_t programs = blocks;
        const int64_t blocks_ = std::min<int64_t>(programs, 65536);
        if (blocks_ > 0) {
            masked_select_2<<<static_cast<unsigned>(blocks_), 128, 16640>>>(X, MASK, Y, COUNTS, N,
                blocks, programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
