// group_norm: a C++ kernel for cpu, made from a sketch.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <new>
#include <type_traits>
#include <utility>
#include <omp.h>
#if defined(__AVX__)
#include <immintrin.h>
#endif

// The library: least_shared_work, threads_for, cache_bytes, streams, stream, end_streams,
// floor_div, ceil_div, max, rsqrt, natural, too_large.

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
    constexpr int64_t T = 1024;

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
    const bool Y_streams = sketch::streams(sizeof(float), {N, C, H, W});
    const int threads = sketch::threads_for(N * groups * (CG * (H * W * 11 + 8) + (CG * H * W * 12 +
        (sketch::ceil_div(CG * H * W, T) * 2 + 4))));
    #pragma omp parallel num_threads(threads)
    {
        #pragma omp for collapse(2) schedule(static)
        for (int64_t n = 0; n < N; ++n) {
            for (int64_t g = 0; g < groups; ++g) {
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
                    #pragma omp simd reduction(+ : sum_)
                    for (int64_t lane = 0; lane < std::min<int64_t>(T, CG * H * W - j * T);
                        ++lane) {
                        const float x = X_row[lane];
                        sum_ += x;
                    }
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
                    #pragma omp simd reduction(+ : sum__2)
                    for (int64_t lane = 0; lane < std::min<int64_t>(T, CG * H * W - j_2 * T);
                        ++lane) {
                        const float x_2 = X_row_2[lane];
                        const float x_2_sub = x_2 - mean;
                        const float x_2_mul = x_2_sub * x_2_sub;
                        sum__2 += x_2_mul;
                    }
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
                        const float *const X_row_3 = X + (((n * groups + g) * CG + c) * (H * W) +
                            j_3 * T);
                        for (int64_t block = 0; block < std::min<int64_t>(T, H * W - j_3 * T); block
                            += 1024) {
                            const int64_t block_end = std::min<int64_t>(std::min<int64_t>(T, H * W -
                                j_3 * T), block + 1024);
                            alignas(64) float Y_block[1024];
                            float *const Y_row = Y_streams ? Y_block : Y + (((n * groups + g) * CG +
                                c) * (H * W) + j_3 * T + block);
                            #pragma omp simd
                            for (int64_t lane = block; lane < block_end; ++lane) {
                                const float x_3 = X_row_3[lane];
                                const float x_3_sub = x_3 - mean;
                                const float x_3_mul = x_3_sub * variance;
                                const float x_3_fma = x_3_mul * weight + bias;
                                Y_row[lane - block] = x_3_fma;
                            }
                            if (Y_streams) {
                                sketch::stream(Y + (((n * groups + g) * CG + c) * (H * W) + j_3 * T
                                    + block), Y_block, block_end - block);
                            }
                        }
                    }
                }
            }
        }
        sketch::end_streams();
    }
    return 0;
}
