// gather: a C++ kernel for cpu, made from a sketch.

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
extern "C" int64_t gather(
    const float *__restrict X, const int64_t *__restrict INDEX, float *__restrict Y, int64_t M,
    int64_t N, int64_t K)
{
    constexpr int64_t T = 512;

    if (M < 0 || N < 0 || K < 0) {
        return 1;
    }
    if (sketch::too_large({M, N}) || sketch::too_large({M, K})) {
        return 2;
    }
    const bool Y_streams = sketch::streams(sizeof(float), {M, K});
    const int threads = sketch::threads_for(K * M * 16);
    #pragma omp parallel num_threads(threads)
    {
        #pragma omp for collapse(2) schedule(static)
        for (int64_t i = 0; i < M; ++i) {
            for (int64_t j = 0; j < sketch::ceil_div(K, T); ++j) {
                // load(INDEX[i, j*T:(j+1)*T] -> index)
                // load(X[i, index] -> y)
                // store(y -> Y[i, j*T:(j+1)*T])
                const int64_t *const INDEX_row = INDEX + (i * K + j * T);
                for (int64_t block = 0; block < std::min<int64_t>(T, K - j * T); block += 1024) {
                    const int64_t block_end = std::min<int64_t>(std::min<int64_t>(T, K - j * T),
                        block + 1024);
                    alignas(64) float Y_block[1024];
                    float *const Y_row = Y_streams ? Y_block : Y + (i * K + j * T + block);
                    #pragma omp simd
                    for (int64_t lane = block; lane < block_end; ++lane) {
                        const int64_t index = INDEX_row[lane];
                        const float y = (0 <= index && index < N) ? X[i * N + index] : 0.0f;
                        Y_row[lane - block] = y;
                    }
                    if (Y_streams) {
                        sketch::stream(Y + (i * K + j * T + block), Y_block, block_end - block);
                    }
                }
            }
        }
        sketch::end_streams();
    }
    return 0;
}
