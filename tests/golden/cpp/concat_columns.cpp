// concat_columns: a C++ kernel for cpu, made from a sketch.

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
// floor_div, ceil_div, max, too_large.

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  M >= 0 and N >= 0 and K >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t concat_columns(
    const float *__restrict A, const float *__restrict B, float *__restrict Y, int64_t M, int64_t
    N, int64_t K)
{
    constexpr int64_t T = 1024;

    if (M < 0 || N < 0 || K < 0) {
        return 1;
    }
    if (sketch::too_large({M, N}) || sketch::too_large({M, K})) {
        return 2;
    }
    const bool Y_streams = sketch::streams(sizeof(float), {M, N + K});
    const int threads = sketch::threads_for(M * (N * 8 + K * 8));
    #pragma omp parallel num_threads(threads)
    {
        #pragma omp for schedule(static)
        for (int64_t i = 0; i < M; ++i) {
            // for j in range(ceil(N, T)):
            for (int64_t j = 0; j < sketch::ceil_div(N, T); ++j) {
                // load(A[i, j*T:(j+1)*T] -> a)
                // store(a -> Y[i, j*T:min((j+1)*T, N)])
                const float *const A_row = A + (i * N + j * T);
                for (int64_t block = 0; block < std::min<int64_t>(T, N - j * T); block += 1024) {
                    const int64_t block_end = std::min<int64_t>(std::min<int64_t>(T, N - j * T),
                        block + 1024);
                    alignas(64) float Y_block[1024];
                    float *const Y_row = Y_streams ? Y_block : Y + (i * (N + K) + j * T + block);
                    #pragma omp simd
                    for (int64_t lane = block; lane < block_end; ++lane) {
                        const float a = A_row[lane];
                        Y_row[lane - block] = a;
                    }
                    if (Y_streams) {
                        sketch::stream(Y + (i * (N + K) + j * T + block), Y_block, block_end -
                            block);
                    }
                }
            }
            // for j in range(ceil(K, T)):
            for (int64_t j_2 = 0; j_2 < sketch::ceil_div(K, T); ++j_2) {
                // load(B[i, j*T:(j+1)*T] -> b)
                // store(b -> Y[i, N+j*T:N+(j+1)*T])
                const float *const B_row = B + (i * K + j_2 * T);
                for (int64_t block_2 = 0; block_2 < std::min<int64_t>(T, K - j_2 * T); block_2 +=
                    1024) {
                    const int64_t block_2_end = std::min<int64_t>(std::min<int64_t>(T, K - j_2 * T),
                        block_2 + 1024);
                    alignas(64) float Y_block_2[1024];
                    float *const Y_row_2 = Y_streams ? Y_block_2 : Y + (i * (N + K) + N + j_2 * T +
                        block_2);
                    #pragma omp simd
                    for (int64_t lane = block_2; lane < block_2_end; ++lane) {
                        const float b = B_row[lane];
                        Y_row_2[lane - block_2] = b;
                    }
                    if (Y_streams) {
                        sketch::stream(Y + (i * (N + K) + N + j_2 * T + block_2), Y_block_2,
                            block_2_end - block_2);
                    }
                }
            }
        }
        sketch::end_streams();
    }
    return 0;
}
