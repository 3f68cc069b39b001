// softmax: a C++ kernel for cpu, made from a sketch.

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
// bits_of, float_of, max, exp, too_large, propagating_max.

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  M >= 0 and N >= 0
//   2  N <= 8192
//   3  fewer than 2**48 elements in each tensor
extern "C" int64_t softmax(const float *__restrict X, float *__restrict Y, int64_t M, int64_t N)
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
        const int threads = sketch::threads_for(M * N * 13);
        // Scratch memory of each thread.
        sketch::arena arena;
        const int64_t x_exp_place = arena.add(sizeof(float), {N});
        if (!arena.allocate(threads)) {
            return -1;
        }
        #pragma omp parallel num_threads(threads)
        {
            float *const __restrict x_exp = arena.at<float>(x_exp_place, omp_get_thread_num());
            #pragma omp for schedule(static)
            for (int64_t i = 0; i < M; ++i) {
                float total = 0.0f;
                float largest = -std::numeric_limits<float>::infinity();
                // load(X[i, 0:N] -> x)
                // reduce_max(x, 0, largest)
                const float *const X_row = X + i * N;
                #pragma omp simd reduction(propagating_max : largest)
                for (int64_t lane = 0; lane < N; ++lane) {
                    const float x = X_row[lane];
                    largest = sketch::max(largest, x);
                }
                // load(X[i, 0:N] -> x)
                // sub(x, largest, x)
                // exp(x, x)
                // reduce_sum(x, 0, total)
                const float *const X_row_2 = X + i * N;
                #pragma omp simd reduction(+ : total)
                for (int64_t lane = 0; lane < N; ++lane) {
                    const float x = X_row_2[lane];
                    const float x_sub = x - largest;
                    const float x_exp_value = sketch::exp(x_sub);
                    x_exp[lane] = x_exp_value;
                    total += x_exp_value;
                }
                // div(x, total, x)
                // store(x -> Y[i, 0:N])
                for (int64_t block = 0; block < N; block += 1024) {
                    const int64_t block_end = std::min<int64_t>(N, block + 1024);
                    alignas(64) float Y_block[1024];
                    float *const Y_row = Y_streams ? Y_block : Y + (i * N + block);
                    #pragma omp simd
                    for (int64_t lane = block; lane < block_end; ++lane) {
                        const float x_exp_value = x_exp[lane];
                        const float x_div = x_exp_value / total;
                        Y_row[lane - block] = x_div;
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
