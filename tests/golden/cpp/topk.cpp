// topk: a C++ kernel for cpu, made from a sketch.

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
// floor_div, ceil_div, max, min, tile, lane_at, for_lines, no_number, stands_before,
// ordered_line, ranks_before, insert_lane, topk, too_large.

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  N >= K
//   2  M >= 0 and N >= 0
//   3  fewer than 2**48 elements in each tensor
extern "C" int64_t topk(
    const float *__restrict X, float *__restrict VALUES, int64_t *__restrict PLACES, int64_t M,
    int64_t N)
{
    constexpr int64_t K = 8;
    constexpr int64_t T = 1024;

    if (M < 0 || N < 0) {
        return 2;
    }
    if (N < K) {
        return 1;
    }
    if (sketch::too_large({M, N})) {
        return 3;
    }
    const bool VALUES_streams = sketch::streams(sizeof(float), {M, K});
    const bool PLACES_streams = sketch::streams(sizeof(int64_t), {M, K});
    {
        const int threads = sketch::threads_for(M * (K * (sketch::ceil_div(N, T) + 12) + N * 4));
        // Scratch memory of each thread.
        sketch::arena arena;
        const int64_t topk_1_place = arena.add(sizeof(int64_t), {T});
        if (!arena.allocate(threads)) {
            return -1;
        }
        #pragma omp parallel num_threads(threads)
        {
            int64_t *const __restrict topk_1 = arena.at<int64_t>(topk_1_place,
                omp_get_thread_num());
            #pragma omp for schedule(static)
            for (int64_t i = 0; i < M; ++i) {
                alignas(64) int64_t place[K];
                alignas(64) float best[K];
                alignas(64) float topk_0[T];
                alignas(64) float topk_result[K];
                alignas(64) int64_t topk_result_2[K];
                // place = alloc([K], init=-1)
                // best = alloc([K], init=-inf)
                #pragma omp simd
                for (int64_t lane = 0; lane < K; ++lane) {
                    place[lane] = -1;
                    best[lane] = -std::numeric_limits<float>::infinity();
                }
                // for j in range(ceil(N, T)):
                for (int64_t j = 0; j < sketch::ceil_div(N, T); ++j) {
                    // load(X[i, j*T:(j+1)*T] -> x)
                    const float *const X_row = X + (i * N + j * T);
                    #pragma omp simd
                    for (int64_t lane = 0; lane < std::min<int64_t>(T, N - j * T); ++lane) {
                        const float x = X_row[lane];
                        topk_0[lane] = x;
                        const int64_t topk_1_value = j * T + lane;
                        topk_1[lane] = topk_1_value;
                    }
                    #pragma omp simd
                    for (int64_t lane = 0; lane < K; ++lane) {
                        const float best_value = best[lane];
                        topk_result[lane] = best_value;
                        const int64_t place_value = place[lane];
                        topk_result_2[lane] = place_value;
                    }
                    // topk(x, iota(T, j*T, N), 0, best, place)
                    sketch::topk<0, true>(
                        sketch::tile<const float, 1>{topk_0, {0}, {std::min<int64_t>(T, N - j * T)},
                            {1}},
                        sketch::tile<const int64_t, 1>{topk_1, {0}, {std::min<int64_t>(T, N - j *
                            T)}, {1}},
                        sketch::tile<float, 1>{topk_result, {0}, {K}, {1}},
                        sketch::tile<int64_t, 1>{topk_result_2, {0}, {K}, {1}});
                    #pragma omp simd
                    for (int64_t lane = 0; lane < K; ++lane) {
                        const float topk_result_value = topk_result[lane];
                        best[lane] = topk_result_value;
                        const int64_t topk_result_2_value = topk_result_2[lane];
                        place[lane] = topk_result_2_value;
                    }
                }
                // store(best -> VALUES[i, 0:K])
                // store(place -> PLACES[i, 0:K])
                for (int64_t block = 0; block < K; block += 1024) {
                    const int64_t block_end = std::min<int64_t>(K, block + 1024);
                    alignas(64) float VALUES_block[1024];
                    float *const VALUES_row = VALUES_streams ? VALUES_block : VALUES + (i * K +
                        block);
                    alignas(64) int64_t PLACES_block[1024];
                    int64_t *const PLACES_row = PLACES_streams ? PLACES_block : PLACES + (i * K +
                        block);
                    #pragma omp simd
                    for (int64_t lane = block; lane < block_end; ++lane) {
                        const float best_value = best[lane];
                        VALUES_row[lane - block] = best_value;
                        const int64_t place_value = place[lane];
                        PLACES_row[lane - block] = place_value;
                    }
                    if (VALUES_streams) {
                        sketch::stream(VALUES + (i * K + block), VALUES_block, block_end - block);
                    }
                    if (PLACES_streams) {
                        sketch::stream(PLACES + (i * K + block), PLACES_block, block_end - block);
                    }
                }
            }
            sketch::end_streams();
        }
    }
    return 0;
}
