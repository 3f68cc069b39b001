// rounding: a C++ kernel for cpu, made from a sketch.

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
// floor_div, ceil_div, sign, floor, ceil, round, trunc.

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  N >= 0
extern "C" int64_t rounding(
    const float *__restrict X, float *__restrict FLOOR, float *__restrict CEIL, float *__restrict
    ROUND, float *__restrict TRUNC, float *__restrict FRACTION, float *__restrict SIGN, int64_t N)
{
    constexpr int64_t T = 1024;

    if (N < 0) {
        return 1;
    }
    const bool FLOOR_streams = sketch::streams(sizeof(float), {N});
    const bool CEIL_streams = sketch::streams(sizeof(float), {N});
    const bool ROUND_streams = sketch::streams(sizeof(float), {N});
    const bool TRUNC_streams = sketch::streams(sizeof(float), {N});
    const bool FRACTION_streams = sketch::streams(sizeof(float), {N});
    const bool SIGN_streams = sketch::streams(sizeof(float), {N});
    const int threads = sketch::threads_for(N * 34);
    #pragma omp parallel num_threads(threads)
    {
        #pragma omp for schedule(static)
        for (int64_t i = 0; i < sketch::ceil_div(N, T); ++i) {
            // load(X[i*T:(i+1)*T] -> x)
            // floor(x, y)
            // store(y -> FLOOR[i*T:(i+1)*T])
            // ceil(x, y)
            // store(y -> CEIL[i*T:(i+1)*T])
            // round(x, y)
            // store(y -> ROUND[i*T:(i+1)*T])
            // trunc(x, y)
            // store(y -> TRUNC[i*T:(i+1)*T])
            // sub(x, y, y)
            // store(y -> FRACTION[i*T:(i+1)*T])
            // sign(x, y)
            // store(y -> SIGN[i*T:(i+1)*T])
            const float *const X_row = X + i * T;
            for (int64_t block = 0; block < std::min<int64_t>(T, N - i * T); block += 1024) {
                const int64_t block_end = std::min<int64_t>(std::min<int64_t>(T, N - i * T), block +
                    1024);
                alignas(64) float FLOOR_block[1024];
                float *const FLOOR_row = FLOOR_streams ? FLOOR_block : FLOOR + (i * T + block);
                alignas(64) float CEIL_block[1024];
                float *const CEIL_row = CEIL_streams ? CEIL_block : CEIL + (i * T + block);
                alignas(64) float ROUND_block[1024];
                float *const ROUND_row = ROUND_streams ? ROUND_block : ROUND + (i * T + block);
                alignas(64) float TRUNC_block[1024];
                float *const TRUNC_row = TRUNC_streams ? TRUNC_block : TRUNC + (i * T + block);
                alignas(64) float FRACTION_block[1024];
                float *const FRACTION_row = FRACTION_streams ? FRACTION_block : FRACTION + (i * T +
                    block);
                alignas(64) float SIGN_block[1024];
                float *const SIGN_row = SIGN_streams ? SIGN_block : SIGN + (i * T + block);
                #pragma omp simd
                for (int64_t lane = block; lane < block_end; ++lane) {
                    const float x = X_row[lane];
                    const float y = sketch::floor(x);
                    FLOOR_row[lane - block] = y;
                    const float y_ceil = sketch::ceil(x);
                    CEIL_row[lane - block] = y_ceil;
                    const float y_round = sketch::round(x);
                    ROUND_row[lane - block] = y_round;
                    const float y_trunc = sketch::trunc(x);
                    TRUNC_row[lane - block] = y_trunc;
                    const float y_sub = x - y_trunc;
                    FRACTION_row[lane - block] = y_sub;
                    const float y_sign = sketch::sign(x);
                    SIGN_row[lane - block] = y_sign;
                }
                if (FLOOR_streams) {
                    sketch::stream(FLOOR + (i * T + block), FLOOR_block, block_end - block);
                }
                if (CEIL_streams) {
                    sketch::stream(CEIL + (i * T + block), CEIL_block, block_end - block);
                }
                if (ROUND_streams) {
                    sketch::stream(ROUND + (i * T + block), ROUND_block, block_end - block);
                }
                if (TRUNC_streams) {
                    sketch::stream(TRUNC + (i * T + block), TRUNC_block, block_end - block);
                }
                if (FRACTION_streams) {
                    sketch::stream(FRACTION + (i * T + block), FRACTION_block, block_end - block);
                }
                if (SIGN_streams) {
                    sketch::stream(SIGN + (i * T + block), SIGN_block, block_end - block);
                }
            }
        }
        sketch::end_streams();
    }
    return 0;
}
