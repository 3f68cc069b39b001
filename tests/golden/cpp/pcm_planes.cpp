// pcm_planes: a C++ kernel for cpu, made from a sketch.

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

// The library: arena, least_shared_work, threads_for, cache_bytes, streams, stream, end_streams,
// floor_div, ceil_div, max, at_least, at_most, too_large.

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  N >= 0 and C >= 0
//   2  C <= 8
//   3  fewer than 2**48 elements in each tensor
extern "C" int64_t pcm_planes(
    const int16_t *__restrict SAMPLES, float *__restrict Y, int64_t N, int64_t C, double gain)
{
    constexpr int64_t T = 1024;

    // gain is of type f32.
    gain = static_cast<float>(gain);
    if (N < 0 || C < 0) {
        return 1;
    }
    if (C > 8) {
        return 2;
    }
    [[maybe_unused]] const double step = static_cast<double>(gain / 32768.0);
    if (sketch::too_large({N, C})) {
        return 3;
    }
    const bool Y_streams = sketch::streams(sizeof(float), {C, N});
    {
        const int threads = sketch::threads_for(N * C * 10);
        // Scratch memory of each thread.
        sketch::arena arena;
        const int64_t y_clamp_place = arena.add(sizeof(float), {T, C});
        if (!arena.allocate(threads)) {
            return -1;
        }
        #pragma omp parallel num_threads(threads)
        {
            float *const __restrict y_clamp = arena.at<float>(y_clamp_place, omp_get_thread_num());
            #pragma omp for schedule(static)
            for (int64_t i = 0; i < sketch::ceil_div(N, T); ++i) {
                for (int64_t row = 0; row < std::min<int64_t>(T, N - i * T); ++row) {
                    // load(SAMPLES[i*T:(i+1)*T, 0:C] -> sample)
                    // cast(sample, y)
                    // mul(y, step, y)
                    // clamp(y, y, low=-1, high=1)
                    const int16_t *const SAMPLES_row = SAMPLES + (i * T + row) * C;
                    float *const y_clamp_row = y_clamp + row * C;
                    #pragma omp simd
                    for (int64_t lane = 0; lane < C; ++lane) {
                        const int16_t sample = SAMPLES_row[lane];
                        const float y = static_cast<float>(sample);
                        const float y_mul = y * static_cast<float>(step);
                        const float y_clamp_value = sketch::at_most(sketch::at_least(y_mul, -1.0f),
                            1.0f);
                        y_clamp_row[lane] = y_clamp_value;
                    }
                }
                for (int64_t row = 0; row < C; ++row) {
                    // transpose(y, plane)
                    // store(plane -> Y[0:C, i*T:(i+1)*T])
                    for (int64_t block = 0; block < std::min<int64_t>(T, N - i * T); block +=
                        1024) {
                        const int64_t block_end = std::min<int64_t>(std::min<int64_t>(T, N - i * T),
                            block + 1024);
                        alignas(64) float Y_block[1024];
                        float *const Y_row = Y_streams ? Y_block : Y + (row * N + i * T + block);
                        #pragma omp simd
                        for (int64_t lane = block; lane < block_end; ++lane) {
                            const float y_clamp_value = y_clamp[lane * C + row];
                            const float plane = y_clamp_value;
                            Y_row[lane - block] = plane;
                        }
                        if (Y_streams) {
                            sketch::stream(Y + (row * N + i * T + block), Y_block, block_end -
                                block);
                        }
                    }
                }
            }
            sketch::end_streams();
        }
    }
    return 0;
}
