// argmax_rows: a C++ kernel for cpu, made from a sketch.

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

// The library: arena, least_shared_work, threads_for, floor_div, ceil_div, max, isnan, tile,
// lane_at, for_lines, no_number, extreme_value, extremum, too_large, propagating_max.

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  M >= 0 and N >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t argmax_rows(
    const float *__restrict X, int64_t *__restrict PLACE, int64_t M, int64_t N)
{
    constexpr int64_t T = 2048;

    if (M < 0 || N < 0) {
        return 1;
    }
    if (sketch::too_large({M, N})) {
        return 2;
    }
    {
        const int threads = sketch::threads_for(M * (N * 5 + (sketch::ceil_div(N, T) * 10 + 8)));
        // Scratch memory of each thread.
        sketch::arena arena;
        const int64_t argmax_0_place = arena.add(sizeof(float), {T});
        if (!arena.allocate(threads)) {
            return -1;
        }
        #pragma omp parallel num_threads(threads)
        {
            float *const __restrict argmax_0 = arena.at<float>(argmax_0_place,
                omp_get_thread_num());
            #pragma omp for schedule(static)
            for (int64_t i = 0; i < M; ++i) {
                alignas(64) int64_t argmax_result[1];
                // place = alloc([1], init=0)
                int64_t place = 0;
                // best = alloc([1], init=-inf)
                float best = -std::numeric_limits<float>::infinity();
                // for j in range(ceil(N, T)):
                for (int64_t j = 0; j < sketch::ceil_div(N, T); ++j) {
                    float block = -std::numeric_limits<float>::infinity();
                    // load(X[i, j*T:(j+1)*T] -> x)
                    // reduce_max(x, 0, block)
                    const float *const X_row = X + (i * N + j * T);
                    #pragma omp simd reduction(propagating_max : block)
                    for (int64_t lane_ = 0; lane_ < std::min<int64_t>(T, N - j * T); ++lane_) {
                        const float x = X_row[lane_];
                        argmax_0[lane_] = x;
                        block = sketch::max(block, x);
                    }
                    // argmax(x, 0, lane)
                    sketch::extremum<0, true>(
                        sketch::tile<const float, 1>{argmax_0, {0}, {std::min<int64_t>(T, N - j *
                            T)}, {1}},
                        sketch::tile<int64_t, 1>{argmax_result, {0}, {1}, {1}});
                    const int64_t argmax_result_value = argmax_result[0];
                    const int64_t lane = argmax_result_value;
                    // isnan(block, not_a_number)
                    const bool not_a_number = sketch::isnan(block);
                    // gt(block, best, better)
                    const bool better = block > best;
                    // logical_or(better, not_a_number, better)
                    const bool better_logical_or = better || not_a_number;
                    // isnan(best, not_a_number)
                    const bool not_a_number_isnan = sketch::isnan(best);
                    // logical_not(not_a_number, not_a_number)
                    const bool not_a_number_logical_not = !not_a_number_isnan;
                    // logical_and(better, not_a_number, better)
                    const bool better_logical_and = better_logical_or && not_a_number_logical_not;
                    // add(lane, j*T, lane)
                    const int64_t lane_add = lane + j * T;
                    // where(better, lane, place, place)
                    place = better_logical_and ? lane_add : place;
                    // where(better, block, best, best)
                    best = better_logical_and ? block : best;
                }
                // store(place -> PLACE[i])
                PLACE[i] = place;
            }
        }
    }
    return 0;
}
