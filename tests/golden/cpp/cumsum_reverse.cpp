// cumsum_reverse: a C++ kernel for cpu, made from a sketch.

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

// The library: arena, least_shared_work, threads_for, floor_div, ceil_div, max, min, tile,
// lane_at, for_lines, scan_columns, scan_lines, cumsum, too_large.

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  M >= 0 and N >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t cumsum_reverse(
    const float *__restrict X, float *__restrict Y, int64_t M, int64_t N)
{
    constexpr int64_t T = 2048;

    if (M < 0 || N < 0) {
        return 1;
    }
    if (sketch::too_large({M, N})) {
        return 2;
    }
    {
        const int threads = sketch::threads_for(M * std::max<int64_t>(sketch::ceil_div(N, T) - 1 -
            -1, 0) * (T * 11 + 1));
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
            #pragma omp for schedule(static)
            for (int64_t i = 0; i < M; ++i) {
                // total = alloc([1], init=0.0)
                float total = 0.0f;
                // for j in range(ceil(N, T) - 1, -1, -1):
                for (int64_t j = sketch::ceil_div(N, T) - 1; j > -1; j += -1) {
                    float y_block = 0.0f;
                    // load(X[i, j*T:(j+1)*T] -> x)
                    const float *const X_row = X + (i * N + j * T);
                    #pragma omp simd
                    for (int64_t lane = 0; lane < std::min<int64_t>(T, N - j * T); ++lane) {
                        const float x = X_row[lane];
                        cumsum_0[lane] = x;
                    }
                    // cumsum(x, 0, y)
                    sketch::cumsum<0, true, false>(
                        sketch::tile<const float, 1>{cumsum_0, {0}, {std::min<int64_t>(T, N - j *
                            T)}, {1}},
                        sketch::tile<float, 1>{cumsum_result, {0}, {std::min<int64_t>(T, N - j *
                            T)}, {1}});
                    // add(y, total, y)
                    // load(X[i, j*T:(j+1)*T] -> x)
                    // reduce_sum(x, 0, y_block)
                    // store(y -> Y[i, j*T:(j+1)*T])
                    const float *const X_row_2 = X + (i * N + j * T);
                    float *const Y_row = Y + (i * N + j * T);
                    #pragma omp simd reduction(+ : y_block)
                    for (int64_t lane = 0; lane < std::min<int64_t>(T, N - j * T); ++lane) {
                        const float cumsum_result_value = cumsum_result[lane];
                        const float y = cumsum_result_value;
                        const float y_add = y + total;
                        const float x = X_row_2[lane];
                        y_block += x;
                        Y_row[lane] = y_add;
                    }
                    // add(total, y_block, total)
                    total = total + y_block;
                }
            }
        }
    }
    return 0;
}
