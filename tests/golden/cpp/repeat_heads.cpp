// repeat_heads: a C++ kernel for cpu, made from a sketch.

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
//   1  B >= 0 and H >= 0 and S >= 0 and D >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t repeat_heads(
    const float *__restrict X, float *__restrict Y, int64_t B, int64_t H, int64_t S, int64_t D)
{
    constexpr int64_t COPIES = 4;
    constexpr int64_t T = 1024;

    if (B < 0 || H < 0 || S < 0 || D < 0) {
        return 1;
    }
    if (sketch::too_large({B, H, S, D})) {
        return 2;
    }
    const bool Y_streams = sketch::streams(sizeof(float), {B, H * COPIES, S, D});
    const int threads = sketch::threads_for(S * D * B * H * (COPIES * 5 + 4));
    #pragma omp parallel num_threads(threads)
    {
        #pragma omp for collapse(2) schedule(static)
        for (int64_t h = 0; h < B * H; ++h) {
            for (int64_t j = 0; j < sketch::ceil_div(S * D, T); ++j) {
                for (int64_t row = 0; row < COPIES; ++row) {
                    // load(XV[h, j*T:(j+1)*T] -> x)
                    // broadcast(x, copies)
                    // store(copies -> YV[h, 0:COPIES, j*T:(j+1)*T])
                    const float *const X_row = X + (h * (S * D) + j * T);
                    for (int64_t block = 0; block < std::min<int64_t>(T, S * D - j * T); block +=
                        1024) {
                        const int64_t block_end = std::min<int64_t>(std::min<int64_t>(T, S * D - j *
                            T), block + 1024);
                        alignas(64) float Y_block[1024];
                        float *const Y_row = Y_streams ? Y_block : Y + ((h * COPIES + row) * (S * D)
                            + j * T + block);
                        #pragma omp simd
                        for (int64_t lane = block; lane < block_end; ++lane) {
                            const float x = X_row[lane];
                            const float copies = x;
                            Y_row[lane - block] = copies;
                        }
                        if (Y_streams) {
                            sketch::stream(Y + ((h * COPIES + row) * (S * D) + j * T + block),
                                Y_block, block_end - block);
                        }
                    }
                }
            }
        }
        sketch::end_streams();
    }
    return 0;
}
