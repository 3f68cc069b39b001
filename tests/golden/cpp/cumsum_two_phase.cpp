// cumsum_two_phase: a C++ kernel for cpu, made from a sketch.

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
// floor_div, ceil_div, max, min, tile, lane_at, for_lines, scan_columns, scan_lines, cumsum,
// too_large.

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  M >= 0 and N >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t cumsum_two_phase(
    const float *__restrict X, float *__restrict Y, int64_t M, int64_t N)
{
    constexpr int64_t T = 2048;
    constexpr int64_t TB = 128;

    if (M < 0 || N < 0) {
        return 1;
    }
    [[maybe_unused]] const int64_t blocks = sketch::ceil_div(N, T);
    if (sketch::too_large({M, N}) || sketch::too_large({M, blocks})) {
        return 2;
    }
    // Memory shared by the phases.
    sketch::arena workspace;
    const int64_t TOTALS_place = workspace.add(sizeof(float), {M, blocks});
    if (!workspace.allocate(1)) {
        return -1;
    }
    float *const TOTALS = workspace.at<float>(TOTALS_place, 0);
    const bool Y_streams = sketch::streams(sizeof(float), {M, N});
    // Phase 1 of 2.
    {
        const int threads = sketch::threads_for(M * blocks * (T * 5 + 4));
        #pragma omp parallel for num_threads(threads) collapse(2) schedule(static)
        for (int64_t i = 0; i < M; ++i) {
            for (int64_t j = 0; j < blocks; ++j) {
                float total = 0.0f;
                // load(X[i, j*T:(j+1)*T] -> x)
                // reduce_sum(x, 0, total)
                const float *const X_row = X + (i * N + j * T);
                #pragma omp simd reduction(+ : total)
                for (int64_t lane = 0; lane < std::min<int64_t>(T, N - j * T); ++lane) {
                    const float x = X_row[lane];
                    total += x;
                }
                // store(total -> TOTALS[i, j])
                TOTALS[i * blocks + j] = total;
            }
        }
    }
    // Phase 2 of 2.
    {
        const int threads = sketch::threads_for(M * blocks * ((blocks - 1) * 5 + (T * 10 +
            sketch::ceil_div(blocks - 1, TB))));
        // Scratch memory of each thread.
        sketch::arena arena;
        const int64_t cumsum_0_place = arena.add(sizeof(float), {T});
        const int64_t cumsum_result_place = arena.add(sizeof(float), {T});
        if (!arena.allocate(threads)) {
            return -1;
        }
        #pragma omp parallel num_threads(threads)
        {
            float *const __restrict cumsum_0 = arena.at<float>(cumsum_0_place,
                omp_get_thread_num());
            float *const __restrict cumsum_result = arena.at<float>(cumsum_result_place,
                omp_get_thread_num());
            #pragma omp for collapse(2) schedule(static)
            for (int64_t i_2 = 0; i_2 < M; ++i_2) {
                for (int64_t j_2 = 0; j_2 < blocks; ++j_2) {
                    // before = alloc([1], init=0.0)
                    float before = 0.0f;
                    // for b in range(ceil(j, TB)):
                    for (int64_t b = 0; b < sketch::ceil_div(j_2, TB); ++b) {
                        float sum_ = 0.0f;
                        // load(TOTALS[i, b*TB:min((b+1)*TB, j)] -> totals)
                        // reduce_sum(totals, 0, sum)
                        const float *const TOTALS_row = TOTALS + (i_2 * blocks + b * TB);
                        #pragma omp simd reduction(+ : sum_)
                        for (int64_t lane = 0; lane < std::min<int64_t>(TB, j_2 - b * TB); ++lane) {
                            const float totals = TOTALS_row[lane];
                            sum_ += totals;
                        }
                        // add(before, sum, before)
                        before = before + sum_;
                    }
                    // load(X[i, j*T:(j+1)*T] -> x)
                    const float *const X_row = X + (i_2 * N + j_2 * T);
                    #pragma omp simd
                    for (int64_t lane = 0; lane < std::min<int64_t>(T, N - j_2 * T); ++lane) {
                        const float x_2 = X_row[lane];
                        cumsum_0[lane] = x_2;
                    }
                    // cumsum(x, 0, y)
                    sketch::cumsum<0, false, false>(
                        sketch::tile<const float, 1>{cumsum_0, {0}, {std::min<int64_t>(T, N - j_2 *
                            T)}, {1}},
                        sketch::tile<float, 1>{cumsum_result, {0}, {std::min<int64_t>(T, N - j_2 *
                            T)}, {1}});
                    // add(y, before, y)
                    // store(y -> Y[i, j*T:(j+1)*T])
                    for (int64_t block = 0; block < std::min<int64_t>(T, N - j_2 * T); block +=
                        1024) {
                        const int64_t block_end = std::min<int64_t>(std::min<int64_t>(T, N - j_2 *
                            T), block + 1024);
                        alignas(64) float Y_block[1024];
                        float *const Y_row = Y_streams ? Y_block : Y + (i_2 * N + j_2 * T + block);
                        #pragma omp simd
                        for (int64_t lane = block; lane < block_end; ++lane) {
                            const float cumsum_result_value = cumsum_result[lane];
                            const float y = cumsum_result_value;
                            const float y_add = y + before;
                            Y_row[lane - block] = y_add;
                        }
                        if (Y_streams) {
                            sketch::stream(Y + (i_2 * N + j_2 * T + block), Y_block, block_end -
                                block);
                        }
                    }
                }
            }
            sketch::end_streams();
        }
    }
    return 0;
}
