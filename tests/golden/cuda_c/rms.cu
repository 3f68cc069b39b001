// rms_norm: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o rms_norm.so rms_norm.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, max, sqrt, too_large, max_of_floats,
// lanes, enough, aligned, at_once, load_lanes, load_all_lanes, store_lanes, store_all_lanes,
// over_lanes, divisor, layout, allow_shared.

extern "C" __global__ void rms_norm_1(
    const float *__restrict X, float *__restrict Y, int64_t B, int64_t F, int64_t D1, int64_t D2,
    double eps, int64_t programs, int64_t square_sum_place, int64_t rms_row_sqrt_place)
{
    constexpr int64_t TILE_SIZE = 1;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t d1_outer = program % sketch::ceil_div(D1, TILE_SIZE);
        const int64_t b = program / sketch::ceil_div(D1, TILE_SIZE);
        float *const square_sum = reinterpret_cast<float *>(block_memory + square_sum_place);
        float *const rms_row_sqrt = reinterpret_cast<float *>(block_memory + rms_row_sqrt_place);
        for (int64_t row = thread / 32; row < TILE_SIZE; row += threads / 32) {
            // square_sum = alloc([TILE_SIZE, D2], init=0.0)
            float *const square_sum_row = square_sum + row * D2;
            sketch::over_lanes<4, 4>(thread % 32 * 4, 32 * 4, D2,
                sketch::aligned<4>(square_sum_row), [&](int64_t first, auto left) {
                sketch::lanes<float, 4> square_sum_row_lanes;
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    square_sum_row_lanes[part] = 0.0f;
                }
                sketch::store_lanes(square_sum_row + first, left, square_sum_row_lanes);
            });
        }
        // for f in range(F):
        for (int64_t f = 0; f < F; ++f) {
            __syncthreads();
            for (int64_t row = thread / 32; row < TILE_SIZE; row += threads / 32) {
                // load(X[b, f, d1_outer*TILE_SIZE:(d1_outer+1)*TILE_SIZE, 0:D2] -> x_row)
                // mul(x_row, x_row, square_row)
                // add(square_sum, square_row, square_sum)
                const float *const X_row = X + ((b * F + f) * D1 + (d1_outer * TILE_SIZE + row)) *
                    D2;
                float *const square_sum_row_2 = square_sum + row * D2;
                sketch::over_lanes<4, 4>(thread % 32 * 4, 32 * 4, D2, sketch::aligned<4>(X_row,
                    square_sum_row_2), [&](int64_t first, auto left) {
                    auto square_sum_row_2_lanes = sketch::load_lanes<4>(square_sum_row_2 + first,
                        left);
                    const auto X_row_lanes = sketch::load_lanes<4>(X_row + first, left);
                    #pragma unroll
                    for (int part = 0; part < 4; ++part) {
                        const float x_row = X_row_lanes[part];
                        const float square_row = x_row * x_row;
                        const float square_sum_value = square_sum_row_2_lanes[part];
                        const float square_sum_value_2 = square_sum_value + square_row;
                        square_sum_row_2_lanes[part] = square_sum_value_2;
                    }
                    sketch::store_lanes(square_sum_row_2 + first, left, square_sum_row_2_lanes);
                });
            }
        }
        __syncthreads();
        for (int64_t row = thread / 32; row < TILE_SIZE; row += threads / 32) {
            // div(square_sum, F, rms_row)
            // add(rms_row, eps, rms_row)
            // sqrt(rms_row, rms_row)
            const float *const square_sum_row_3 = square_sum + row * D2;
            float *const rms_row_sqrt_row = rms_row_sqrt + row * D2;
            sketch::over_lanes<4, 4>(thread % 32 * 4, 32 * 4, D2,
                sketch::aligned<4>(square_sum_row_3, rms_row_sqrt_row), [&](int64_t first, auto
                left) {
                sketch::lanes<float, 4> rms_row_sqrt_row_lanes;
                const auto square_sum_row_3_lanes = sketch::load_lanes<4>(square_sum_row_3 + first,
                    left);
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    const float square_sum_value = square_sum_row_3_lanes[part];
                    const float rms_row = square_sum_value / static_cast<float>(F);
                    const float rms_row_add = rms_row + static_cast<float>(eps);
                    const float rms_row_sqrt_value = sketch::sqrt(rms_row_add);
                    rms_row_sqrt_row_lanes[part] = rms_row_sqrt_value;
                }
                sketch::store_lanes(rms_row_sqrt_row + first, left, rms_row_sqrt_row_lanes);
            });
        }
        // for f in range(F):
        for (int64_t f_2 = 0; f_2 < F; ++f_2) {
            __syncthreads();
            for (int64_t row = thread / 32; row < TILE_SIZE; row += threads / 32) {
                // load(X[b, f, d1_outer*TILE_SIZE:(d1_outer+1)*TILE_SIZE, 0:D2] -> x_row)
                // div(x_row, rms_row, y_row)
                // store(y_row -> Y[b, f, d1_outer*TILE_SIZE:(d1_outer+1)*TILE_SIZE, 0:D2])
                const float *const X_row_2 = X + ((b * F + f_2) * D1 + (d1_outer * TILE_SIZE + row))
                    * D2;
                const float *const rms_row_sqrt_row_2 = rms_row_sqrt + row * D2;
                float *const Y_row = Y + ((b * F + f_2) * D1 + (d1_outer * TILE_SIZE + row)) * D2;
                sketch::over_lanes<4, 4>(thread % 32 * 4, 32 * 4, D2, sketch::aligned<4>(X_row_2,
                    rms_row_sqrt_row_2, Y_row), [&](int64_t first, auto left) {
                    sketch::lanes<float, 4> Y_row_lanes;
                    const auto X_row_2_lanes = sketch::load_lanes<4>(X_row_2 + first, left);
                    const auto rms_row_sqrt_row_2_lanes = sketch::load_lanes<4>(rms_row_sqrt_row_2 +
                        first, left);
                    #pragma unroll
                    for (int part = 0; part < 4; ++part) {
                        const float x_row_2 = X_row_2_lanes[part];
                        const float rms_row_sqrt_value = rms_row_sqrt_row_2_lanes[part];
                        const float y_row = x_row_2 / rms_row_sqrt_value;
                        Y_row_lanes[part] = y_row;
                    }
                    sketch::store_lanes(Y_row + first, left, Y_row_lanes);
                });
            }
        }
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  B >= 0 and F >= 0 and D1 >= 0 and D2 >= 0
//   2  D2 <= 4096
//   3  fewer than 2**48 elements in each tensor
extern "C" int64_t rms_norm(
    const float *__restrict X, float *__restrict Y, int64_t B, int64_t F, int64_t D1, int64_t D2,
    double eps)
{
    constexpr int64_t TILE_SIZE = 1;

    if (B < 0 || F < 0 || D1 < 0 || D2 < 0) {
        return 1;
    }
    if (D2 > 4096) {
        return 2;
    }
    if (sketch::too_large({B, F, D1, D2})) {
        return 3;
    }
    {
        const int64_t programs = B * sketch::ceil_div(D1, TILE_SIZE);
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        sketch::layout shared{256};
        const int64_t square_sum_place = shared.add(sizeof(float), {TILE_SIZE, D2});
        const int64_t rms_row_sqrt_place = shared.add(sizeof(float), {TILE_SIZE, D2});
        sketch::allow_shared(rms_norm_1, 82176);
        if (blocks > 0) {
            rms_norm_1<<<static_cast<unsigned>(blocks), 128,
                static_cast<unsigned>(shared.bytes())>>>(X, Y, B, F, D1, D2, eps, programs,
                square_sum_place, rms_row_sqrt_place);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
