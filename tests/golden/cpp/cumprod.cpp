// cumprod: a C++ kernel for cpu, made from a sketch.

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
// lane_at, for_lines, scan_columns, scan_lines, cumprod, too_large.

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  M >= 0 and N >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t cumprod(const float *__restrict X, float *__restrict Y, int64_t M, int64_t N)
{
    constexpr int64_t T = 2048;

    if (M < 0 || N < 0) {
        return 1;
    }
    if (sketch::too_large({M, N})) {
        return 2;
    }
    {
        const int threads = sketch::threads_for(M * (N * 21 + sketch::ceil_div(N, T)));
        // Scratch memory of each thread.
        sketch::arena arena;
        const int64_t y_lanes_place = arena.add(sizeof(int64_t), {T});
        const int64_t y_factor_place = arena.add(sizeof(float), {T});
        const int64_t cumprod_0_place = arena.add(sizeof(float), {T});
        const int64_t cumprod_result_place = arena.add(sizeof(float), {T});
        if (!arena.allocate(threads)) {
            return -1;
        }
        #pragma omp parallel num_threads(threads)
        {
            int64_t *const __restrict y_lanes = arena.at<int64_t>(y_lanes_place,
                omp_get_thread_num());
            float *const __restrict y_factor = arena.at<float>(y_factor_place,
                omp_get_thread_num());
            float *const __restrict cumprod_0 = arena.at<float>(cumprod_0_place,
                omp_get_thread_num());
            float *const __restrict cumprod_result = arena.at<float>(cumprod_result_place,
                omp_get_thread_num());
            #pragma omp for schedule(static)
            for (int64_t i = 0; i < M; ++i) {
                alignas(64) bool y_last[T];
                // so_far = alloc([1], init=1.0)
                float so_far = 1.0f;
                // for j in range(ceil(N, T)):
                for (int64_t j = 0; j < sketch::ceil_div(N, T); ++j) {
                    bool y_some = false;
                    float y_total = 0.0f;
                    int64_t y_highest = std::numeric_limits<int64_t>::min();
                    int64_t y_lowest = INT64_C(9223372036854775807);
                    // load(X[i, j*T:(j+1)*T] -> x)
                    // eq(x, 0.0, y_valid)
                    // where(y_valid, iota(T), iota(T), y_lanes)
                    // reduce_min(y_lanes, 0, y_lowest)
                    // reduce_max(y_lanes, 0, y_highest)
                    const float *const X_row = X + (i * N + j * T);
                    #pragma omp simd reduction(min : y_lowest) reduction(max : y_highest)
                    for (int64_t lane = 0; lane < std::min<int64_t>(T, N - j * T); ++lane) {
                        const float x = X_row[lane];
                        const bool y_valid = x == 0.0f;
                        const int64_t y_lanes_value = y_valid ? lane : lane;
                        y_lanes[lane] = y_lanes_value;
                        y_lowest = sketch::min(y_lowest, y_lanes_value);
                        y_highest = sketch::max(y_highest, y_lanes_value);
                    }
                    // eq(iota(T), y_lowest, y_first)
                    // eq(iota(T), y_highest, y_last)
                    // where(y_first, so_far, 1.0, y_factor)
                    #pragma omp simd
                    for (int64_t lane = 0; lane < T; ++lane) {
                        const bool y_first = lane == y_lowest;
                        const bool y_last_value = lane == y_highest;
                        y_last[lane] = y_last_value;
                        const float y_factor_value = y_first ? so_far : 1.0f;
                        y_factor[lane] = y_factor_value;
                    }
                    // load(X[i, j*T:(j+1)*T] -> x)
                    // mul(y_factor, x, y_factor)
                    const float *const X_row_2 = X + (i * N + j * T);
                    #pragma omp simd
                    for (int64_t lane = 0; lane < std::min<int64_t>(T, N - j * T); ++lane) {
                        const float y_factor_value = y_factor[lane];
                        const float x = X_row_2[lane];
                        const float y_factor_mul = y_factor_value * x;
                        const float cumprod_0_value = y_factor_mul;
                        cumprod_0[lane] = cumprod_0_value;
                    }
                    // cumprod(y_factor, 0, y)
                    sketch::cumprod<0, false, false>(
                        sketch::tile<const float, 1>{cumprod_0, {0}, {std::min<int64_t>(T, N - j *
                            T)}, {1}},
                        sketch::tile<float, 1>{cumprod_result, {0}, {std::min<int64_t>(T, N - j *
                            T)}, {1}});
                    // where(y_last, y, 0.0, y_factor)
                    // reduce_sum(y_factor, 0, y_total)
                    // ge(y_lanes, 0, y_valid)
                    // reduce_any(y_valid, 0, y_some)
                    // store(y -> Y[i, j*T:(j+1)*T])
                    float *const Y_row = Y + (i * N + j * T);
                    #pragma omp simd reduction(+ : y_total) reduction(|| : y_some)
                    for (int64_t lane = 0; lane < std::min<int64_t>(T, N - j * T); ++lane) {
                        const float cumprod_result_value = cumprod_result[lane];
                        const float y = cumprod_result_value;
                        const bool y_last_value = y_last[lane];
                        const float y_factor_where = y_last_value ? y : 0.0f;
                        y_total += y_factor_where;
                        const int64_t y_lanes_value = y_lanes[lane];
                        const bool y_valid_ge = y_lanes_value >= int64_t{0};
                        y_some = y_some || y_valid_ge;
                        Y_row[lane] = y;
                    }
                    // where(y_some, y_total, so_far, so_far)
                    so_far = y_some ? y_total : so_far;
                }
            }
        }
    }
    return 0;
}
