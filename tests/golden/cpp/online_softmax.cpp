// online_softmax: a C++ kernel for cpu, made from a sketch.

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
// floor_div, ceil_div, bits_of, float_of, max, exp, too_large, propagating_max.

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  M >= 0 and N >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t online_softmax(
    const float *__restrict X, float *__restrict Y, int64_t M, int64_t N)
{
    constexpr int64_t TILE = 4096;

    if (M < 0 || N < 0) {
        return 1;
    }
    if (sketch::too_large({M, N})) {
        return 2;
    }
    const bool Y_streams = sketch::streams(sizeof(float), {M, N});
    const int threads = sketch::threads_for(M * (N * 19 + sketch::ceil_div(N, TILE) * 5));
    #pragma omp parallel num_threads(threads)
    {
        #pragma omp for schedule(static)
        for (int64_t i = 0; i < M; ++i) {
            // running_sum = alloc([1], init=0.0)
            float running_sum = 0.0f;
            // running_max = alloc([1], init=-inf)
            float running_max = -std::numeric_limits<float>::infinity();
            // for j in range(ceil(N, TILE)):
            for (int64_t j = 0; j < sketch::ceil_div(N, TILE); ++j) {
                float block_sum = 0.0f;
                float block_max = -std::numeric_limits<float>::infinity();
                // load(X[i, j*TILE:(j+1)*TILE] -> x)
                // reduce_max(x, 0, block_max)
                const float *const X_row = X + (i * N + j * TILE);
                #pragma omp simd reduction(propagating_max : block_max)
                for (int64_t lane = 0; lane < std::min<int64_t>(TILE, N - j * TILE); ++lane) {
                    const float x = X_row[lane];
                    block_max = sketch::max(block_max, x);
                }
                // max(running_max, block_max, new_max)
                const float new_max = sketch::max(running_max, block_max);
                // sub(running_max, new_max, correction)
                const float correction = running_max - new_max;
                // exp(correction, correction)
                const float correction_exp = sketch::exp(correction);
                // load(X[i, j*TILE:(j+1)*TILE] -> x)
                // sub(x, new_max, x)
                // exp(x, x)
                // reduce_sum(x, 0, block_sum)
                const float *const X_row_2 = X + (i * N + j * TILE);
                #pragma omp simd reduction(+ : block_sum)
                for (int64_t lane = 0; lane < std::min<int64_t>(TILE, N - j * TILE); ++lane) {
                    const float x = X_row_2[lane];
                    const float x_sub = x - new_max;
                    const float x_exp = sketch::exp(x_sub);
                    block_sum += x_exp;
                }
                // fma(running_sum, correction, block_sum, running_sum)
                running_sum = running_sum * correction_exp + block_sum;
                // copy(new_max, running_max)
                running_max = new_max;
            }
            // for j in range(ceil(N, TILE)):
            for (int64_t j_2 = 0; j_2 < sketch::ceil_div(N, TILE); ++j_2) {
                // load(X[i, j*TILE:(j+1)*TILE] -> x)
                // sub(x, running_max, x)
                // exp(x, x)
                // div(x, running_sum, x)
                // store(x -> Y[i, j*TILE:(j+1)*TILE])
                const float *const X_row_3 = X + (i * N + j_2 * TILE);
                for (int64_t block = 0; block < std::min<int64_t>(TILE, N - j_2 * TILE); block +=
                    1024) {
                    const int64_t block_end = std::min<int64_t>(std::min<int64_t>(TILE, N - j_2 *
                        TILE), block + 1024);
                    alignas(64) float Y_block[1024];
                    float *const Y_row = Y_streams ? Y_block : Y + (i * N + j_2 * TILE + block);
                    #pragma omp simd
                    for (int64_t lane = block; lane < block_end; ++lane) {
                        const float x_2 = X_row_3[lane];
                        const float x_2_sub = x_2 - running_max;
                        const float x_2_exp = sketch::exp(x_2_sub);
                        const float x_2_div = x_2_exp / running_sum;
                        Y_row[lane - block] = x_2_div;
                    }
                    if (Y_streams) {
                        sketch::stream(Y + (i * N + j_2 * TILE + block), Y_block, block_end -
                            block);
                    }
                }
            }
        }
        sketch::end_streams();
    }
    return 0;
}
