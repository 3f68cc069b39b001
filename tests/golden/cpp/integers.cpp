// integers: a C++ kernel for cpu, made from a sketch.

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

// The library: least_shared_work, threads_for, cache_bytes, streams, stream, end_streams,
// floor_div, floor_mod, ceil_div, min.

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   3  step >= 1
//   4  N >= 0
//   5  -2147483648 <= step and step <= 2147483647
extern "C" int64_t integers(
    const int32_t *__restrict A, const int32_t *__restrict B, int32_t *__restrict QUOTIENT,
    int32_t *__restrict REMAINDER, int32_t *__restrict SMALLER, int32_t *__restrict FLIPPED, bool
    *__restrict EQUAL, bool *__restrict DIFFERENT, bool *__restrict BELOW, bool *__restrict
    NOT_ABOVE, int64_t N, int64_t step)
{
    constexpr int64_t T = 1024;

    if (N < 0) {
        return 4;
    }
    if (-INT64_C(2147483648) > step || step > 2147483647) {
        return 5;
    }
    if (step < 1) {
        return 3;
    }
    const bool QUOTIENT_streams = sketch::streams(sizeof(int32_t), {N});
    const bool REMAINDER_streams = sketch::streams(sizeof(int32_t), {N});
    const bool SMALLER_streams = sketch::streams(sizeof(int32_t), {N});
    const bool FLIPPED_streams = sketch::streams(sizeof(int32_t), {N});
    const bool EQUAL_streams = sketch::streams(sizeof(bool), {N});
    const bool DIFFERENT_streams = sketch::streams(sizeof(bool), {N});
    const bool BELOW_streams = sketch::streams(sizeof(bool), {N});
    const bool NOT_ABOVE_streams = sketch::streams(sizeof(bool), {N});
    const int threads = sketch::threads_for(N * 36);
    #pragma omp parallel num_threads(threads)
    {
        #pragma omp for schedule(static)
        for (int64_t i = 0; i < sketch::ceil_div(N, T); ++i) {
            // load(A[i*T:(i+1)*T] -> a)
            // floordiv(a, step, number)
            // store(number -> QUOTIENT[i*T:(i+1)*T])
            // mod(a, step, number)
            // store(number -> REMAINDER[i*T:(i+1)*T])
            // load(B[i*T:(i+1)*T] -> b)
            // min(a, b, number)
            // store(number -> SMALLER[i*T:(i+1)*T])
            // bitwise_not(number, number)
            // store(number -> FLIPPED[i*T:(i+1)*T])
            // eq(a, b, truth)
            // store(truth -> EQUAL[i*T:(i+1)*T])
            // ne(a, b, truth)
            // store(truth -> DIFFERENT[i*T:(i+1)*T])
            // lt(a, b, truth)
            // store(truth -> BELOW[i*T:(i+1)*T])
            // le(a, b, truth)
            // store(truth -> NOT_ABOVE[i*T:(i+1)*T])
            const int32_t *const A_row = A + i * T;
            const int32_t *const B_row = B + i * T;
            for (int64_t block = 0; block < std::min<int64_t>(T, N - i * T); block += 1024) {
                const int64_t block_end = std::min<int64_t>(std::min<int64_t>(T, N - i * T), block +
                    1024);
                alignas(64) int32_t QUOTIENT_block[1024];
                int32_t *const QUOTIENT_row = QUOTIENT_streams ? QUOTIENT_block : QUOTIENT + (i * T
                    + block);
                alignas(64) int32_t REMAINDER_block[1024];
                int32_t *const REMAINDER_row = REMAINDER_streams ? REMAINDER_block : REMAINDER + (i
                    * T + block);
                alignas(64) int32_t SMALLER_block[1024];
                int32_t *const SMALLER_row = SMALLER_streams ? SMALLER_block : SMALLER + (i * T +
                    block);
                alignas(64) int32_t FLIPPED_block[1024];
                int32_t *const FLIPPED_row = FLIPPED_streams ? FLIPPED_block : FLIPPED + (i * T +
                    block);
                alignas(64) bool EQUAL_block[1024];
                bool *const EQUAL_row = EQUAL_streams ? EQUAL_block : EQUAL + (i * T + block);
                alignas(64) bool DIFFERENT_block[1024];
                bool *const DIFFERENT_row = DIFFERENT_streams ? DIFFERENT_block : DIFFERENT + (i * T
                    + block);
                alignas(64) bool BELOW_block[1024];
                bool *const BELOW_row = BELOW_streams ? BELOW_block : BELOW + (i * T + block);
                alignas(64) bool NOT_ABOVE_block[1024];
                bool *const NOT_ABOVE_row = NOT_ABOVE_streams ? NOT_ABOVE_block : NOT_ABOVE + (i * T
                    + block);
                #pragma omp simd
                for (int64_t lane = block; lane < block_end; ++lane) {
                    const int32_t a = A_row[lane];
                    const int32_t number = sketch::floor_div(a, static_cast<int32_t>(step));
                    QUOTIENT_row[lane - block] = number;
                    const int32_t number_mod = sketch::floor_mod(a, static_cast<int32_t>(step));
                    REMAINDER_row[lane - block] = number_mod;
                    const int32_t b = B_row[lane];
                    const int32_t number_min = sketch::min(a, b);
                    SMALLER_row[lane - block] = number_min;
                    const int32_t number_bitwise_not = ~number_min;
                    FLIPPED_row[lane - block] = number_bitwise_not;
                    const bool truth = a == b;
                    EQUAL_row[lane - block] = truth;
                    const bool truth_ne = a != b;
                    DIFFERENT_row[lane - block] = truth_ne;
                    const bool truth_lt = a < b;
                    BELOW_row[lane - block] = truth_lt;
                    const bool truth_le = a <= b;
                    NOT_ABOVE_row[lane - block] = truth_le;
                }
                if (QUOTIENT_streams) {
                    sketch::stream(QUOTIENT + (i * T + block), QUOTIENT_block, block_end - block);
                }
                if (REMAINDER_streams) {
                    sketch::stream(REMAINDER + (i * T + block), REMAINDER_block, block_end - block);
                }
                if (SMALLER_streams) {
                    sketch::stream(SMALLER + (i * T + block), SMALLER_block, block_end - block);
                }
                if (FLIPPED_streams) {
                    sketch::stream(FLIPPED + (i * T + block), FLIPPED_block, block_end - block);
                }
                if (EQUAL_streams) {
                    sketch::stream(EQUAL + (i * T + block), EQUAL_block, block_end - block);
                }
                if (DIFFERENT_streams) {
                    sketch::stream(DIFFERENT + (i * T + block), DIFFERENT_block, block_end - block);
                }
                if (BELOW_streams) {
                    sketch::stream(BELOW + (i * T + block), BELOW_block, block_end - block);
                }
                if (NOT_ABOVE_streams) {
                    sketch::stream(NOT_ABOVE + (i * T + block), NOT_ABOVE_block, block_end - block);
                }
            }
        }
        sketch::end_streams();
    }
    return 0;
}
