// sum_middle: a C++ kernel for cpu, made from a sketch.

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
// floor_div, ceil_div, max, too_large.

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  B >= 0 and M >= 0 and N >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t sum_middle(
    const float *__restrict X, float *__restrict Y, int64_t B, int64_t M, int64_t N)
{
    constexpr int64_t TM = 8;
    constexpr int64_t TN = 512;

    if (B < 0 || M < 0 || N < 0) {
        return 1;
    }
    if (sketch::too_large({B, M, N})) {
        return 2;
    }
    const bool Y_streams = sketch::streams(sizeof(float), {B, N});
    {
        const int threads = sketch::threads_for(N * B * (M * 5 + (TM + 4)));
        // Scratch memory of each thread.
        sketch::arena arena;
        const int64_t lanes_place = arena.add(sizeof(float), {TM, TN});
        if (!arena.allocate(threads)) {
            return -1;
        }
        #pragma omp parallel num_threads(threads)
        {
            float *const __restrict lanes = arena.at<float>(lanes_place, omp_get_thread_num());
            #pragma omp for collapse(2) schedule(static)
            for (int64_t b = 0; b < B; ++b) {
                for (int64_t j = 0; j < sketch::ceil_div(N, TN); ++j) {
                    alignas(64) float total[TN];
                    for (int64_t row = 0; row < std::min<int64_t>(TM, M); ++row) {
                        // lanes = alloc([TM, TN], init=0.0)
                        float *const lanes_row = lanes + row * TN;
                        #pragma omp simd
                        for (int64_t lane = 0; lane < std::min<int64_t>(TN, N - j * TN); ++lane) {
                            lanes_row[lane] = 0.0f;
                        }
                    }
                    // for m in range(ceil(M, TM)):
                    for (int64_t m = 0; m < sketch::ceil_div(M, TM); ++m) {
                        for (int64_t row = 0; row < std::min<int64_t>(TM, M - m * TM); ++row) {
                            // load(X[b, m*TM:(m+1)*TM, j*TN:(j+1)*TN] -> x)
                            // add(lanes, x, lanes)
                            float *const lanes_row_2 = lanes + row * TN;
                            const float *const X_row = X + ((b * M + (m * TM + row)) * N + j * TN);
                            #pragma omp simd
                            for (int64_t lane = 0; lane < std::min<int64_t>(TN, N - j * TN);
                                ++lane) {
                                const float lanes_value = lanes_row_2[lane];
                                const float x = X_row[lane];
                                const float lanes_value_2 = lanes_value + x;
                                lanes_row_2[lane] = lanes_value_2;
                            }
                        }
                    }
                    #pragma omp simd
                    for (int64_t lane = 0; lane < std::min<int64_t>(TN, N - j * TN); ++lane) {
                        total[lane] = 0.0f;
                    }
                    // reduce_sum(lanes, 0, total)
                    const int64_t row_whole =
                        sketch::floor_div(std::max<int64_t>(std::min<int64_t>(TM, M), 0), 8) * 8;
                    for (int64_t row = 0; row < row_whole; row += 8) {
                        #pragma omp simd
                        for (int64_t lane = 0; lane < std::min<int64_t>(TN, N - j * TN); ++lane) {
                            float row_sum = 0.0f;
                            #pragma GCC unroll 16
                            for (int64_t row_next = 0; row_next < 8; ++row_next) {
                                const float lanes_value = lanes[(row + row_next) * TN + lane];
                                row_sum += lanes_value;
                            }
                            total[lane] += row_sum;
                        }
                    }
                    for (int64_t row = row_whole; row < std::min<int64_t>(TM, M); ++row) {
                        const float *const lanes_row_3 = lanes + row * TN;
                        #pragma omp simd
                        for (int64_t lane = 0; lane < std::min<int64_t>(TN, N - j * TN); ++lane) {
                            const float lanes_value = lanes_row_3[lane];
                            total[lane] += lanes_value;
                        }
                    }
                    // store(total -> Y[b, j*TN:(j+1)*TN])
                    for (int64_t block = 0; block < std::min<int64_t>(TN, N - j * TN); block +=
                        1024) {
                        const int64_t block_end = std::min<int64_t>(std::min<int64_t>(TN, N - j *
                            TN), block + 1024);
                        alignas(64) float Y_block[1024];
                        float *const Y_row = Y_streams ? Y_block : Y + (b * N + j * TN + block);
                        #pragma omp simd
                        for (int64_t lane = block; lane < block_end; ++lane) {
                            const float total_value = total[lane];
                            Y_row[lane - block] = total_value;
                        }
                        if (Y_streams) {
                            sketch::stream(Y + (b * N + j * TN + block), Y_block, block_end -
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
