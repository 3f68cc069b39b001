// cumprod: a C++ kernel for cpu, made from a sketch.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <omp.h>
#if defined(__AVX__)
#include <immintrin.h>
#endif

// The library: arena, cache_bytes, streams, stream, end_streams, max, min, tile, lane_at,
// for_lines, scan_columns, scan_lines, cumprod, too_large.

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  M >= 0 and N >= 0
//   2  N <= 4096
//   3  fewer than 2**48 elements in each tensor
extern "C" int64_t cumprod(const float *__restrict X, float *__restrict Y, int64_t M, int64_t N)
{
    if (M < 0 || N < 0) {
        return 1;
    }
    if (N > 4096) {
        return 2;
    }
    if (sketch::too_large({M, N})) {
        return 3;
    }
    const bool Y_streams = sketch::streams(sizeof(float), {M, N});
    {
        // Scratch memory of each thread.
        sketch::arena arena;
        const int64_t cumprod_0_place = arena.add(sizeof(float), {N});
        const int64_t cumprod_result_place = arena.add(sizeof(float), {N});
        if (!arena.allocate(omp_get_max_threads())) {
            return -1;
        }
        #pragma omp parallel
        {
            float *const __restrict cumprod_0 = arena.at<float>(cumprod_0_place,
                omp_get_thread_num());
            float *const __restrict cumprod_result = arena.at<float>(cumprod_result_place,
                omp_get_thread_num());
            #pragma omp for schedule(static)
            for (int64_t i = 0; i < M; ++i) {
                // load(X[i, 0:N] -> x)
                const float *const X_row = X + i * N;
                #pragma omp simd
                for (int64_t lane = 0; lane < N; ++lane) {
                    const float x = X_row[lane];
                    cumprod_0[lane] = x;
                }
                // cumprod(x, 0, y)
                sketch::cumprod<0, false, false>(
                    sketch::tile<const float, 1>{cumprod_0, {0}, {N}, {1}},
                    sketch::tile<float, 1>{cumprod_result, {0}, {N}, {1}});
                // store(y -> Y[i, 0:N])
                for (int64_t block = 0; block < N; block += 1024) {
                    const int64_t block_end = std::min<int64_t>(N, block + 1024);
                    alignas(64) float Y_block[1024];
                    float *const Y_row = Y_streams ? Y_block : Y + (i * N + block);
                    #pragma omp simd
                    for (int64_t lane = block; lane < block_end; ++lane) {
                        const float cumprod_result_value = cumprod_result[lane];
                        const float y = cumprod_result_value;
                        Y_row[lane - block] = y;
                    }
                    if (Y_streams) {
                        sketch::stream(Y + (i * N + block), Y_block, block_end - block);
                    }
                }
            }
            sketch::end_streams();
        }
    }
    return 0;
}
