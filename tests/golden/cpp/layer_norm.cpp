// layer_norm: a C++ kernel for cpu, made from a sketch.

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

// The library: arena, least_shared_work, threads_for, cache_bytes, streams, stream, end_streams,
// max, rsqrt, too_large.

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
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
    const bool Y_streams = sketch::streams(sizeof(float), {M, N});
    {
        const int threads = sketch::threads_for(M * (N * 22 + 4));
        // Scratch memory of each thread.
        sketch::arena arena;
        const int64_t x_sub_place = arena.add(sizeof(float), {N});
        if (!arena.allocate(threads)) {
            return -1;
        }
        #pragma omp parallel num_threads(threads)
        {
            float *const __restrict x_sub = arena.at<float>(x_sub_place, omp_get_thread_num());
            #pragma omp for schedule(static)
            for (int64_t i = 0; i < M; ++i) {
                float variance = 0.0f;
                float mean = 0.0f;
                // load(X[i, 0:N] -> x)
                // reduce_sum(x, 0, mean)
                const float *const X_row = X + i * N;
                #pragma omp simd reduction(+ : mean)
                for (int64_t lane = 0; lane < N; ++lane) {
                    const float x = X_row[lane];
                    mean += x;
                }
                // div(mean, N, mean)
                const float mean_div = mean / static_cast<float>(N);
                // load(X[i, 0:N] -> x)
                // sub(x, mean, x)
                // mul(x, x, square)
                // reduce_sum(square, 0, variance)
                const float *const X_row_2 = X + i * N;
                #pragma omp simd reduction(+ : variance)
                for (int64_t lane = 0; lane < N; ++lane) {
                    const float x = X_row_2[lane];
                    const float x_sub_value = x - mean_div;
                    x_sub[lane] = x_sub_value;
                    const float square = x_sub_value * x_sub_value;
                    variance += square;
                }
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
                for (int64_t block = 0; block < N; block += 1024) {
                    const int64_t block_end = std::min<int64_t>(N, block + 1024);
                    alignas(64) float Y_block[1024];
                    float *const Y_row = Y_streams ? Y_block : Y + (i * N + block);
                    #pragma omp simd
                    for (int64_t lane = block; lane < block_end; ++lane) {
                        const float x_sub_value = x_sub[lane];
                        const float x_mul = x_sub_value * variance_rsqrt;
                        const float weight = WEIGHT[lane];
                        const float bias = BIAS[lane];
                        const float x_fma = x_mul * weight + bias;
                        Y_row[lane - block] = x_fma;
                    }
                    if (Y_streams) {
                        sketch::stream(Y + (i * N + block), Y_block, block_end - block);
                    }
                }
            }
            sketch::end_streams();
        }
    }
    return 0;
}
