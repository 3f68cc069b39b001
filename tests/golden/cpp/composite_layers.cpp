// composite_layers: a C++ kernel for cpu, made from a sketch.

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
// max, min, tile, lane_at, for_lines, scan_columns, scan_lines, cumprod, too_large.

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  L >= 1
//   2  P >= 0 and L >= 0
//   3  L <= 1024
//   4  fewer than 2**48 elements in each tensor
extern "C" int64_t composite_layers(
    const float *__restrict OPACITY, float *__restrict SHARE, int64_t P, int64_t L)
{
    if (P < 0 || L < 0) {
        return 2;
    }
    if (L > 1024) {
        return 3;
    }
    if (L < 1) {
        return 1;
    }
    if (sketch::too_large({P, L})) {
        return 4;
    }
    const bool SHARE_streams = sketch::streams(sizeof(float), {P, L});
    {
        const int threads = sketch::threads_for(P * (L * 15 + 8));
        // Scratch memory of each thread.
        sketch::arena arena;
        const int64_t cumprod_0_place = arena.add(sizeof(float), {L});
        const int64_t cumprod_result_place = arena.add(sizeof(float), {L});
        if (!arena.allocate(threads)) {
            return -1;
        }
        #pragma omp parallel num_threads(threads)
        {
            float *const __restrict cumprod_0 = arena.at<float>(cumprod_0_place,
                omp_get_thread_num());
            float *const __restrict cumprod_result = arena.at<float>(cumprod_result_place,
                omp_get_thread_num());
            #pragma omp for schedule(static)
            for (int64_t p = 0; p < P; ++p) {
                // load(OPACITY[p, 1:L] -> later)
                // sub(1, later, later)
                const float *const OPACITY_row = OPACITY + (p * L + 1);
                #pragma omp simd
                for (int64_t lane = 0; lane < std::min<int64_t>(L, L - 1); ++lane) {
                    const float later = OPACITY_row[lane];
                    const float later_sub = 1.0f - later;
                    const float cumprod_0_value = later_sub;
                    cumprod_0[lane] = cumprod_0_value;
                }
                // cumprod(later, 0, through, reverse=True)
                sketch::cumprod<0, true, false>(
                    sketch::tile<const float, 1>{cumprod_0, {0}, {std::min<int64_t>(L, L - 1)},
                        {1}},
                    sketch::tile<float, 1>{cumprod_result, {0}, {std::min<int64_t>(L, L - 1)},
                        {1}});
                // load(OPACITY[p, 0:L-1] -> opacity)
                // mul(opacity, through, through)
                // store(through -> SHARE[p, 0:L-1])
                const float *const OPACITY_row_2 = OPACITY + p * L;
                for (int64_t block = 0; block < std::min<int64_t>(L, L - 1); block += 1024) {
                    const int64_t block_end = std::min<int64_t>(std::min<int64_t>(L, L - 1), block +
                        1024);
                    alignas(64) float SHARE_block[1024];
                    float *const SHARE_row = SHARE_streams ? SHARE_block : SHARE + (p * L + block);
                    #pragma omp simd
                    for (int64_t lane = block; lane < block_end; ++lane) {
                        const float cumprod_result_value = cumprod_result[lane];
                        const float through = cumprod_result_value;
                        const float opacity = OPACITY_row_2[lane];
                        const float through_mul = opacity * through;
                        SHARE_row[lane - block] = through_mul;
                    }
                    if (SHARE_streams) {
                        sketch::stream(SHARE + (p * L + block), SHARE_block, block_end - block);
                    }
                }
                // load(OPACITY[p, L-1] -> last)
                // store(last -> SHARE[p, L-1])
                const float last = OPACITY[p * L + (L - 1)];
                SHARE[p * L + (L - 1)] = last;
            }
            sketch::end_streams();
        }
    }
    return 0;
}
