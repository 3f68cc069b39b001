// block_scale: a C++ kernel for cpu, made from a sketch.

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
// floor_div, ceil_div, absolute, max, tile, lane_at, next_lane, reshape, propagating_max.

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  M >= 0
extern "C" int64_t block_scale(
    const float *__restrict X, float *__restrict Y, float *__restrict SCALE, int64_t M)
{
    constexpr int64_t T = 16;

    if (M < 0) {
        return 1;
    }
    const bool Y_streams = sketch::streams(sizeof(float), {M, 256});
    {
        const int threads = sketch::threads_for(M * 3376);
        // Scratch memory of each thread.
        sketch::arena arena;
        const int64_t reshape_0_place = arena.add(sizeof(float), {T, 256});
        const int64_t reshape_result_place = arena.add(sizeof(float), {T, 8, 32});
        const int64_t reshape_0_2_place = arena.add(sizeof(float), {T, 8, 32});
        const int64_t reshape_result_2_place = arena.add(sizeof(float), {T, 256});
        const int64_t y_place = arena.add(sizeof(float), {T, 256});
        if (!arena.allocate(threads)) {
            return -1;
        }
        #pragma omp parallel num_threads(threads)
        {
            float *const __restrict reshape_0 = arena.at<float>(reshape_0_place,
                omp_get_thread_num());
            float *const __restrict reshape_result = arena.at<float>(reshape_result_place,
                omp_get_thread_num());
            float *const __restrict reshape_0_2 = arena.at<float>(reshape_0_2_place,
                omp_get_thread_num());
            float *const __restrict reshape_result_2 = arena.at<float>(reshape_result_2_place,
                omp_get_thread_num());
            float *const __restrict y = arena.at<float>(y_place, omp_get_thread_num());
            #pragma omp for schedule(static)
            for (int64_t i = 0; i < sketch::ceil_div(M, T); ++i) {
                alignas(64) float block[32];
                alignas(64) float scale_max[T * 8];
                alignas(64) float reshape_0_3[T * 8 * 1];
                alignas(64) float reshape_result_3[T * 8];
                for (int64_t row = 0; row < std::min<int64_t>(T, M - i * T); ++row) {
                    // load(X[i*T:(i+1)*T, 0:256] -> x)
                    const float *const X_row = X + (i * T + row) * 256;
                    float *const reshape_0_row = reshape_0 + row * 256;
                    #pragma omp simd
                    for (int64_t lane = 0; lane < 256; ++lane) {
                        const float x = X_row[lane];
                        reshape_0_row[lane] = x;
                    }
                }
                // reshape(x, block)
                sketch::reshape(
                    sketch::tile<const float, 2>{reshape_0, {0, 0}, {std::min<int64_t>(T, M - i *
                        T), 256}, {256, 1}},
                    sketch::tile<float, 3>{reshape_result, {0, 0, 0}, {std::min<int64_t>(T, M - i *
                        T), 8, 32}, {8 * 32, 32, 1}});
                for (int64_t plane = 0; plane < std::min<int64_t>(T, M - i * T); ++plane) {
                    for (int64_t row = 0; row < 8; ++row) {
                        float scale = -std::numeric_limits<float>::infinity();
                        // abs(block, size)
                        // reduce_max(size, 2, scale)
                        const float *const reshape_result_row = reshape_result + (plane * 8 + row) *
                            32;
                        #pragma omp simd reduction(propagating_max : scale)
                        for (int64_t lane = 0; lane < 32; ++lane) {
                            const float reshape_result_value = reshape_result_row[lane];
                            block[lane] = reshape_result_value;
                            const float size = sketch::absolute(reshape_result_value);
                            scale = sketch::max(scale, size);
                        }
                        // max(scale, 1e-12, scale)
                        const float scale_max_value = sketch::max(scale, 1e-12f);
                        scale_max[plane * 8 + row] = scale_max_value;
                        // div(block, scale, block)
                        float *const reshape_0_2_row = reshape_0_2 + (plane * 8 + row) * 32;
                        #pragma omp simd
                        for (int64_t lane = 0; lane < 32; ++lane) {
                            const float block_value = block[lane];
                            const float block_div = block_value / scale_max_value;
                            const float reshape_0_2_value = block_div;
                            reshape_0_2_row[lane] = reshape_0_2_value;
                        }
                    }
                }
                // reshape(block, y)
                sketch::reshape(
                    sketch::tile<const float, 3>{reshape_0_2, {0, 0, 0}, {std::min<int64_t>(T, M - i
                        * T), 8, 32}, {8 * 32, 32, 1}},
                    sketch::tile<float, 2>{reshape_result_2, {0, 0}, {std::min<int64_t>(T, M - i *
                        T), 256}, {256, 1}});
                for (int64_t row = 0; row < std::min<int64_t>(T, M - i * T); ++row) {
                    const float *const reshape_result_2_row = reshape_result_2 + row * 256;
                    float *const y_row = y + row * 256;
                    #pragma omp simd
                    for (int64_t lane = 0; lane < 256; ++lane) {
                        const float reshape_result_2_value = reshape_result_2_row[lane];
                        y_row[lane] = reshape_result_2_value;
                    }
                    const float *const scale_max_row = scale_max + row * 8;
                    float *const reshape_0_3_row = reshape_0_3 + row * 8;
                    #pragma omp simd
                    for (int64_t lane = 0; lane < 8; ++lane) {
                        const float scale_max_value = scale_max_row[lane];
                        reshape_0_3_row[lane] = scale_max_value;
                    }
                }
                // reshape(scale, flat)
                sketch::reshape(
                    sketch::tile<const float, 3>{reshape_0_3, {0, 0, 0}, {std::min<int64_t>(T, M - i
                        * T), 8, 1}, {8, 1, 1}},
                    sketch::tile<float, 2>{reshape_result_3, {0, 0}, {std::min<int64_t>(T, M - i *
                        T), 8}, {8, 1}});
                for (int64_t row = 0; row < std::min<int64_t>(T, M - i * T); ++row) {
                    // store(flat -> SCALE[i*T:(i+1)*T, 0:8])
                    const float *const reshape_result_3_row = reshape_result_3 + row * 8;
                    float *const SCALE_row = SCALE + (i * T + row) * 8;
                    #pragma omp simd
                    for (int64_t lane = 0; lane < 8; ++lane) {
                        const float reshape_result_3_value = reshape_result_3_row[lane];
                        const float flat = reshape_result_3_value;
                        SCALE_row[lane] = flat;
                    }
                    // store(y -> Y[i*T:(i+1)*T, 0:256])
                    const float *const y_row_2 = y + row * 256;
                    for (int64_t block_2 = 0; block_2 < 256; block_2 += 1024) {
                        const int64_t block_2_end = std::min<int64_t>(256, block_2 + 1024);
                        alignas(64) float Y_block[1024];
                        float *const Y_row = Y_streams ? Y_block : Y + ((i * T + row) * 256 +
                            block_2);
                        #pragma omp simd
                        for (int64_t lane = block_2; lane < block_2_end; ++lane) {
                            const float y_value = y_row_2[lane];
                            Y_row[lane - block_2] = y_value;
                        }
                        if (Y_streams) {
                            sketch::stream(Y + ((i * T + row) * 256 + block_2), Y_block, block_2_end
                                - block_2);
                        }
                    }
                }
            }
            sketch::end_streams();
        }
    }
    return 0;
}
