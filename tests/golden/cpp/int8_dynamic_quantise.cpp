// int8_dynamic_quantise: a C++ kernel for cpu, made from a sketch.

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
// floor_div, ceil_div, round_nearest, to_integer, saturated, absolute, max, min, too_large,
// propagating_max.

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  M >= 0 and N >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t int8_dynamic_quantise(
    const float *__restrict X, int8_t *__restrict Q, float *__restrict SCALE, int64_t M, int64_t
    N)
{
    constexpr int64_t T = 2048;

    if (M < 0 || N < 0) {
        return 1;
    }
    if (sketch::too_large({M, N})) {
        return 2;
    }
    const bool Q_streams = sketch::streams(sizeof(int8_t), {M, N});
    const int threads = sketch::threads_for(M * (N * 13 + (sketch::ceil_div(N, T) + 5)));
    #pragma omp parallel num_threads(threads)
    {
        #pragma omp for schedule(static)
        for (int64_t i = 0; i < M; ++i) {
            // largest = alloc([1], init=1e-12)
            float largest = 1e-12f;
            // for j in range(ceil(N, T)):
            for (int64_t j = 0; j < sketch::ceil_div(N, T); ++j) {
                float block = -std::numeric_limits<float>::infinity();
                // load(X[i, j*T:(j+1)*T] -> x)
                // abs(x, x)
                // reduce_max(x, 0, block)
                const float *const X_row = X + (i * N + j * T);
                #pragma omp simd reduction(propagating_max : block)
                for (int64_t lane = 0; lane < std::min<int64_t>(T, N - j * T); ++lane) {
                    const float x = X_row[lane];
                    const float x_abs = sketch::absolute(x);
                    block = sketch::max(block, x_abs);
                }
                // max(largest, block, largest)
                largest = sketch::max(largest, block);
            }
            // div(largest, 127, scale)
            const float scale = largest / 127.0f;
            // store(scale -> SCALE[i])
            SCALE[i] = scale;
            // for j in range(ceil(N, T)):
            for (int64_t j_2 = 0; j_2 < sketch::ceil_div(N, T); ++j_2) {
                // load(X[i, j*T:(j+1)*T] -> x)
                // div(x, scale, x)
                // cast(x, q, round="nearest", sat=True)
                // store(q -> Q[i, j*T:(j+1)*T])
                const float *const X_row_2 = X + (i * N + j_2 * T);
                for (int64_t block_2 = 0; block_2 < std::min<int64_t>(T, N - j_2 * T); block_2 +=
                    1024) {
                    const int64_t block_2_end = std::min<int64_t>(std::min<int64_t>(T, N - j_2 * T),
                        block_2 + 1024);
                    alignas(64) int8_t Q_block[1024];
                    int8_t *const Q_row = Q_streams ? Q_block : Q + (i * N + j_2 * T + block_2);
                    #pragma omp simd
                    for (int64_t lane = block_2; lane < block_2_end; ++lane) {
                        const float x_2 = X_row_2[lane];
                        const float x_2_div = x_2 / scale;
                        const int8_t q = sketch::saturated<int8_t>(sketch::round_nearest(x_2_div));
                        Q_row[lane - block_2] = q;
                    }
                    if (Q_streams) {
                        sketch::stream(Q + (i * N + j_2 * T + block_2), Q_block, block_2_end -
                            block_2);
                    }
                }
            }
        }
        sketch::end_streams();
    }
    return 0;
}
