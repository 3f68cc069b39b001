// relu: a C++ kernel for cpu, made from a sketch.

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
// floor_div, ceil_div, max, relu, too_large.

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  M >= 0 and N >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t relu(const float *__restrict X, float *__restrict Y, int64_t M, int64_t N)
{
    constexpr int64_t TILE = 4096;

    if (M < 0 || N < 0) {
        return 1;
    }
    if (sketch::too_large({M, N})) {
        return 2;
    }
    const bool Y_streams = sketch::streams(sizeof(float), {M, N});
    const int threads = sketch::threads_for(M * N * 9);
    #pragma omp parallel num_threads(threads)
    {
        #pragma omp for schedule(static)
        for (int64_t i = 0; i < sketch::ceil_div(M * N, TILE); ++i) {
            // load(XF[i*TILE:(i+1)*TILE] -> x)
            // relu(x, y)
            // store(y -> YF[i*TILE:(i+1)*TILE])
            const float *const X_row = X + i * TILE;
            for (int64_t block = 0; block < std::min<int64_t>(TILE, M * N - i * TILE); block +=
                1024) {
                const int64_t block_end = std::min<int64_t>(std::min<int64_t>(TILE, M * N - i *
                    TILE), block + 1024);
                alignas(64) float Y_block[1024];
                float *const Y_row = Y_streams ? Y_block : Y + (i * TILE + block);
                #pragma omp simd
                for (int64_t lane = block; lane < block_end; ++lane) {
                    const float x = X_row[lane];
                    const float y = sketch::relu(x);
                    Y_row[lane - block] = y;
                }
                if (Y_streams) {
                    sketch::stream(Y + (i * TILE + block), Y_block, block_end - block);
                }
            }
        }
        sketch::end_streams();
    }
    return 0;
}
