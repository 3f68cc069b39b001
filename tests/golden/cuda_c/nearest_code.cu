// nearest_code: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o nearest_code.so nearest_code.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: max, min, sqrt, tile, lane_at, for_lines, no_number, extreme_value, extremum,
// too_large, max_of_floats, min_of_floats, largest, smallest, lanes, enough, aligned, at_once,
// load_lanes, load_all_lanes, store_lanes, store_all_lanes, over_lanes, combined_in_warp,
// combined, strides, layout, allow_shared.

extern "C" __global__ void nearest_code_1(
    const float *__restrict X, const float *__restrict CODES, int64_t *__restrict PLACE,
    float *__restrict DISTANCE, int64_t M, int64_t D, int64_t C, int64_t programs,
    int64_t squares_place, int64_t argmin_0_place)
{
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t i = program;
        int64_t *const argmin_result = reinterpret_cast<int64_t *>(block_memory + 256);
        float *const squares = reinterpret_cast<float *>(block_memory + squares_place);
        float *const argmin_0 = reinterpret_cast<float *>(block_memory + argmin_0_place);
        // squares = alloc([C], init=0.0)
        sketch::over_lanes<4, 4>(thread * 4, threads * 4, C, sketch::aligned<4>(squares),
            [&](int64_t first, auto left) {
            sketch::lanes<float, 4> squares_lanes;
            #pragma unroll
            for (int part = 0; part < 4; ++part) {
                squares_lanes[part] = 0.0f;
            }
            sketch::store_lanes(squares + first, left, squares_lanes);
        });
        // for d in range(D):
        for (int64_t d = 0; d < D; ++d) {
            // load(CODES[d, 0:C] -> code)
            // load(X[i, d] -> x)
            // sub(code, x, code)
            // fma(code, code, squares, squares)
            const float x = X[i * D + d];
            __syncthreads();
            const float *const CODES_row = CODES + d * C;
            sketch::over_lanes<4, 4>(thread * 4, threads * 4, C, sketch::aligned<4>(CODES_row,
                squares), [&](int64_t first, auto left) {
                auto squares_lanes = sketch::load_lanes<4>(squares + first, left);
                const auto CODES_row_lanes = sketch::load_lanes<4>(CODES_row + first, left);
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    const float code = CODES_row_lanes[part];
                    const float code_sub = code - x;
                    const float squares_value = squares_lanes[part];
                    const float squares_value_2 = code_sub * code_sub + squares_value;
                    squares_lanes[part] = squares_value_2;
                }
                sketch::store_lanes(squares + first, left, squares_lanes);
            });
        }
        float least = std::numeric_limits<float>::infinity();
        // reduce_min(squares, 0, least)
        __syncthreads();
        float least_of_thread = sketch::smallest<float>::start;
        sketch::over_lanes<4, 4>(thread * 4, threads * 4, C, sketch::aligned<4>(squares, argmin_0),
            [&](int64_t first, auto left) {
            sketch::lanes<float, 4> argmin_0_lanes;
            const auto squares_lanes = sketch::load_lanes<4>(squares + first, left);
            #pragma unroll
            for (int part = 0; part < 4; ++part) {
                const float squares_value = squares_lanes[part];
                argmin_0_lanes[part] = squares_value;
                least_of_thread = sketch::smallest<float>::combine(least_of_thread, part < left ?
                    squares_value : sketch::smallest<float>::start);
            }
            sketch::store_lanes(argmin_0 + first, left, argmin_0_lanes);
        });
        least = sketch::smallest<float>::combine(least,
            sketch::combined<sketch::smallest<float>>(least_of_thread, block_memory));
        // argmin(squares, 0, place)
        sketch::extremum<0, false>(
            sketch::tile<const float, 1>{argmin_0, {0}, {C}, {1}},
            sketch::tile<int64_t, 1>{argmin_result, {0}, {1}, {1}});
        __syncthreads();
        const int64_t argmin_result_value = argmin_result[0];
        const int64_t place = argmin_result_value;
        // sqrt(least, least)
        const float least_sqrt = sketch::sqrt(least);
        // store(place -> PLACE[i])
        if (thread == 0) {
            PLACE[i] = place;
        }
        // store(least -> DISTANCE[i])
        if (thread == 0) {
            DISTANCE[i] = least_sqrt;
        }
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  C >= 1
//   2  M >= 0 and D >= 0 and C >= 0
//   3  C <= 1024
//   4  fewer than 2**48 elements in each tensor
extern "C" int64_t nearest_code(
    const float *__restrict X, const float *__restrict CODES, int64_t *__restrict PLACE, float
    *__restrict DISTANCE, int64_t M, int64_t D, int64_t C)
{
    if (M < 0 || D < 0 || C < 0) {
        return 2;
    }
    if (C > 1024) {
        return 3;
    }
    if (C < 1) {
        return 1;
    }
    if (sketch::too_large({M, D}) || sketch::too_large({D, C})) {
        return 4;
    }
    {
        const int64_t programs = M;
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        sketch::layout shared{384};
        const int64_t squares_place = shared.add(sizeof(float), {C});
        const int64_t argmin_0_place = shared.add(sizeof(float), {C});
        sketch::allow_shared(nearest_code_1, 82176);
        if (blocks > 0) {
            nearest_code_1<<<static_cast<unsigned>(blocks), 128,
                static_cast<unsigned>(shared.bytes())>>>(X, CODES, PLACE, DISTANCE, M, D, C,
                programs, squares_place, argmin_0_place);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
