// layer_norm: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o layer_norm.so layer_norm.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: max, sqrt, rsqrt, too_large, max_of_floats, plus, lanes, enough, aligned, at_once,
// load_lanes, load_all_lanes, store_lanes, store_all_lanes, over_lanes, combined_in_warp,
// combined, layout, allow_shared.

extern "C" __global__ void layer_norm_1(
    const float *__restrict X, const float *__restrict WEIGHT, const float *__restrict BIAS,
    float *__restrict Y, int64_t M, int64_t N, double eps, int64_t programs, int64_t x_sub_place)
{
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t i = program;
        float *const x_sub = reinterpret_cast<float *>(block_memory + x_sub_place);
        float variance = 0.0f;
        float mean = 0.0f;
        // load(X[i, 0:N] -> x)
        // reduce_sum(x, 0, mean)
        const float *const X_row = X + i * N;
        float mean_of_thread = sketch::plus<float>::start;
        sketch::over_lanes<4, 4>(thread * 4, threads * 4, N, sketch::aligned<4>(X_row, x_sub),
            [&](int64_t first, auto left) {
            sketch::lanes<float, 4> x_sub_lanes;
            const auto X_row_lanes = sketch::load_lanes<4>(X_row + first, left);
            #pragma unroll
            for (int part = 0; part < 4; ++part) {
                const float x = X_row_lanes[part];
                mean_of_thread = sketch::plus<float>::combine(mean_of_thread, part < left ? x :
                    sketch::plus<float>::start);
                x_sub_lanes[part] = x;
            }
            sketch::store_lanes(x_sub + first, left, x_sub_lanes);
        });
        mean = sketch::plus<float>::combine(mean,
            sketch::combined<sketch::plus<float>>(mean_of_thread, block_memory));
        // div(mean, N, mean)
        const float mean_div = mean / static_cast<float>(N);
        // load(X[i, 0:N] -> x)
        // sub(x, mean, x)
        // mul(x, x, square)
        // reduce_sum(square, 0, variance)
        float variance_of_thread = sketch::plus<float>::start;
        sketch::over_lanes<4, 4>(thread * 4, threads * 4, N, sketch::aligned<4>(x_sub), [&](int64_t
            first, auto left) {
            auto x_sub_lanes = sketch::load_lanes<4>(x_sub + first, left);
            #pragma unroll
            for (int part = 0; part < 4; ++part) {
                const float x = x_sub_lanes[part];
                const float x_sub_value = x - mean_div;
                x_sub_lanes[part] = x_sub_value;
                const float square = x_sub_value * x_sub_value;
                variance_of_thread = sketch::plus<float>::combine(variance_of_thread, part < left ?
                    square : sketch::plus<float>::start);
            }
            sketch::store_lanes(x_sub + first, left, x_sub_lanes);
        });
        variance = sketch::plus<float>::combine(variance,
            sketch::combined<sketch::plus<float>>(variance_of_thread, block_memory));
        // div(variance, N, variance)
        const float variance_div = variance / static_cast<float>(N);
        // add(variance, eps, variance)
        const float variance_add = variance_div + static_cast<float>(eps);
        // rsqrt(variance, variance)
        const float variance_rsqrt = sketch::rsqrt(variance_add);
        // mul(x, variance, x)
        // load(WEIGHT[0:N] -> weight)
        // load(BIAS[0:N] -> bias)
        // fma(x, weight, bias, x)
        // store(x -> Y[i, 0:N])
        float *const Y_row = Y + i * N;
        sketch::over_lanes<4, 4>(thread * 4, threads * 4, N, sketch::aligned<4>(x_sub, WEIGHT, BIAS,
            Y_row), [&](int64_t first, auto left) {
            sketch::lanes<float, 4> Y_row_lanes;
            const auto x_sub_lanes = sketch::load_lanes<4>(x_sub + first, left);
            const auto WEIGHT_lanes = sketch::load_lanes<4>(WEIGHT + first, left);
            const auto BIAS_lanes = sketch::load_lanes<4>(BIAS + first, left);
            #pragma unroll
            for (int part = 0; part < 4; ++part) {
                const float x_sub_value = x_sub_lanes[part];
                const float x_mul = x_sub_value * variance_rsqrt;
                const float weight = WEIGHT_lanes[part];
                const float bias = BIAS_lanes[part];
                const float x_fma = x_mul * weight + bias;
                Y_row_lanes[part] = x_fma;
            }
            sketch::store_lanes(Y_row + first, left, Y_row_lanes);
        });
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  M >= 0 and N >= 0
//   2  N <= 8192
//   3  fewer than 2**48 elements in each tensor
extern "C" int64_t layer_norm(
    const float *__restrict X, const float *__restrict WEIGHT, const float *__restrict BIAS, float
    *__restrict Y, int64_t M, int64_t N, double eps)
{
    if (M < 0 || N < 0) {
        return 1;
    }
    if (N > 8192) {
        return 2;
    }
    if (sketch::too_large({M, N})) {
        return 3;
    }
    {
        const int64_t programs = M;
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        sketch::layout shared{256};
        const int64_t x_sub_place = shared.add(sizeof(float), {N});
        sketch::allow_shared(layer_norm_1, 82176);
        if (blocks > 0) {
            layer_norm_1<<<static_cast<unsigned>(blocks), 128,
                static_cast<unsigned>(shared.bytes())>>>(X, WEIGHT, BIAS, Y, M, N, eps, programs,
                x_sub_place);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
