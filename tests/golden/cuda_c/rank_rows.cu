// rank_rows: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o rank_rows.so rank_rows.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, max, isnan, too_large, max_of_floats,
// plus, lanes, enough, aligned, at_once, load_lanes, load_all_lanes, store_lanes,
// store_all_lanes, over_lanes, divisor, combined_in_warp.

extern "C" __global__ void rank_rows_1(
    const float *__restrict X, float *__restrict SORTED, int64_t *__restrict RANK, int64_t M,
    int64_t N, int64_t programs)
{
    constexpr int64_t T = 128;
    constexpr int64_t U = 64;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t j = program % sketch::ceil_div(N, T);
        const int64_t i = program / sketch::ceil_div(N, T);
        int64_t *const place = reinterpret_cast<int64_t *>(block_memory + 256);
        int64_t *const place_operand = reinterpret_cast<int64_t *>(block_memory + 1280);
        bool *const place_loosely = reinterpret_cast<bool *>(block_memory + 2304);
        bool *const place_strictly_logical_or = reinterpret_cast<bool *>(block_memory + 10496);
        int64_t *const place_operand_2 = reinterpret_cast<int64_t *>(block_memory + 18688);
        bool *const place_nan_2 = reinterpret_cast<bool *>(block_memory + 19200);
        // place = alloc([T], init=0)
        for (int64_t lane = thread; lane < std::min<int64_t>(T, N - j * T); lane += threads) {
            place[lane] = 0;
        }
        // for k in range(ceil(N, U)):
        for (int64_t k = 0; k < sketch::ceil_div(N, U); ++k) {
            __syncthreads();
            for (int64_t row = thread / 32; row < std::min<int64_t>(T, N - j * T); row += threads /
                32) {
                // copy(iota(T, j*T, N), place_operand)
                const int64_t place_operand_value = j * T + row;
                if (thread % 32 == 0) {
                    place_operand[row] = place_operand_value;
                }
                // load(X[i, j*T:(j+1)*T] -> x)
                // isnan(x, place_nan)
                const float x = X[i * N + (j * T + row)];
                const bool place_nan = sketch::isnan(x);
                // load(X[i, j*T:(j+1)*T] -> x)
                // load(X[i, k*U:(k+1)*U] -> other)
                // ge(x[:, None], other[None, :], place_strictly)
                // le(x[:, None], other[None, :], place_loosely)
                // logical_or(place_strictly, place_nan[:, None], place_strictly)
                const float *const X_row = X + (i * N + k * U);
                bool *const place_loosely_row = place_loosely + row * U;
                bool *const place_strictly_logical_or_row = place_strictly_logical_or + row * U;
                sketch::over_lanes<2, 1>(thread % 32 * 2, 32 * 2, std::min<int64_t>(U, N - k * U),
                    sketch::aligned<2>(X_row, place_loosely_row, place_strictly_logical_or_row),
                    [&](int64_t first, auto left) {
                    sketch::lanes<bool, 2> place_loosely_row_lanes;
                    sketch::lanes<bool, 2> place_strictly_logical_or_row_lanes;
                    const auto X_row_lanes = sketch::load_lanes<2>(X_row + first, left);
                    #pragma unroll
                    for (int part = 0; part < 2; ++part) {
                        const float other = X_row_lanes[part];
                        const bool place_strictly = x >= other;
                        const bool place_loosely_value = x <= other;
                        place_loosely_row_lanes[part] = place_loosely_value;
                        const bool place_strictly_logical_or_value = place_strictly || place_nan;
                        place_strictly_logical_or_row_lanes[part] = place_strictly_logical_or_value;
                    }
                    sketch::store_lanes(place_loosely_row + first, left, place_loosely_row_lanes);
                    sketch::store_lanes(place_strictly_logical_or_row + first, left,
                        place_strictly_logical_or_row_lanes);
                });
            }
            // copy(iota(U, k*U, N), place_operand_2)
            // load(X[i, k*U:(k+1)*U] -> other)
            // isnan(other, place_nan_2)
            const float *const X_row_2 = X + (i * N + k * U);
            for (int64_t lane = thread; lane < std::min<int64_t>(U, N - k * U); lane += threads) {
                const int64_t place_operand_2_value = k * U + lane;
                place_operand_2[lane] = place_operand_2_value;
                const float other = X_row_2[lane];
                const bool place_nan_2_value = sketch::isnan(other);
                place_nan_2[lane] = place_nan_2_value;
            }
            __syncthreads();
            for (int64_t row = thread / 32; row < std::min<int64_t>(T, N - j * T); row += threads /
                32) {
                int64_t place_count = 0;
                // logical_or(place_loosely, place_nan_2[None, :], place_loosely)
                // logical_not(place_strictly, place_strictly)
                // lt(place_operand_2[None, :], place_operand[:, None], place_earlier)
                // where(place_earlier, place_loosely, place_strictly, place_earlier)
                // where(place_earlier, 1, 0, place_ones)
                // reduce_sum(place_ones, 1, place_count)
                const int64_t place_operand_value = place_operand[row];
                const bool *const place_loosely_row_2 = place_loosely + row * U;
                const bool *const place_strictly_logical_or_row_2 = place_strictly_logical_or + row
                    * U;
                int64_t place_count_of_thread = sketch::plus<int64_t>::start;
                sketch::over_lanes<2, 1>(thread % 32 * 2, 32 * 2, std::min<int64_t>(U, N - k * U),
                    sketch::aligned<2>(place_loosely_row_2, place_nan_2,
                    place_strictly_logical_or_row_2, place_operand_2), [&](int64_t first, auto
                    left) {
                    const auto place_loosely_row_2_lanes = sketch::load_lanes<2>(place_loosely_row_2
                        + first, left);
                    const auto place_nan_2_lanes = sketch::load_lanes<2>(place_nan_2 + first, left);
                    const auto place_strictly_logical_or_row_2_lanes =
                        sketch::load_lanes<2>(place_strictly_logical_or_row_2 + first, left);
                    const auto place_operand_2_lanes = sketch::load_lanes<2>(place_operand_2 +
                        first, left);
                    #pragma unroll
                    for (int part = 0; part < 2; ++part) {
                        const bool place_loosely_value = place_loosely_row_2_lanes[part];
                        const bool place_nan_2_value = place_nan_2_lanes[part];
                        const bool place_loosely_logical_or = place_loosely_value ||
                            place_nan_2_value;
                        const bool place_strictly_logical_or_value =
                            place_strictly_logical_or_row_2_lanes[part];
                        const bool place_strictly_logical_not = !place_strictly_logical_or_value;
                        const int64_t place_operand_2_value = place_operand_2_lanes[part];
                        const bool place_earlier = place_operand_2_value < place_operand_value;
                        const bool place_earlier_where = place_earlier ? place_loosely_logical_or :
                            place_strictly_logical_not;
                        const int64_t place_ones = place_earlier_where ? int64_t{1} : int64_t{0};
                        place_count_of_thread =
                            sketch::plus<int64_t>::combine(place_count_of_thread, part < left ?
                            place_ones : sketch::plus<int64_t>::start);
                    }
                });
                place_count = sketch::plus<int64_t>::combine(place_count,
                    sketch::combined_in_warp<sketch::plus<int64_t>>(place_count_of_thread));
                // add(place, place_count, place)
                const int64_t place_value = place[row];
                const int64_t place_value_2 = place_value + place_count;
                __syncwarp();
                if (thread % 32 == 0) {
                    place[row] = place_value_2;
                }
            }
        }
        // store(place -> RANK[i, j*T:(j+1)*T])
        // load(X[i, j*T:(j+1)*T] -> x)
        // store(x -> SORTED[i, place], unique=True, covers=True)
        __syncthreads();
        if (thread == 0) {
            for (int64_t lane = 0; lane < std::min<int64_t>(T, N - j * T); ++lane) {
                const int64_t place_value = place[lane];
                RANK[i * N + (j * T + lane)] = place_value;
                const float x = X[i * N + (j * T + lane)];
                if (0 <= place_value && place_value < N) {
                    SORTED[i * N + place_value] = x;
                }
            }
        }
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  M >= 0 and N >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t rank_rows(
    const float *__restrict X, float *__restrict SORTED, int64_t *__restrict RANK, int64_t M,
    int64_t N)
{
    constexpr int64_t T = 128;

    if (M < 0 || N < 0) {
        return 1;
    }
    if (sketch::too_large({M, N})) {
        return 2;
    }
    {
        const int64_t programs = M * sketch::ceil_div(N, T);
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        if (blocks > 0) {
            rank_rows_1<<<static_cast<unsigned>(blocks), 128, 19328>>>(X, SORTED, RANK, M, N,
                programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
