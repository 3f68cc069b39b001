// dropout: a C++ kernel for cpu, made from a sketch.

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
// floor_div, ceil_div, max, philox, rand, too_large.

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  p >= 0 and p < 1
//   2  M >= 0 and N >= 0
//   3  1 - p != 0
//   4  fewer than 2**48 elements in each tensor
extern "C" int64_t dropout(
    const float *__restrict X, float *__restrict Y, int64_t M, int64_t N, double p, int64_t seed)
{
    constexpr int64_t T = 2048;

    // p is of type f32.
    p = static_cast<float>(p);
    if (M < 0 || N < 0) {
        return 2;
    }
    if (!(p >= 0.0) || !(p < 1.0)) {
        return 1;
    }
    if (!(1.0 - p != 0.0)) {
        return 3;
    }
    [[maybe_unused]] const double scale = static_cast<double>(1.0 / (1.0 - p));
    if (sketch::too_large({M, N})) {
        return 4;
    }
    const bool Y_streams = sketch::streams(sizeof(float), {M, N});
    const int threads = sketch::threads_for(M * N * 12);
    #pragma omp parallel num_threads(threads)
    {
        #pragma omp for schedule(static)
        for (int64_t i = 0; i < sketch::ceil_div(M * N, T); ++i) {
            // rand(seed, i*T + iota(T), random)
            // ge(random, p, keep)
            // load(XF[i*T:(i+1)*T] -> x)
            // mul(x, scale, x)
            // where(keep, x, 0, x)
            // store(x -> YF[i*T:(i+1)*T])
            const float *const X_row = X + i * T;
            for (int64_t block = 0; block < std::min<int64_t>(T, M * N - i * T); block += 1024) {
                const int64_t block_end = std::min<int64_t>(std::min<int64_t>(T, M * N - i * T),
                    block + 1024);
                alignas(64) float Y_block[1024];
                float *const Y_row = Y_streams ? Y_block : Y + (i * T + block);
                #pragma omp simd
                for (int64_t lane = block; lane < block_end; ++lane) {
                    const float random = sketch::rand(seed, i * T + lane);
                    const bool keep = random >= static_cast<float>(p);
                    const float x = X_row[lane];
                    const float x_mul = x * static_cast<float>(scale);
                    const float x_where = keep ? x_mul : 0.0f;
                    Y_row[lane - block] = x_where;
                }
                if (Y_streams) {
                    sketch::stream(Y + (i * T + block), Y_block, block_end - block);
                }
            }
        }
        sketch::end_streams();
    }
    return 0;
}
