// rms_norm: a C++ kernel for cpu, made from a sketch.

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
// floor_div, ceil_div, max, sqrt, too_large.

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  B >= 0 and F >= 0 and D1 >= 0 and D2 >= 0
//   2  D2 <= 4096
//   3  fewer than 2**48 elements in each tensor
extern "C" int64_t rms_norm(
    const float *__restrict X, float *__restrict Y, int64_t B, int64_t F, int64_t D1, int64_t D2,
    double eps)
{
    constexpr int64_t TILE_SIZE = 1;

    if (B < 0 || F < 0 || D1 < 0 || D2 < 0) {
        return 1;
    }
    if (D2 > 4096) {
        return 2;
    }
    if (sketch::too_large({B, F, D1, D2})) {
        return 3;
    }
    const bool Y_streams = sketch::streams(sizeof(float), {B, F, D1, D2});
    {
        const int threads = sketch::threads_for(D1 * B * D2 * (F * 15 + 3));
        // Scratch memory of each thread.
        sketch::arena arena;
        const int64_t square_sum_place = arena.add(sizeof(float), {TILE_SIZE, D2});
        const int64_t rms_row_sqrt_place = arena.add(sizeof(float), {TILE_SIZE, D2});
        if (!arena.allocate(threads)) {
            return -1;
        }
        #pragma omp parallel num_threads(threads)
        {
            float *const __restrict square_sum = arena.at<float>(square_sum_place,
                omp_get_thread_num());
            float *const __restrict rms_row_sqrt = arena.at<float>(rms_row_sqrt_place,
                omp_get_thread_num());
            #pragma omp for collapse(2) schedule(static)
            for (int64_t b = 0; b < B; ++b) {
                for (int64_t d1_outer = 0; d1_outer < sketch::ceil_div(D1, TILE_SIZE); ++d1_outer) {
                    for (int64_t row = 0; row < TILE_SIZE; ++row) {
                        // square_sum = alloc([TILE_SIZE, D2], init=0.0)
                        float *const square_sum_row = square_sum + row * D2;
                        #pragma omp simd
                        for (int64_t lane = 0; lane < D2; ++lane) {
                            square_sum_row[lane] = 0.0f;
                        }
                    }
                    // for f in range(F):
                    for (int64_t f = 0; f < F; ++f) {
                        for (int64_t row = 0; row < TILE_SIZE; ++row) {
                            // load(X[b, f, d1_outer*TILE_SIZE:(d1_outer+1)*TILE_SIZE, 0:D2] -> x_row)
                            // mul(x_row, x_row, square_row)
                            // add(square_sum, square_row, square_sum)
                            const float *const X_row = X + ((b * F + f) * D1 + (d1_outer * TILE_SIZE
                                + row)) * D2;
                            float *const square_sum_row_2 = square_sum + row * D2;
                            #pragma omp simd
                            for (int64_t lane = 0; lane < D2; ++lane) {
                                const float x_row = X_row[lane];
                                const float square_row = x_row * x_row;
                                const float square_sum_value = square_sum_row_2[lane];
                                const float square_sum_value_2 = square_sum_value + square_row;
                                square_sum_row_2[lane] = square_sum_value_2;
                            }
                        }
                    }
                    for (int64_t row = 0; row < TILE_SIZE; ++row) {
                        // div(square_sum, F, rms_row)
                        // add(rms_row, eps, rms_row)
                        // sqrt(rms_row, rms_row)
                        const float *const square_sum_row_3 = square_sum + row * D2;
                        float *const rms_row_sqrt_row = rms_row_sqrt + row * D2;
                        #pragma omp simd
                        for (int64_t lane = 0; lane < D2; ++lane) {
                            const float square_sum_value = square_sum_row_3[lane];
                            const float rms_row = square_sum_value / static_cast<float>(F);
                            const float rms_row_add = rms_row + static_cast<float>(eps);
                            const float rms_row_sqrt_value = sketch::sqrt(rms_row_add);
                            rms_row_sqrt_row[lane] = rms_row_sqrt_value;
                        }
                    }
                    // for f in range(F):
                    for (int64_t f_2 = 0; f_2 < F; ++f_2) {
                        for (int64_t row = 0; row < TILE_SIZE; ++row) {
                            // load(X[b, f, d1_outer*TILE_SIZE:(d1_outer+1)*TILE_SIZE, 0:D2] -> x_row)
                            // div(x_row, rms_row, y_row)
                            // store(y_row -> Y[b, f, d1_outer*TILE_SIZE:(d1_outer+1)*TILE_SIZE, 0:D2])
                            const float *const X_row_2 = X + ((b * F + f_2) * D1 + (d1_outer *
                                TILE_SIZE + row)) * D2;
                            const float *const rms_row_sqrt_row_2 = rms_row_sqrt + row * D2;
                            for (int64_t block = 0; block < D2; block += 1024) {
                                const int64_t block_end = std::min<int64_t>(D2, block + 1024);
                                alignas(64) float Y_block[1024];
                                float *const Y_row = Y_streams ? Y_block : Y + (((b * F + f_2) * D1
                                    + (d1_outer * TILE_SIZE + row)) * D2 + block);
                                #pragma omp simd
                                for (int64_t lane = block; lane < block_end; ++lane) {
                                    const float x_row_2 = X_row_2[lane];
                                    const float rms_row_sqrt_value = rms_row_sqrt_row_2[lane];
                                    const float y_row = x_row_2 / rms_row_sqrt_value;
                                    Y_row[lane - block] = y_row;
                                }
                                if (Y_streams) {
                                    sketch::stream(Y + (((b * F + f_2) * D1 + (d1_outer * TILE_SIZE
                                        + row)) * D2 + block), Y_block, block_end - block);
                                }
                            }
                        }
                    }
                }
            }
            sketch::end_streams();
        }
    }
    return 0;
}
