// rank_rows: a C++ kernel for cpu, made from a sketch.

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

// The library: arena, least_shared_work, threads_for, floor_div, ceil_div, max, isnan, too_large.

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  M >= 0 and N >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t rank_rows(
    const float *__restrict X, float *__restrict SORTED, int64_t *__restrict RANK, int64_t M,
    int64_t N)
{
    constexpr int64_t T = 128;
    constexpr int64_t U = 64;

    if (M < 0 || N < 0) {
        return 1;
    }
    if (sketch::too_large({M, N})) {
        return 2;
    }
    {
        const int threads = sketch::threads_for(N * M * (sketch::ceil_div(N, T) * 6 +
            (sketch::ceil_div(N, U) * 3 + (N * 9 + 16))));
        // Scratch memory of each thread.
        sketch::arena arena;
        const int64_t place_loosely_place = arena.add(sizeof(bool), {T, U});
        const int64_t place_strictly_logical_or_place = arena.add(sizeof(bool), {T, U});
        if (!arena.allocate(threads)) {
            return -1;
        }
        #pragma omp parallel num_threads(threads)
        {
            bool *const __restrict place_loosely = arena.at<bool>(place_loosely_place,
                omp_get_thread_num());
            bool *const __restrict place_strictly_logical_or =
                arena.at<bool>(place_strictly_logical_or_place, omp_get_thread_num());
            #pragma omp for collapse(2) schedule(static)
            for (int64_t i = 0; i < M; ++i) {
                for (int64_t j = 0; j < sketch::ceil_div(N, T); ++j) {
                    alignas(64) int64_t place[T];
                    alignas(64) int64_t place_operand[T];
                    alignas(64) int64_t place_operand_2[U];
                    alignas(64) bool place_nan_2[U];
                    // place = alloc([T], init=0)
                    #pragma omp simd
                    for (int64_t lane = 0; lane < std::min<int64_t>(T, N - j * T); ++lane) {
                        place[lane] = 0;
                    }
                    // for k in range(ceil(N, U)):
                    for (int64_t k = 0; k < sketch::ceil_div(N, U); ++k) {
                        for (int64_t row = 0; row < std::min<int64_t>(T, N - j * T); ++row) {
                            // copy(iota(T, j*T, N), place_operand)
                            const int64_t place_operand_value = j * T + row;
                            place_operand[row] = place_operand_value;
                            // load(X[i, j*T:(j+1)*T] -> x)
                            // isnan(x, place_nan)
                            const float x = X[i * N + (j * T + row)];
                            const bool place_nan = sketch::isnan(x);
                            // load(X[i, j*T:(j+1)*T] -> x)
                            // load(X[i, k*U:(k+1)*U] -> other)
                            // ge(x[:, None], other[None, :], place_strictly)
                            // le(x[:, None], other[None, :], place_loosely)
                            // logical_or(place_strictly, place_nan[:, None], place_strictly)
                            const float *const X_row = X + (i * N + k * U);
                            bool *const place_loosely_row = place_loosely + row * U;
                            bool *const place_strictly_logical_or_row = place_strictly_logical_or +
                                row * U;
                            #pragma omp simd
                            for (int64_t lane = 0; lane < std::min<int64_t>(U, N - k * U); ++lane) {
                                const float other = X_row[lane];
                                const bool place_strictly = x >= other;
                                const bool place_loosely_value = x <= other;
                                place_loosely_row[lane] = place_loosely_value;
                                const bool place_strictly_logical_or_value = place_strictly ||
                                    place_nan;
                                place_strictly_logical_or_row[lane] =
                                    place_strictly_logical_or_value;
                            }
                        }
                        // copy(iota(U, k*U, N), place_operand_2)
                        // load(X[i, k*U:(k+1)*U] -> other)
                        // isnan(other, place_nan_2)
                        const float *const X_row_2 = X + (i * N + k * U);
                        #pragma omp simd
                        for (int64_t lane = 0; lane < std::min<int64_t>(U, N - k * U); ++lane) {
                            const int64_t place_operand_2_value = k * U + lane;
                            place_operand_2[lane] = place_operand_2_value;
                            const float other = X_row_2[lane];
                            const bool place_nan_2_value = sketch::isnan(other);
                            place_nan_2[lane] = place_nan_2_value;
                        }
                        for (int64_t row = 0; row < std::min<int64_t>(T, N - j * T); ++row) {
                            int64_t place_count = 0;
                            // logical_or(place_loosely, place_nan_2[None, :], place_loosely)
                            // logical_not(place_strictly, place_strictly)
                            // lt(place_operand_2[None, :], place_operand[:, None], place_earlier)
                            // where(place_earlier, place_loosely, place_strictly, place_earlier)
                            // where(place_earlier, 1, 0, place_ones)
                            // reduce_sum(place_ones, 1, place_count)
                            const int64_t place_operand_value = place_operand[row];
                            const bool *const place_loosely_row_2 = place_loosely + row * U;
                            const bool *const place_strictly_logical_or_row_2 =
                                place_strictly_logical_or + row * U;
                            #pragma omp simd reduction(+ : place_count)
                            for (int64_t lane = 0; lane < std::min<int64_t>(U, N - k * U); ++lane) {
                                const bool place_loosely_value = place_loosely_row_2[lane];
                                const bool place_nan_2_value = place_nan_2[lane];
                                const bool place_loosely_logical_or = place_loosely_value ||
                                    place_nan_2_value;
                                const bool place_strictly_logical_or_value =
                                    place_strictly_logical_or_row_2[lane];
                                const bool place_strictly_logical_not =
                                    !place_strictly_logical_or_value;
                                const int64_t place_operand_2_value = place_operand_2[lane];
                                const bool place_earlier = place_operand_2_value <
                                    place_operand_value;
                                const bool place_earlier_where = place_earlier ?
                                    place_loosely_logical_or : place_strictly_logical_not;
                                const int64_t place_ones = place_earlier_where ? int64_t{1} :
                                    int64_t{0};
                                place_count += place_ones;
                            }
                            // add(place, place_count, place)
                            const int64_t place_value = place[row];
                            const int64_t place_value_2 = place_value + place_count;
                            place[row] = place_value_2;
                        }
                    }
                    // store(place -> RANK[i, j*T:(j+1)*T])
                    // load(X[i, j*T:(j+1)*T] -> x)
                    // store(x -> SORTED[i, place], unique=True, covers=True)
                    for (int64_t lane = 0; lane < std::min<int64_t>(T, N - j * T); ++lane) {
                        const int64_t place_value = place[lane];
                        RANK[i * N + (j * T + lane)] = place_value;
                        const float x = X[i * N + (j * T + lane)];
                        if (0 <= place_value && place_value < N) {
                            SORTED[i * N + place_value] = x;
                        }
                    }
                }
            }
        }
    }
    return 0;
}
