// normalise_rows: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o normalise_rows.so normalise_rows.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: bits_of, float_of, max, sqrt, rsqrt, exp, too_large, max_of_floats, plus, largest,
// lanes, enough, aligned, at_once, load_lanes, load_all_lanes, store_lanes, store_all_lanes,
// over_lanes, divisor, combined_in_warp, combined, layout, allow_shared.

extern "C" __global__ void normalise_rows_1(
    const float *__restrict X, float *__restrict SOFTMAX, float *__restrict LAYER,
    float *__restrict RMS, int64_t M, int64_t N, int64_t programs, int64_t y_powers_exp_place,
    int64_t y_centred_place)
{
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t i = program;
        float *const y_powers_exp = reinterpret_cast<float *>(block_memory + y_powers_exp_place);
        float *const y_centred = reinterpret_cast<float *>(block_memory + y_centred_place);
        float y_scale_2 = 0.0f;
        float y_count_2 = 0.0f;
        float y_scale = 0.0f;
        float y_mean = 0.0f;
        float y_count = 0.0f;
        float y_total = 0.0f;
        float y_largest = -std::numeric_limits<float>::infinity();
        // load(X[i, 0:N] -> x)
        // reduce_max(x, 0, y_largest)
        const float *const X_row = X + i * N;
        float y_largest_of_thread = sketch::largest<float>::start;
        sketch::over_lanes<4, 4>(thread * 4, threads * 4, N, sketch::aligned<4>(X_row,
            y_powers_exp), [&](int64_t first, auto left) {
            sketch::lanes<float, 4> y_powers_exp_lanes;
            const auto X_row_lanes = sketch::load_lanes<4>(X_row + first, left);
            #pragma unroll
            for (int part = 0; part < 4; ++part) {
                const float x = X_row_lanes[part];
                y_largest_of_thread = sketch::largest<float>::combine(y_largest_of_thread, part <
                    left ? x : sketch::largest<float>::start);
                y_powers_exp_lanes[part] = x;
            }
            sketch::store_lanes(y_powers_exp + first, left, y_powers_exp_lanes);
        });
        y_largest = sketch::largest<float>::combine(y_largest,
            sketch::combined<sketch::largest<float>>(y_largest_of_thread, block_memory));
        // load(X[i, 0:N] -> x)
        // sub(x, y_largest, y_powers)
        // exp(y_powers, y_powers)
        // reduce_sum(y_powers, 0, y_total)
        float y_total_of_thread = sketch::plus<float>::start;
        sketch::over_lanes<4, 4>(thread * 4, threads * 4, N, sketch::aligned<4>(y_powers_exp),
            [&](int64_t first, auto left) {
            auto y_powers_exp_lanes = sketch::load_lanes<4>(y_powers_exp + first, left);
            #pragma unroll
            for (int part = 0; part < 4; ++part) {
                const float x = y_powers_exp_lanes[part];
                const float y_powers = x - y_largest;
                const float y_powers_exp_value = sketch::exp(y_powers);
                y_powers_exp_lanes[part] = y_powers_exp_value;
                y_total_of_thread = sketch::plus<float>::combine(y_total_of_thread, part < left ?
                    y_powers_exp_value : sketch::plus<float>::start);
            }
            sketch::store_lanes(y_powers_exp + first, left, y_powers_exp_lanes);
        });
        y_total = sketch::plus<float>::combine(y_total,
            sketch::combined<sketch::plus<float>>(y_total_of_thread, block_memory));
        // div(y_powers, y_total, y)
        // store(y -> SOFTMAX[i, 0:N])
        // load(X[i, 0:N] -> x)
        // eq(x, x, y_valid)
        // where(y_valid, 1.0, 0.0, y_ones)
        // reduce_sum(y_ones, 0, y_count)
        // reduce_sum(x, 0, y_mean)
        float *const SOFTMAX_row = SOFTMAX + i * N;
        const float *const X_row_3 = X + i * N;
        float y_count_of_thread = sketch::plus<float>::start;
        float y_mean_of_thread = sketch::plus<float>::start;
        sketch::over_lanes<4, 4>(thread * 4, threads * 4, N, sketch::aligned<4>(y_powers_exp,
            X_row_3, SOFTMAX_row, y_centred), [&, divisor = sketch::divisor(y_total)](int64_t first,
            auto left) {
            sketch::lanes<float, 4> SOFTMAX_row_lanes;
            sketch::lanes<float, 4> y_centred_lanes;
            const auto y_powers_exp_lanes = sketch::load_lanes<4>(y_powers_exp + first, left);
            const auto X_row_3_lanes = sketch::load_lanes<4>(X_row_3 + first, left);
            #pragma unroll
            for (int part = 0; part < 4; ++part) {
                const float y_powers_exp_value = y_powers_exp_lanes[part];
                const float y = y_powers_exp_value / divisor;
                SOFTMAX_row_lanes[part] = y;
                const float x = X_row_3_lanes[part];
                const bool y_valid = x == x;
                const float y_ones = y_valid ? 1.0f : 0.0f;
                y_count_of_thread = sketch::plus<float>::combine(y_count_of_thread, part < left ?
                    y_ones : sketch::plus<float>::start);
                y_mean_of_thread = sketch::plus<float>::combine(y_mean_of_thread, part < left ? x :
                    sketch::plus<float>::start);
                y_centred_lanes[part] = x;
            }
            sketch::store_lanes(SOFTMAX_row + first, left, SOFTMAX_row_lanes);
            sketch::store_lanes(y_centred + first, left, y_centred_lanes);
        });
        y_count = sketch::plus<float>::combine(y_count,
            sketch::combined<sketch::plus<float>>(y_count_of_thread, block_memory));
        y_mean = sketch::plus<float>::combine(y_mean,
            sketch::combined<sketch::plus<float>>(y_mean_of_thread, block_memory));
        // div(y_mean, y_count, y_mean)
        const float y_mean_div = y_mean / y_count;
        // load(X[i, 0:N] -> x)
        // sub(x, y_mean, y_centred)
        // mul(y_centred, y_centred, y_squares)
        // reduce_sum(y_squares, 0, y_scale)
        float y_scale_of_thread = sketch::plus<float>::start;
        sketch::over_lanes<4, 4>(thread * 4, threads * 4, N, sketch::aligned<4>(y_centred),
            [&](int64_t first, auto left) {
            auto y_centred_lanes = sketch::load_lanes<4>(y_centred + first, left);
            #pragma unroll
            for (int part = 0; part < 4; ++part) {
                const float x = y_centred_lanes[part];
                const float y_centred_value = x - y_mean_div;
                y_centred_lanes[part] = y_centred_value;
                const float y_squares = y_centred_value * y_centred_value;
                y_scale_of_thread = sketch::plus<float>::combine(y_scale_of_thread, part < left ?
                    y_squares : sketch::plus<float>::start);
            }
            sketch::store_lanes(y_centred + first, left, y_centred_lanes);
        });
        y_scale = sketch::plus<float>::combine(y_scale,
            sketch::combined<sketch::plus<float>>(y_scale_of_thread, block_memory));
        // div(y_scale, y_count, y_scale)
        const float y_scale_div = y_scale / y_count;
        // add(y_scale, 1e-05, y_scale)
        const float y_scale_add = y_scale_div + 1e-05f;
        // rsqrt(y_scale, y_scale)
        const float y_scale_rsqrt = sketch::rsqrt(y_scale_add);
        // mul(y_centred, y_scale, y)
        // store(y -> LAYER[i, 0:N])
        // load(X[i, 0:N] -> x)
        // eq(x, x, y_valid_2)
        // where(y_valid_2, 1.0, 0.0, y_ones_2)
        // reduce_sum(y_ones_2, 0, y_count_2)
        // mul(x, x, y_squares_2)
        // reduce_sum(y_squares_2, 0, y_scale_2)
        float *const LAYER_row = LAYER + i * N;
        const float *const X_row_5 = X + i * N;
        float y_count_2_of_thread = sketch::plus<float>::start;
        float y_scale_2_of_thread = sketch::plus<float>::start;
        sketch::over_lanes<4, 2>(thread * 4, threads * 4, N, sketch::aligned<4>(y_centred, X_row_5,
            LAYER_row), [&](int64_t first, auto left) {
            sketch::lanes<float, 4> LAYER_row_lanes;
            const auto y_centred_lanes = sketch::load_lanes<4>(y_centred + first, left);
            const auto X_row_5_lanes = sketch::load_lanes<4>(X_row_5 + first, left);
            #pragma unroll
            for (int part = 0; part < 4; ++part) {
                const float y_centred_value = y_centred_lanes[part];
                const float y_mul = y_centred_value * y_scale_rsqrt;
                LAYER_row_lanes[part] = y_mul;
                const float x = X_row_5_lanes[part];
                const bool y_valid_2 = x == x;
                const float y_ones_2 = y_valid_2 ? 1.0f : 0.0f;
                y_count_2_of_thread = sketch::plus<float>::combine(y_count_2_of_thread, part < left
                    ? y_ones_2 : sketch::plus<float>::start);
                const float y_squares_2 = x * x;
                y_scale_2_of_thread = sketch::plus<float>::combine(y_scale_2_of_thread, part < left
                    ? y_squares_2 : sketch::plus<float>::start);
            }
            sketch::store_lanes(LAYER_row + first, left, LAYER_row_lanes);
        });
        y_count_2 = sketch::plus<float>::combine(y_count_2,
            sketch::combined<sketch::plus<float>>(y_count_2_of_thread, block_memory));
        y_scale_2 = sketch::plus<float>::combine(y_scale_2,
            sketch::combined<sketch::plus<float>>(y_scale_2_of_thread, block_memory));
        // div(y_scale_2, y_count_2, y_scale_2)
        const float y_scale_2_div = y_scale_2 / y_count_2;
        // add(y_scale_2, 1e-05, y_scale_2)
        const float y_scale_2_add = y_scale_2_div + 1e-05f;
        // rsqrt(y_scale_2, y_scale_2)
        const float y_scale_2_rsqrt = sketch::rsqrt(y_scale_2_add);
        // load(X[i, 0:N] -> x)
        // mul(x, y_scale_2, y)
        // store(y -> RMS[i, 0:N])
        const float *const X_row_6 = X + i * N;
        float *const RMS_row = RMS + i * N;
        sketch::over_lanes<4, 4>(thread * 4, threads * 4, N, sketch::aligned<4>(X_row_6, RMS_row),
            [&](int64_t first, auto left) {
            sketch::lanes<float, 4> RMS_row_lanes;
            const auto X_row_6_lanes = sketch::load_lanes<4>(X_row_6 + first, left);
            #pragma unroll
            for (int part = 0; part < 4; ++part) {
                const float x = X_row_6_lanes[part];
                const float y_mul_2 = x * y_scale_2_rsqrt;
                RMS_row_lanes[part] = y_mul_2;
            }
            sketch::store_lanes(RMS_row + first, left, RMS_row_lanes);
        });
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  M >= 0 and N >= 0
//   2  N <= 4096
//   3  fewer than 2**48 elements in each tensor
extern "C" int64_t normalise_rows(
    const float *__restrict X, float *__restrict SOFTMAX, float *__restrict LAYER, float
    *__restrict RMS, int64_t M, int64_t N)
{
    if (M < 0 || N < 0) {
        return 1;
    }
    if (N > 4096) {
        return 2;
    }
    if (sketch::too_large({M, N})) {
        return 3;
    }
    {
        const int64_t programs = M;
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        sketch::layout shared{256};
        const int64_t y_powers_exp_place = shared.add(sizeof(float), {N});
        const int64_t y_centred_place = shared.add(sizeof(float), {N});
        sketch::allow_shared(normalise_rows_1, 82176);
        if (blocks > 0) {
            normalise_rows_1<<<static_cast<unsigned>(blocks), 128,
                static_cast<unsigned>(shared.bytes())>>>(X, SOFTMAX, LAYER, RMS, M, N, programs,
                y_powers_exp_place, y_centred_place);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
