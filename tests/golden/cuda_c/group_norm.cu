// group_norm: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o group_norm.so group_norm.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, max, sqrt, rsqrt, natural, too_large,
// max_of_floats, plus, lanes, enough, aligned, at_once, load_lanes, load_all_lanes, store_lanes,
// store_all_lanes, over_lanes, divisor, combined_in_warp, combined.

extern "C" __global__ void group_norm_1(
    const float *__restrict X, const float *__restrict WEIGHT, const float *__restrict BIAS,
    float *__restrict Y, int64_t N, int64_t H, int64_t W, int64_t groups, double eps, int64_t CG,
    int64_t programs)
{
    constexpr int64_t T = 1024;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t g = program % groups;
        const int64_t n = program / groups;
        // variance = alloc([1], init=0.0)
        float variance = 0.0f;
        // mean = alloc([1], init=0.0)
        float mean = 0.0f;
        // for j in range(ceil(CG*H*W, T)):
        for (int64_t j = 0; j < sketch::ceil_div(CG * H * W, T); ++j) {
            float sum_ = 0.0f;
            // load(XR[n, g, j*T:(j+1)*T] -> x)
            // reduce_sum(x, 0, sum)
            const float *const X_row = X + ((n * groups + g) * (CG * H * W) + j * T);
            float sum__of_thread = sketch::plus<float>::start;
            sketch::over_lanes<4, 2>(thread * 4, threads * 4, std::min<int64_t>(T, CG * H * W - j *
                T), sketch::aligned<4>(X_row), [&](int64_t first, auto left) {
                const auto X_row_lanes = sketch::load_lanes<4>(X_row + first, left);
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    const float x = X_row_lanes[part];
                    sum__of_thread = sketch::plus<float>::combine(sum__of_thread, part < left ? x :
                        sketch::plus<float>::start);
                }
            });
            sum_ = sketch::plus<float>::combine(sum_,
                sketch::combined<sketch::plus<float>>(sum__of_thread, block_memory));
            // add(mean, sum, mean)
            mean = mean + sum_;
        }
        // div(mean, CG*H*W, mean)
        mean = mean / static_cast<float>(CG * H * W);
        // for j in range(ceil(CG*H*W, T)):
        for (int64_t j_2 = 0; j_2 < sketch::ceil_div(CG * H * W, T); ++j_2) {
            float sum__2 = 0.0f;
            // load(XR[n, g, j*T:(j+1)*T] -> x)
            // sub(x, mean, x)
            // mul(x, x, x)
            // reduce_sum(x, 0, sum)
            const float *const X_row_2 = X + ((n * groups + g) * (CG * H * W) + j_2 * T);
            float sum__2_of_thread = sketch::plus<float>::start;
            sketch::over_lanes<4, 2>(thread * 4, threads * 4, std::min<int64_t>(T, CG * H * W - j_2
                * T), sketch::aligned<4>(X_row_2), [&](int64_t first, auto left) {
                const auto X_row_2_lanes = sketch::load_lanes<4>(X_row_2 + first, left);
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    const float x_2 = X_row_2_lanes[part];
                    const float x_2_sub = x_2 - mean;
                    const float x_2_mul = x_2_sub * x_2_sub;
                    sum__2_of_thread = sketch::plus<float>::combine(sum__2_of_thread, part < left ?
                        x_2_mul : sketch::plus<float>::start);
                }
            });
            sum__2 = sketch::plus<float>::combine(sum__2,
                sketch::combined<sketch::plus<float>>(sum__2_of_thread, block_memory));
            // add(variance, sum, variance)
            variance = variance + sum__2;
        }
        // div(variance, CG*H*W, variance)
        variance = variance / static_cast<float>(CG * H * W);
        // add(variance, eps, variance)
        variance = variance + static_cast<float>(eps);
        // rsqrt(variance, variance)
        variance = sketch::rsqrt(variance);
        // for c in range(CG):
        for (int64_t c = 0; c < CG; ++c) {
            // for j in range(ceil(H*W, T)):
            for (int64_t j_3 = 0; j_3 < sketch::ceil_div(H * W, T); ++j_3) {
                // load(XV[n, g, c, j*T:(j+1)*T] -> x)
                // sub(x, mean, x)
                // mul(x, variance, x)
                // load(WV[g, c] -> weight)
                // load(BV[g, c] -> bias)
                // fma(x, weight, bias, x)
                // store(x -> YV[n, g, c, j*T:(j+1)*T])
                const float weight = WEIGHT[g * CG + c];
                const float bias = BIAS[g * CG + c];
                __syncthreads();
                const float *const X_row_3 = X + (((n * groups + g) * CG + c) * (H * W) + j_3 * T);
                float *const Y_row = Y + (((n * groups + g) * CG + c) * (H * W) + j_3 * T);
                sketch::over_lanes<4, 2>(thread * 4, threads * 4, std::min<int64_t>(T, H * W - j_3 *
                    T), sketch::aligned<4>(X_row_3, Y_row), [&](int64_t first, auto left) {
                    sketch::lanes<float, 4> Y_row_lanes;
                    const auto X_row_3_lanes = sketch::load_lanes<4>(X_row_3 + first, left);
                    #pragma unroll
                    for (int part = 0; part < 4; ++part) {
                        const float x_3 = X_row_3_lanes[part];
                        const float x_3_sub = x_3 - mean;
                        const float x_3_mul = x_3_sub * variance;
                        const float x_3_fma = x_3_mul * weight + bias;
                        Y_row_lanes[part] = x_3_fma;
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
//    1  groups >= 1
//    3  CG*H*W >= 0
//    4  N*groups*(CG*H*W) == N*C*H*W
//    5  CG >= 0
//    6  groups*CG == C
//    7  N*groups*CG*(H*W) == N*C*H*W
//    8  groups >= 1 and C == CG*groups
//    9  N >= 0 and C >= 0 and H >= 0 and W >= 0
//   10  fewer than 2**48 elements in each tensor
//   11  integers that stay within 64 bits
extern "C" int64_t group_norm(
    const float *__restrict X, const float *__restrict WEIGHT, const float *__restrict BIAS, float
    *__restrict Y, int64_t N, int64_t C, int64_t H, int64_t W, int64_t groups, double eps)
{
    if (N < 0 || C < 0 || H < 0 || W < 0) {
        return 9;
    }
    if (groups < 1) {
        return 1;
    }
    [[maybe_unused]] const int64_t CG = sketch::floor_div(C, groups);
    if (CG * H * W < 0) {
        return 3;
    }
    if (N * groups * (CG * H * W) != N * C * H * W) {
        return 4;
    }
    if (CG < 0) {
        return 5;
    }
    if (groups * CG != C) {
        return 6;
    }
    if (N * groups * CG * (H * W) != N * C * H * W) {
        return 7;
    }
    if (groups < 1 || C != CG * groups) {
        return 8;
    }
    if (sketch::too_large({N, C, H, W})) {
        return 10;
    }
    if ((sketch::natural(CG) * H * N * W * groups + sketch::natural(2) * CG * H * W +
        sketch::natural(CG) * N * groups + sketch::natural(CG) * H + sketch::natural(CG) * groups +
        sketch::natural(N) * groups + groups).reaches(UINT64_C(9223090561878065152))) {
        return 11;
    }
    {
        const int64_t programs = N * groups;
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        if (blocks > 0) {
            group_norm_1<<<static_cast<unsigned>(blocks), 128, 256>>>(X, WEIGHT, BIAS, Y, N, H, W,
                groups, eps, CG, programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
