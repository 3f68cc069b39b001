// argmax_rows: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o argmax_rows.so argmax_rows.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, max, isnan, tile, lane_at, for_lines,
// no_number, extreme_value, extremum, too_large, max_of_floats, largest, lanes, enough, aligned,
// at_once, load_lanes, load_all_lanes, store_lanes, store_all_lanes, over_lanes, divisor,
// combined_in_warp, combined, strides.

extern "C" __global__ void argmax_rows_1(
    const float *__restrict X, int64_t *__restrict PLACE, int64_t M, int64_t N, int64_t programs)
{
    constexpr int64_t T = 2048;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t i = program;
        float *const argmax_0 = reinterpret_cast<float *>(block_memory + 256);
        int64_t *const argmax_result = reinterpret_cast<int64_t *>(block_memory + 8448);
        // place = alloc([1], init=0)
        int64_t place = 0;
        // best = alloc([1], init=-inf)
        float best = -std::numeric_limits<float>::infinity();
        // for j in range(ceil(N, T)):
        for (int64_t j = 0; j < sketch::ceil_div(N, T); ++j) {
            float block = -std::numeric_limits<float>::infinity();
            // load(X[i, j*T:(j+1)*T] -> x)
            // reduce_max(x, 0, block)
            __syncthreads();
            const float *const X_row = X + (i * N + j * T);
            float block_of_thread = sketch::largest<float>::start;
            sketch::over_lanes<4, 4>(thread * 4, threads * 4, std::min<int64_t>(T, N - j * T),
                sketch::aligned<4>(X_row, argmax_0), [&](int64_t first, auto left) {
                sketch::lanes<float, 4> argmax_0_lanes;
                const auto X_row_lanes = sketch::load_lanes<4>(X_row + first, left);
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    const float x = X_row_lanes[part];
                    argmax_0_lanes[part] = x;
                    block_of_thread = sketch::largest<float>::combine(block_of_thread, part < left ?
                        x : sketch::largest<float>::start);
                }
                sketch::store_lanes(argmax_0 + first, left, argmax_0_lanes);
            });
            block = sketch::largest<float>::combine(block,
                sketch::combined<sketch::largest<float>>(block_of_thread, block_memory));
            // argmax(x, 0, lane)
            sketch::extremum<0, true>(
                sketch::tile<const float, 1>{argmax_0, {0}, {std::min<int64_t>(T, N - j * T)}, {1}},
                sketch::tile<int64_t, 1>{argmax_result, {0}, {1}, {1}});
            __syncthreads();
            const int64_t argmax_result_value = argmax_result[0];
            const int64_t lane = argmax_result_value;
            // isnan(block, not_a_number)
            const bool not_a_number = sketch::isnan(block);
            // gt(block, best, better)
            const bool better = block > best;
            // logical_or(better, not_a_number, better)
            const bool better_logical_or = better || not_a_number;
            // isnan(best, not_a_number)
            const bool not_a_number_isnan = sketch::isnan(best);
            // logical_not(not_a_number, not_a_number)
            const bool not_a_number_logical_not = !not_a_number_isnan;
            // logical_and(better, not_a_number, better)
            const bool better_logical_and = better_logical_or && not_a_number_logical_not;
            // add(lane, j*T, lane)
            const int64_t lane_add = lane + j * T;
            // where(better, lane, place, place)
            place = better_logical_and ? lane_add : place;
            // where(better, block, best, best)
            best = better_logical_and ? block : best;
        }
        // store(place -> PLACE[i])
        if (thread == 0) {
            PLACE[i] = place;
        }
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  M >= 0 and N >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t argmax_rows(
    const float *__restrict X, int64_t *__restrict PLACE, int64_t M, int64_t N)
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
            argmax_rows_1<<<static_cast<unsigned>(blocks), 128, 8576>>>(X, PLACE, M, N, programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
