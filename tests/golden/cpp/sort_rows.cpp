// sort_rows: a C++ kernel for cpu, made from a sketch.

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
// max, min, tile, lane_at, for_lines, no_number, stands_before, ordered_line, merge_lanes, sort,
// too_large.

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  M >= 0 and N >= 0
//   2  N <= 1024
//   3  fewer than 2**48 elements in each tensor
extern "C" int64_t sort_rows(
    const float *__restrict X, float *__restrict VALUES, int64_t *__restrict PLACES, int64_t M,
    int64_t N)
{
    if (M < 0 || N < 0) {
        return 1;
    }
    if (N > 1024) {
        return 2;
    }
    if (sketch::too_large({M, N})) {
        return 3;
    }
    const bool VALUES_streams = sketch::streams(sizeof(float), {M, N});
    const bool PLACES_streams = sketch::streams(sizeof(int64_t), {M, N});
    {
        const int threads = sketch::threads_for(M * N * 17);
        // Scratch memory of each thread.
        sketch::arena arena;
        const int64_t sort_0_place = arena.add(sizeof(float), {N});
        const int64_t sort_1_place = arena.add(sizeof(int64_t), {N});
        const int64_t sort_result_place = arena.add(sizeof(float), {N});
        const int64_t sort_result_2_place = arena.add(sizeof(int64_t), {N});
        if (!arena.allocate(threads)) {
            return -1;
        }
        #pragma omp parallel num_threads(threads)
        {
            float *const __restrict sort_0 = arena.at<float>(sort_0_place, omp_get_thread_num());
            int64_t *const __restrict sort_1 = arena.at<int64_t>(sort_1_place,
                omp_get_thread_num());
            float *const __restrict sort_result = arena.at<float>(sort_result_place,
                omp_get_thread_num());
            int64_t *const __restrict sort_result_2 = arena.at<int64_t>(sort_result_2_place,
                omp_get_thread_num());
            #pragma omp for schedule(static)
            for (int64_t i = 0; i < M; ++i) {
                // load(X[i, 0:N] -> x)
                const float *const X_row = X + i * N;
                #pragma omp simd
                for (int64_t lane = 0; lane < N; ++lane) {
                    const float x = X_row[lane];
                    sort_0[lane] = x;
                    const int64_t sort_1_value = lane;
                    sort_1[lane] = sort_1_value;
                }
                // sort(x, iota(N), 0, value, place, descending=True)
                sketch::sort<0, true>(
                    sketch::tile<float, 1>{sort_0, {0}, {N}, {1}},
                    sketch::tile<int64_t, 1>{sort_1, {0}, {N}, {1}},
                    sketch::tile<float, 1>{sort_result, {0}, {N}, {1}},
                    sketch::tile<int64_t, 1>{sort_result_2, {0}, {N}, {1}});
                // store(value -> VALUES[i, 0:N])
                // store(place -> PLACES[i, 0:N])
                for (int64_t block = 0; block < N; block += 1024) {
                    const int64_t block_end = std::min<int64_t>(N, block + 1024);
                    alignas(64) float VALUES_block[1024];
                    float *const VALUES_row = VALUES_streams ? VALUES_block : VALUES + (i * N +
                        block);
                    alignas(64) int64_t PLACES_block[1024];
                    int64_t *const PLACES_row = PLACES_streams ? PLACES_block : PLACES + (i * N +
                        block);
                    #pragma omp simd
                    for (int64_t lane = block; lane < block_end; ++lane) {
                        const float sort_result_value = sort_result[lane];
                        const float value = sort_result_value;
                        const int64_t sort_result_2_value = sort_result_2[lane];
                        const int64_t place = sort_result_2_value;
                        VALUES_row[lane - block] = value;
                        PLACES_row[lane - block] = place;
                    }
                    if (VALUES_streams) {
                        sketch::stream(VALUES + (i * N + block), VALUES_block, block_end - block);
                    }
                    if (PLACES_streams) {
                        sketch::stream(PLACES + (i * N + block), PLACES_block, block_end - block);
                    }
                }
            }
            sketch::end_streams();
        }
    }
    return 0;
}
