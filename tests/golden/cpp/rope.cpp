// rope: a C++ kernel for cpu, made from a sketch.

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
// max, too_large.

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  B >= 0 and S >= 0 and H >= 0 and HALF >= 0
//   2  HALF <= 256
//   3  fewer than 2**48 elements in each tensor
extern "C" int64_t rope(
    const float *__restrict X, const float *__restrict COS, const float *__restrict SIN, float
    *__restrict Y, int64_t B, int64_t S, int64_t H, int64_t HALF)
{
    if (B < 0 || S < 0 || H < 0 || HALF < 0) {
        return 1;
    }
    if (HALF > 256) {
        return 2;
    }
    if (sketch::too_large({B, S, H, HALF})) {
        return 3;
    }
    const bool Y_streams = sketch::streams(sizeof(float), {B, S, H, 2 * HALF});
    {
        const int threads = sketch::threads_for(B * S * (HALF * (H * 13 + 8) + H * 2 * HALF * 5));
        // Scratch memory of each thread.
        sketch::arena arena;
        const int64_t right_fma_place = arena.add(sizeof(float), {HALF});
        const int64_t y_place = arena.add(sizeof(float), {2 * HALF});
        if (!arena.allocate(threads)) {
            return -1;
        }
        #pragma omp parallel num_threads(threads)
        {
            float *const __restrict right_fma = arena.at<float>(right_fma_place,
                omp_get_thread_num());
            float *const __restrict y = arena.at<float>(y_place, omp_get_thread_num());
            #pragma omp for collapse(2) schedule(static)
            for (int64_t b = 0; b < B; ++b) {
                for (int64_t s = 0; s < S; ++s) {
                    // for h in range(H):
                    for (int64_t h = 0; h < H; ++h) {
                        // load(X[b, s, h, HALF:2*HALF] -> second)
                        // load(SIN[s, 0:HALF] -> sin)
                        // mul(second, sin, left)
                        // neg(left, left)
                        // load(X[b, s, h, 0:HALF] -> first)
                        // load(COS[s, 0:HALF] -> cos)
                        // fma(first, cos, left, left)
                        // mul(first, sin, right)
                        // fma(second, cos, right, right)
                        // concat(left, right, 0, y)
                        const float *const X_row = X + (((b * S + s) * H + h) * (2 * HALF) + HALF);
                        const float *const SIN_row = SIN + s * HALF;
                        const float *const X_row_2 = X + ((b * S + s) * H + h) * (2 * HALF);
                        const float *const COS_row = COS + s * HALF;
                        #pragma omp simd
                        for (int64_t lane = 0; lane < HALF; ++lane) {
                            const float second = X_row[lane];
                            const float sin = SIN_row[lane];
                            const float left = second * sin;
                            const float left_neg = -left;
                            const float first_ = X_row_2[lane];
                            const float cos = COS_row[lane];
                            const float left_fma = first_ * cos + left_neg;
                            const float right = first_ * sin;
                            const float right_fma_value = second * cos + right;
                            right_fma[lane] = right_fma_value;
                            const float y_value = left_fma;
                            y[lane] = y_value;
                        }
                        float *const y_row = y + HALF;
                        #pragma omp simd
                        for (int64_t lane = 0; lane < HALF; ++lane) {
                            const float right_fma_value = right_fma[lane];
                            y_row[lane] = right_fma_value;
                        }
                        // store(y -> Y[b, s, h, 0:2*HALF])
                        for (int64_t block = 0; block < 2 * HALF; block += 1024) {
                            const int64_t block_end = std::min<int64_t>(2 * HALF, block + 1024);
                            alignas(64) float Y_block[1024];
                            float *const Y_row = Y_streams ? Y_block : Y + (((b * S + s) * H + h) *
                                (2 * HALF) + block);
                            #pragma omp simd
                            for (int64_t lane = block; lane < block_end; ++lane) {
                                const float y_value = y[lane];
                                Y_row[lane - block] = y_value;
                            }
                            if (Y_streams) {
                                sketch::stream(Y + (((b * S + s) * H + h) * (2 * HALF) + block),
                                    Y_block, block_end - block);
                            }
                        }
                    }
                }
            }
            sketch::end_streams();
        }
    }
    return 0;
}
