// nearest_code: a C++ kernel for cpu, made from a sketch.

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

// The library: arena, least_shared_work, threads_for, max, min, sqrt, tile, lane_at, for_lines,
// no_number, extreme_value, extremum, too_large, propagating_min.

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  C >= 1
//   2  M >= 0 and D >= 0 and C >= 0
//   3  C <= 1024
//   4  fewer than 2**48 elements in each tensor
extern "C" int64_t nearest_code(
    const float *__restrict X, const float *__restrict CODES, int64_t *__restrict PLACE, float
    *__restrict DISTANCE, int64_t M, int64_t D, int64_t C)
{
    if (M < 0 || D < 0 || C < 0) {
        return 2;
    }
    if (C > 1024) {
        return 3;
    }
    if (C < 1) {
        return 1;
    }
    if (sketch::too_large({M, D}) || sketch::too_large({D, C})) {
        return 4;
    }
    {
        const int threads = sketch::threads_for(M * (D * (C * 6 + 4) + (C + 14)));
        // Scratch memory of each thread.
        sketch::arena arena;
        const int64_t squares_place = arena.add(sizeof(float), {C});
        const int64_t argmin_0_place = arena.add(sizeof(float), {C});
        if (!arena.allocate(threads)) {
            return -1;
        }
        #pragma omp parallel num_threads(threads)
        {
            float *const __restrict squares = arena.at<float>(squares_place, omp_get_thread_num());
            float *const __restrict argmin_0 = arena.at<float>(argmin_0_place,
                omp_get_thread_num());
            #pragma omp for schedule(static)
            for (int64_t i = 0; i < M; ++i) {
                alignas(64) int64_t argmin_result[1];
                // squares = alloc([C], init=0.0)
                #pragma omp simd
                for (int64_t lane = 0; lane < C; ++lane) {
                    squares[lane] = 0.0f;
                }
                // for d in range(D):
                for (int64_t d = 0; d < D; ++d) {
                    // load(CODES[d, 0:C] -> code)
                    // load(X[i, d] -> x)
                    // sub(code, x, code)
                    // fma(code, code, squares, squares)
                    const float x = X[i * D + d];
                    const float *const CODES_row = CODES + d * C;
                    #pragma omp simd
                    for (int64_t lane = 0; lane < C; ++lane) {
                        const float code = CODES_row[lane];
                        const float code_sub = code - x;
                        const float squares_value = squares[lane];
                        const float squares_value_2 = code_sub * code_sub + squares_value;
                        squares[lane] = squares_value_2;
                    }
                }
                float least = std::numeric_limits<float>::infinity();
                // reduce_min(squares, 0, least)
                #pragma omp simd reduction(propagating_min : least)
                for (int64_t lane = 0; lane < C; ++lane) {
                    const float squares_value = squares[lane];
                    argmin_0[lane] = squares_value;
                    least = sketch::min(least, squares_value);
                }
                // argmin(squares, 0, place)
                sketch::extremum<0, false>(
                    sketch::tile<const float, 1>{argmin_0, {0}, {C}, {1}},
                    sketch::tile<int64_t, 1>{argmin_result, {0}, {1}, {1}});
                const int64_t argmin_result_value = argmin_result[0];
                const int64_t place = argmin_result_value;
                // sqrt(least, least)
                const float least_sqrt = sketch::sqrt(least);
                // store(place -> PLACE[i])
                PLACE[i] = place;
                // store(least -> DISTANCE[i])
                DISTANCE[i] = least_sqrt;
            }
        }
    }
    return 0;
}
