// downsample: a C++ kernel for cpu, made from a sketch.

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
//   1  M >= 0 and N >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t downsample(const float *__restrict X, float *__restrict Y, int64_t M, int64_t N)
{
    constexpr int64_t FACTOR = 3;
    constexpr int64_t T = 512;

    if (M < 0 || N < 0) {
        return 1;
    }
    [[maybe_unused]] const int64_t K = sketch::ceil_div(N, FACTOR);
    if (sketch::too_large({M, N}) || sketch::too_large({M, K})) {
        return 2;
    }
    const bool Y_streams = sketch::streams(sizeof(float), {M, K});
    const int threads = sketch::threads_for(K * M * 8);
    #pragma omp parallel num_threads(threads)
    {
        #pragma omp for collapse(2) schedule(static)
        for (int64_t i = 0; i < M; ++i) {
            for (int64_t j = 0; j < sketch::ceil_div(K, T); ++j) {
                // load(X[i, j*T*FACTOR:(j+1)*T*FACTOR:FACTOR] -> x)
                // store(x -> Y[i, j*T:(j+1)*T])
                for (int64_t block = 0; block < std::min<int64_t>(T, sketch::floor_div(N - 1,
                    FACTOR) - T * j + 1); block += 1024) {
                    const int64_t block_end = std::min<int64_t>(std::min<int64_t>(T,
                        sketch::floor_div(N - 1, FACTOR) - T * j + 1), block + 1024);
                    alignas(64) float Y_block[1024];
                    float *const Y_row = Y_streams ? Y_block : Y + (i * K + j * T + block);
                    #pragma omp simd
                    for (int64_t lane = block; lane < block_end; ++lane) {
                        const float x = X[i * N + (j * T * FACTOR + lane * FACTOR)];
                        Y_row[lane - block] = x;
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
