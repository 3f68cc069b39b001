// masked_select: a C++ kernel for cpu, made from a sketch.

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

// The library: arena, least_shared_work, threads_for, floor_div, ceil_div, max, min,
// atomic_update, atomic_add, tile, lane_at, for_lines, scan_columns, scan_lines, cumsum.

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  N >= 0
extern "C" int64_t masked_select(
    const float *__restrict X, const bool *__restrict MASK, float *__restrict Y, int64_t
    *__restrict COUNT, int64_t N)
{
    constexpr int64_t T = 1024;
    constexpr int64_t TB = 128;

    if (N < 0) {
        return 1;
    }
    [[maybe_unused]] const int64_t blocks = sketch::ceil_div(N, T);
    // Memory shared by the phases.
    sketch::arena workspace;
    const int64_t COUNTS_place = workspace.add(sizeof(int64_t), {blocks});
    if (!workspace.allocate(1)) {
        return -1;
    }
    int64_t *const COUNTS = workspace.at<int64_t>(COUNTS_place, 0);
    // Y starts as 0.0.
    #pragma omp parallel for simd num_threads(sketch::threads_for(N * 4)) schedule(static)
    for (int64_t element = 0; element < N; ++element) {
        Y[element] = 0.0f;
    }
    // COUNT starts as 0.
    #pragma omp parallel for simd num_threads(sketch::threads_for(1 * 8)) schedule(static)
    for (int64_t element = 0; element < 1; ++element) {
        COUNT[element] = 0;
    }
    // Phase 1 of 2.
    {
        const int threads = sketch::threads_for(blocks * (T * 3 + 25));
        #pragma omp parallel for num_threads(threads) schedule(static)
        for (int64_t i = 0; i < blocks; ++i) {
            int64_t count = 0;
            // load(MASK[i*T:(i+1)*T] -> mask)
            // cast(mask, one)
            // reduce_sum(one, 0, count)
            const bool *const MASK_row = MASK + i * T;
            #pragma omp simd reduction(+ : count)
            for (int64_t lane = 0; lane < std::min<int64_t>(T, N - i * T); ++lane) {
                const bool mask = MASK_row[lane];
                const int64_t one = static_cast<int64_t>(mask);
                count += one;
            }
            // store(count -> COUNTS[i])
            COUNTS[i] = count;
            // atomic_add(count -> COUNT[])
            sketch::atomic_add(&COUNT[0], count);
        }
    }
    // Phase 2 of 2.
    {
        const int threads = sketch::threads_for(blocks * ((blocks - 1) * 9 + (T * 12 +
            sketch::ceil_div(blocks - 1, TB))));
        // Scratch memory of each thread.
        sketch::arena arena;
        const int64_t cumsum_0_place = arena.add(sizeof(int64_t), {T});
        const int64_t cumsum_result_place = arena.add(sizeof(int64_t), {T});
        if (!arena.allocate(threads)) {
            return -1;
        }
        #pragma omp parallel num_threads(threads)
        {
            int64_t *const __restrict cumsum_0 = arena.at<int64_t>(cumsum_0_place,
                omp_get_thread_num());
            int64_t *const __restrict cumsum_result = arena.at<int64_t>(cumsum_result_place,
                omp_get_thread_num());
            #pragma omp for schedule(static)
            for (int64_t i_2 = 0; i_2 < blocks; ++i_2) {
                // before = alloc([1], init=0)
                int64_t before = 0;
                // for b in range(ceil(i, TB)):
                for (int64_t b = 0; b < sketch::ceil_div(i_2, TB); ++b) {
                    int64_t sum_ = 0;
                    // load(COUNTS[b*TB:min((b+1)*TB, i)] -> counts)
                    // reduce_sum(counts, 0, sum)
                    const int64_t *const COUNTS_row = COUNTS + b * TB;
                    #pragma omp simd reduction(+ : sum_)
                    for (int64_t lane = 0; lane < std::min<int64_t>(TB, i_2 - b * TB); ++lane) {
                        const int64_t counts = COUNTS_row[lane];
                        sum_ += counts;
                    }
                    // add(before, sum, before)
                    before = before + sum_;
                }
                // load(MASK[i*T:(i+1)*T] -> mask)
                // cast(mask, one)
                const bool *const MASK_row = MASK + i_2 * T;
                #pragma omp simd
                for (int64_t lane = 0; lane < std::min<int64_t>(T, N - i_2 * T); ++lane) {
                    const bool mask_2 = MASK_row[lane];
                    const int64_t one_2 = static_cast<int64_t>(mask_2);
                    const int64_t cumsum_0_value = one_2;
                    cumsum_0[lane] = cumsum_0_value;
                }
                // cumsum(one, 0, place, exclusive=True)
                sketch::cumsum<0, false, true>(
                    sketch::tile<const int64_t, 1>{cumsum_0, {0}, {std::min<int64_t>(T, N - i_2 *
                        T)}, {1}},
                    sketch::tile<int64_t, 1>{cumsum_result, {0}, {std::min<int64_t>(T, N - i_2 *
                        T)}, {1}});
                // add(place, before, place)
                // load(X[i*T:(i+1)*T] -> x)
                // load(MASK[i*T:(i+1)*T] -> mask)
                // store(x -> Y[place], where=mask, unique=True)
                for (int64_t lane = 0; lane < std::min<int64_t>(T, N - i_2 * T); ++lane) {
                    const int64_t cumsum_result_value = cumsum_result[lane];
                    const int64_t place = cumsum_result_value;
                    const int64_t place_add = place + before;
                    const float x = X[i_2 * T + lane];
                    const bool mask_2 = MASK[i_2 * T + lane];
                    if (mask_2 && 0 <= place_add && place_add < N) {
                        Y[place_add] = x;
                    }
                }
            }
        }
    }
    return 0;
}
