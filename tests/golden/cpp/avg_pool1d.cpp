// avg_pool1d: a C++ kernel for cpu, made from a sketch.

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
// floor_div, ceil_div, max, natural, too_large.

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  stride >= 1
//   2  OL >= 0
//   3  kernel_size >= 1 and stride >= 1
//   4  padding >= 0 and 2*padding <= kernel_size
//   5  N >= 0 and C >= 0 and L >= 0
//   6  fewer than 2**48 elements in each tensor
//   7  integers that stay within 64 bits
extern "C" int64_t avg_pool1d(
    const float *__restrict X, float *__restrict Y, int64_t N, int64_t C, int64_t L, int64_t
    kernel_size, int64_t stride, int64_t padding, int64_t count_include_pad)
{
    constexpr int64_t T = 512;

    if (N < 0 || C < 0 || L < 0) {
        return 5;
    }
    if (stride < 1) {
        return 1;
    }
    if (kernel_size < 1 || stride < 1) {
        return 3;
    }
    if (padding < 0 || 2 * padding > kernel_size) {
        return 4;
    }
    [[maybe_unused]] const int64_t OL = sketch::floor_div(L + 2 * padding - kernel_size, stride) +
        1;
    if (OL < 0) {
        return 2;
    }
    if (sketch::too_large({N, C, L}) || sketch::too_large({N, C, OL})) {
        return 6;
    }
    if ((sketch::natural(2) * OL * stride + kernel_size + sketch::natural(2) * padding +
        sketch::natural(2046) * stride).reaches(UINT64_C(9222246136947933184))) {
        return 7;
    }
    const bool Y_streams = sketch::streams(sizeof(float), {N, C, OL});
    const int threads = sketch::threads_for(OL * N * C * (kernel_size * 5 + 6));
    #pragma omp parallel num_threads(threads)
    {
        #pragma omp for collapse(3) schedule(static)
        for (int64_t n = 0; n < N; ++n) {
            for (int64_t c = 0; c < C; ++c) {
                for (int64_t j = 0; j < sketch::ceil_div(OL, T); ++j) {
                    alignas(64) float y[T];
                    // y = alloc([T], init=0.0)
                    #pragma omp simd
                    for (int64_t lane = 0; lane < std::min<int64_t>(T, OL - j * T); ++lane) {
                        y[lane] = 0.0f;
                    }
                    // for k in range(kernel_size):
                    for (int64_t k = 0; k < kernel_size; ++k) {
                        // first = j*T*stride + k - padding
                        const int64_t first_ = j * T * stride + k - padding;
                        // load(X[n, c, first:first+T*stride:stride] -> x, pad=0)
                        // add(y, x, y)
                        const int64_t part_ = sketch::floor_div(-first_ - 1, stride) + 1;
                        const int64_t part_2 = sketch::floor_div(L - first_ - 1, stride) + 1;
                        const int64_t first_inside = std::min<int64_t>(std::max<int64_t>(0, part_),
                            std::min<int64_t>(T, OL - j * T));
                        const int64_t last_inside = std::max<int64_t>(first_inside,
                            std::min<int64_t>(std::min<int64_t>(T, OL - j * T), part_2));
                        #pragma omp simd
                        for (int64_t lane = 0; lane < first_inside; ++lane) {
                            const float y_value = y[lane];
                            const float x = 0.0f;
                            const float y_value_2 = y_value + x;
                            y[lane] = y_value_2;
                        }
                        #pragma omp simd
                        for (int64_t lane = first_inside; lane < last_inside; ++lane) {
                            const float y_value = y[lane];
                            const float x = X[(n * C + c) * L + (first_ + lane * stride)];
                            const float y_value_2 = y_value + x;
                            y[lane] = y_value_2;
                        }
                        #pragma omp simd
                        for (int64_t lane = last_inside; lane < std::min<int64_t>(T, OL - j * T);
                            ++lane) {
                            const float y_value = y[lane];
                            const float x = 0.0f;
                            const float y_value_2 = y_value + x;
                            y[lane] = y_value_2;
                        }
                    }
                    // if count_include_pad:
                    if (count_include_pad) {
                        // div(y, kernel_size, y)
                        #pragma omp simd
                        for (int64_t lane = 0; lane < std::min<int64_t>(T, OL - j * T); ++lane) {
                            const float y_value = y[lane];
                            const float y_value_2 = y_value / static_cast<float>(kernel_size);
                            y[lane] = y_value_2;
                        }
                    } else {
                        // start = (j*T+iota(T))*stride - padding
                        // div(y, min(start + kernel_size, L) - max(start, 0), y)
                        #pragma omp simd
                        for (int64_t lane = 0; lane < std::min<int64_t>(T, OL - j * T); ++lane) {
                            const float y_value = y[lane];
                            const float y_value_2 = y_value /
                                static_cast<float>(std::min<int64_t>((j * T + lane) * stride -
                                padding + kernel_size, L) - std::max<int64_t>((j * T + lane) *
                                stride - padding, 0));
                            y[lane] = y_value_2;
                        }
                    }
                    // store(y -> Y[n, c, j*T:(j+1)*T])
                    for (int64_t block = 0; block < std::min<int64_t>(T, OL - j * T); block +=
                        1024) {
                        const int64_t block_end = std::min<int64_t>(std::min<int64_t>(T, OL - j *
                            T), block + 1024);
                        alignas(64) float Y_block[1024];
                        float *const Y_row = Y_streams ? Y_block : Y + ((n * C + c) * OL + j * T +
                            block);
                        #pragma omp simd
                        for (int64_t lane = block; lane < block_end; ++lane) {
                            const float y_value = y[lane];
                            Y_row[lane - block] = y_value;
                        }
                        if (Y_streams) {
                            sketch::stream(Y + ((n * C + c) * OL + j * T + block), Y_block,
                                block_end - block);
                        }
                    }
                }
            }
        }
        sketch::end_streams();
    }
    return 0;
}
