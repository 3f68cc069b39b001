// normalise_rows: a C++ kernel for cpu, made from a sketch.

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
// bits_of, float_of, max, rsqrt, exp, too_large, propagating_max.

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
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
    const bool RMS_streams = sketch::streams(sizeof(float), {M, N});
    {
        const int threads = sketch::threads_for(M * (N * 35 + 7));
        // Scratch memory of each thread.
        sketch::arena arena;
        const int64_t y_powers_exp_place = arena.add(sizeof(float), {N});
        const int64_t y_centred_place = arena.add(sizeof(float), {N});
        if (!arena.allocate(threads)) {
            return -1;
        }
        #pragma omp parallel num_threads(threads)
        {
            float *const __restrict y_powers_exp = arena.at<float>(y_powers_exp_place,
                omp_get_thread_num());
            float *const __restrict y_centred = arena.at<float>(y_centred_place,
                omp_get_thread_num());
            #pragma omp for schedule(static)
            for (int64_t i = 0; i < M; ++i) {
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
                #pragma omp simd reduction(propagating_max : y_largest)
                for (int64_t lane = 0; lane < N; ++lane) {
                    const float x = X_row[lane];
                    y_largest = sketch::max(y_largest, x);
                }
                // load(X[i, 0:N] -> x)
                // sub(x, y_largest, y_powers)
                // exp(y_powers, y_powers)
                // reduce_sum(y_powers, 0, y_total)
                const float *const X_row_2 = X + i * N;
                #pragma omp simd reduction(+ : y_total)
                for (int64_t lane = 0; lane < N; ++lane) {
                    const float x = X_row_2[lane];
                    const float y_powers = x - y_largest;
                    const float y_powers_exp_value = sketch::exp(y_powers);
                    y_powers_exp[lane] = y_powers_exp_value;
                    y_total += y_powers_exp_value;
                }
                // div(y_powers, y_total, y)
                // store(y -> SOFTMAX[i, 0:N])
                // load(X[i, 0:N] -> x)
                // eq(x, x, y_valid)
                // where(y_valid, 1.0, 0.0, y_ones)
                // reduce_sum(y_ones, 0, y_count)
                // reduce_sum(x, 0, y_mean)
                float *const SOFTMAX_row = SOFTMAX + i * N;
                const float *const X_row_3 = X + i * N;
                #pragma omp simd reduction(+ : y_count, y_mean)
                for (int64_t lane = 0; lane < N; ++lane) {
                    const float y_powers_exp_value = y_powers_exp[lane];
                    const float y = y_powers_exp_value / y_total;
                    SOFTMAX_row[lane] = y;
                    const float x = X_row_3[lane];
                    const bool y_valid = x == x;
                    const float y_ones = y_valid ? 1.0f : 0.0f;
                    y_count += y_ones;
                    y_mean += x;
                }
                // div(y_mean, y_count, y_mean)
                const float y_mean_div = y_mean / y_count;
                // load(X[i, 0:N] -> x)
                // sub(x, y_mean, y_centred)
                // mul(y_centred, y_centred, y_squares)
                // reduce_sum(y_squares, 0, y_scale)
                const float *const X_row_4 = X + i * N;
                #pragma omp simd reduction(+ : y_scale)
                for (int64_t lane = 0; lane < N; ++lane) {
                    const float x = X_row_4[lane];
                    const float y_centred_value = x - y_mean_div;
                    y_centred[lane] = y_centred_value;
                    const float y_squares = y_centred_value * y_centred_value;
                    y_scale += y_squares;
                }
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
                #pragma omp simd reduction(+ : y_count_2, y_scale_2)
                for (int64_t lane = 0; lane < N; ++lane) {
                    const float y_centred_value = y_centred[lane];
                    const float y_mul = y_centred_value * y_scale_rsqrt;
                    LAYER_row[lane] = y_mul;
                    const float x = X_row_5[lane];
                    const bool y_valid_2 = x == x;
                    const float y_ones_2 = y_valid_2 ? 1.0f : 0.0f;
                    y_count_2 += y_ones_2;
                    const float y_squares_2 = x * x;
                    y_scale_2 += y_squares_2;
                }
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
                for (int64_t block = 0; block < N; block += 1024) {
                    const int64_t block_end = std::min<int64_t>(N, block + 1024);
                    alignas(64) float RMS_block[1024];
                    float *const RMS_row = RMS_streams ? RMS_block : RMS + (i * N + block);
                    #pragma omp simd
                    for (int64_t lane = block; lane < block_end; ++lane) {
                        const float x = X_row_6[lane];
                        const float y_mul_2 = x * y_scale_2_rsqrt;
                        RMS_row[lane - block] = y_mul_2;
                    }
                    if (RMS_streams) {
                        sketch::stream(RMS + (i * N + block), RMS_block, block_end - block);
                    }
                }
            }
            sketch::end_streams();
        }
    }
    return 0;
}
