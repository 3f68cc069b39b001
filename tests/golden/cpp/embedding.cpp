// embedding: a C++ kernel for cpu, made from a sketch.

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
//   1  B >= 0 and L >= 0 and V >= 0 and D >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t embedding(
    const int64_t *__restrict TOKENS, const float *__restrict WEIGHT, float *__restrict Y, int64_t
    B, int64_t L, int64_t V, int64_t D)
{
    constexpr int64_t TM = 16;
    constexpr int64_t TD = 256;

    if (B < 0 || L < 0 || V < 0 || D < 0) {
        return 1;
    }
    if (sketch::too_large({V, D}) || sketch::too_large({B, L, D})) {
        return 2;
    }
    const bool Y_streams = sketch::streams(sizeof(float), {B, L, D});
    const int threads = sketch::threads_for(B * L * (sketch::ceil_div(D, TD) * 8 + D * 8));
    #pragma omp parallel num_threads(threads)
    {
        #pragma omp for collapse(2) schedule(static)
        for (int64_t i = 0; i < sketch::ceil_div(B * L, TM); ++i) {
            for (int64_t j = 0; j < sketch::ceil_div(D, TD); ++j) {
                for (int64_t row = 0; row < std::min<int64_t>(TM, B * L - i * TM); ++row) {
                    // load(TOKEN[i*TM:(i+1)*TM] -> token)
                    // load(WEIGHT[token, j*TD:(j+1)*TD] -> y)
                    // store(y -> YF[i*TM:(i+1)*TM, j*TD:(j+1)*TD])
                    const int64_t token = TOKENS[i * TM + row];
                    const float *const WEIGHT_row = WEIGHT + (token * D + j * TD);
                    for (int64_t block = 0; block < std::min<int64_t>(TD, D - j * TD); block +=
                        1024) {
                        const int64_t block_end = std::min<int64_t>(std::min<int64_t>(TD, D - j *
                            TD), block + 1024);
                        alignas(64) float Y_block[1024];
                        float *const Y_row = Y_streams ? Y_block : Y + ((i * TM + row) * D + j * TD
                            + block);
                        #pragma omp simd
                        for (int64_t lane = block; lane < block_end; ++lane) {
                            const float y = (0 <= token && token < V) ? WEIGHT_row[lane] : 0.0f;
                            Y_row[lane - block] = y;
                        }
                        if (Y_streams) {
                            sketch::stream(Y + ((i * TM + row) * D + j * TD + block), Y_block,
                                block_end - block);
                        }
                    }
                }
            }
        }
        sketch::end_streams();
    }
    return 0;
}
