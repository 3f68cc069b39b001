// sort_rows: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o sort_rows.so sort_rows.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: max, min, tile, lane_at, for_lines, no_number, stands_before, ordered_line,
// merge_lanes, sort, too_large, max_of_floats, min_of_floats, lanes, enough, aligned, at_once,
// load_lanes, load_all_lanes, store_lanes, store_all_lanes, over_lanes, strides, layout,
// allow_shared.

extern "C" __global__ void sort_rows_1(
    const float *__restrict X, float *__restrict VALUES, int64_t *__restrict PLACES, int64_t M,
    int64_t N, int64_t programs, int64_t sort_0_place, int64_t sort_1_place,
    int64_t sort_result_place, int64_t sort_result_2_place)
{
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t i = program;
        float *const sort_0 = reinterpret_cast<float *>(block_memory + sort_0_place);
        int64_t *const sort_1 = reinterpret_cast<int64_t *>(block_memory + sort_1_place);
        float *const sort_result = reinterpret_cast<float *>(block_memory + sort_result_place);
        int64_t *const sort_result_2 = reinterpret_cast<int64_t *>(block_memory +
            sort_result_2_place);
        // load(X[i, 0:N] -> x)
        const float *const X_row = X + i * N;
        sketch::over_lanes<2, 4>(thread * 2, threads * 2, N, sketch::aligned<2>(X_row, sort_0,
            sort_1), [&](int64_t first, auto left) {
            sketch::lanes<float, 2> sort_0_lanes;
            sketch::lanes<int64_t, 2> sort_1_lanes;
            const auto X_row_lanes = sketch::load_lanes<2>(X_row + first, left);
            #pragma unroll
            for (int part = 0; part < 2; ++part) {
                const int64_t lane = first + part;
                const float x = X_row_lanes[part];
                sort_0_lanes[part] = x;
                const int64_t sort_1_value = lane;
                sort_1_lanes[part] = sort_1_value;
            }
            sketch::store_lanes(sort_0 + first, left, sort_0_lanes);
            sketch::store_lanes(sort_1 + first, left, sort_1_lanes);
        });
        // sort(x, iota(N), 0, value, place, descending=True)
        __syncthreads();
        sketch::sort<0, true>(
            sketch::tile<float, 1>{sort_0, {0}, {N}, {1}},
            sketch::tile<int64_t, 1>{sort_1, {0}, {N}, {1}},
            sketch::tile<float, 1>{sort_result, {0}, {N}, {1}},
            sketch::tile<int64_t, 1>{sort_result_2, {0}, {N}, {1}});
        // store(value -> VALUES[i, 0:N])
        // store(place -> PLACES[i, 0:N])
        __syncthreads();
        float *const VALUES_row = VALUES + i * N;
        int64_t *const PLACES_row = PLACES + i * N;
        sketch::over_lanes<2, 4>(thread * 2, threads * 2, N, sketch::aligned<2>(sort_result,
            sort_result_2, VALUES_row, PLACES_row), [&](int64_t first, auto left) {
            sketch::lanes<float, 2> VALUES_row_lanes;
            sketch::lanes<int64_t, 2> PLACES_row_lanes;
            const auto sort_result_lanes = sketch::load_lanes<2>(sort_result + first, left);
            const auto sort_result_2_lanes = sketch::load_lanes<2>(sort_result_2 + first, left);
            #pragma unroll
            for (int part = 0; part < 2; ++part) {
                const float sort_result_value = sort_result_lanes[part];
                const float value = sort_result_value;
                const int64_t sort_result_2_value = sort_result_2_lanes[part];
                const int64_t place = sort_result_2_value;
                VALUES_row_lanes[part] = value;
                PLACES_row_lanes[part] = place;
            }
            sketch::store_lanes(VALUES_row + first, left, VALUES_row_lanes);
            sketch::store_lanes(PLACES_row + first, left, PLACES_row_lanes);
        });
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  M >= 0 and N >= 0
//   2  N <= 1024
//   3  fewer than 2**48 elements in each tensor
extern "C" int64_t sort_rows(
    const float *__restrict X, float *__restrict VALUES, int64_t *__restrict PLACES, int64_t M,
    int64_t N)
{
    if (M < 0 || N < 0) {
        return 1;
    }
    if (N > 1024) {
        return 2;
    }
    if (sketch::too_large({M, N})) {
        return 3;
    }
    {
        const int64_t programs = M;
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        sketch::layout shared{256};
        const int64_t sort_0_place = shared.add(sizeof(float), {N});
        const int64_t sort_1_place = shared.add(sizeof(int64_t), {N});
        const int64_t sort_result_place = shared.add(sizeof(float), {N});
        const int64_t sort_result_2_place = shared.add(sizeof(int64_t), {N});
        sketch::allow_shared(sort_rows_1, 82176);
        if (blocks > 0) {
            sort_rows_1<<<static_cast<unsigned>(blocks), 128,
                static_cast<unsigned>(shared.bytes())>>>(X, VALUES, PLACES, M, N, programs,
                sort_0_place, sort_1_place, sort_result_place, sort_result_2_place);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
