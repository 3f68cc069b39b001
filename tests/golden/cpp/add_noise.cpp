// add_noise: a C++ kernel for cpu, made from a sketch.

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
// floor_div, ceil_div, sqrt, log, cos, philox, randn.

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  N >= 0
extern "C" int64_t add_noise(
    const float *__restrict X, float *__restrict Y, int64_t N, double sigma, int64_t seed)
{
    constexpr int64_t T = 2048;

    if (N < 0) {
        return 1;
    }
    const bool Y_streams = sketch::streams(sizeof(float), {N});
    const int threads = sketch::threads_for(N * 10);
    #pragma omp parallel num_threads(threads)
    {
        #pragma omp for schedule(static)
        for (int64_t i = 0; i < sketch::ceil_div(N, T); ++i) {
            // randn(seed, i*T + iota(T), noise)
            // load(X[i*T:(i+1)*T] -> x)
            // fma(noise, sigma, x, x)
            // store(x -> Y[i*T:(i+1)*T])
            const float *const X_row = X + i * T;
            for (int64_t block = 0; block < std::min<int64_t>(T, N - i * T); block += 1024) {
                const int64_t block_end = std::min<int64_t>(std::min<int64_t>(T, N - i * T), block +
                    1024);
                alignas(64) float Y_block[1024];
                float *const Y_row = Y_streams ? Y_block : Y + (i * T + block);
                #pragma omp simd
                for (int64_t lane = block; lane < block_end; ++lane) {
                    const float noise = static_cast<float>(sketch::randn(seed, i * T + lane));
                    const float x = X_row[lane];
                    const float x_fma = noise * static_cast<float>(sigma) + x;
                    Y_row[lane - block] = x_fma;
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
