// depthwise_conv2d: a C++ kernel for cpu, made from a sketch.

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
//   2  OH >= 0
//   3  OW >= 0
//   4  stride >= 1 and dilation >= 1 and padding >= 0
//   5  N >= 0 and C >= 0 and H >= 0 and W >= 0 and KH >= 0 and KW >= 0
//   6  fewer than 2**48 elements in each tensor
//   7  integers that stay within 64 bits
extern "C" int64_t depthwise_conv2d(
    const float *__restrict X, const float *__restrict WEIGHT, float *__restrict Y, int64_t N,
    int64_t C, int64_t H, int64_t W, int64_t KH, int64_t KW, int64_t stride, int64_t padding,
    int64_t dilation)
{
    constexpr int64_t T = 256;

    if (N < 0 || C < 0 || H < 0 || W < 0 || KH < 0 || KW < 0) {
        return 5;
    }
    if (stride < 1) {
        return 1;
    }
    if (stride < 1 || dilation < 1 || padding < 0) {
        return 4;
    }
    [[maybe_unused]] const int64_t OH = sketch::floor_div(H + 2 * padding - dilation * (KH - 1) - 1,
        stride) + 1;
    if (OH < 0) {
        return 2;
    }
    [[maybe_unused]] const int64_t OW = sketch::floor_div(W + 2 * padding - dilation * (KW - 1) - 1,
        stride) + 1;
    if (OW < 0) {
        return 3;
    }
    if (sketch::too_large({N, C, H, W}) || sketch::too_large({C, KH, KW}) || sketch::too_large({N,
        C, OH, OW})) {
        return 6;
    }
    if ((sketch::natural(KH) * dilation + sketch::natural(KW) * dilation + sketch::natural(OH) *
        stride + sketch::natural(OW) * stride + dilation + sketch::natural(2) * padding +
        sketch::natural(512) * stride).reaches(UINT64_C(9222246136947933184))) {
        return 7;
    }
    const bool Y_streams = sketch::streams(sizeof(float), {N, C, OH, OW});
    const int threads = sketch::threads_for(N * C * OH * (OW * (KH * KW * 5 + 4) + KH * KW *
        sketch::ceil_div(OW, T) * 4));
    #pragma omp parallel num_threads(threads)
    {
        #pragma omp for collapse(4) schedule(static)
        for (int64_t n = 0; n < N; ++n) {
            for (int64_t c = 0; c < C; ++c) {
                for (int64_t oh = 0; oh < OH; ++oh) {
                    for (int64_t j = 0; j < sketch::ceil_div(OW, T); ++j) {
                        alignas(64) float y[T];
                        // y = alloc([T], init=0.0)
                        #pragma omp simd
                        for (int64_t lane = 0; lane < std::min<int64_t>(T, OW - j * T); ++lane) {
                            y[lane] = 0.0f;
                        }
                        // for kh in range(KH):
                        for (int64_t kh = 0; kh < KH; ++kh) {
                            // h = oh*stride + kh*dilation - padding
                            const int64_t h = oh * stride + kh * dilation - padding;
                            // if h >= 0 and h < H:
                            if (h >= 0 && h < H) {
                                // for kw in range(KW):
                                for (int64_t kw = 0; kw < KW; ++kw) {
                                    // first = j*T*stride + kw*dilation - padding
                                    const int64_t first_ = j * T * stride + kw * dilation - padding;
                                    // load(X[n, c, h, first:first+T*stride:stride] -> x, pad=0)
                                    // load(WEIGHT[c, 0, kh, kw] -> w)
                                    // fma(x, w, y, y)
                                    const float w = WEIGHT[(c * KH + kh) * KW + kw];
                                    const int64_t part_ = sketch::floor_div(-first_ - 1, stride) +
                                        1;
                                    const int64_t part_2 = sketch::floor_div(W - first_ - 1, stride)
                                        + 1;
                                    const int64_t first_inside =
                                        std::min<int64_t>(std::max<int64_t>(0, part_),
                                        std::min<int64_t>(T, OW - j * T));
                                    const int64_t last_inside = std::max<int64_t>(first_inside,
                                        std::min<int64_t>(std::min<int64_t>(T, OW - j * T),
                                        part_2));
                                    #pragma omp simd
                                    for (int64_t lane = 0; lane < first_inside; ++lane) {
                                        const float x = 0.0f;
                                        const float y_value = y[lane];
                                        const float y_value_2 = x * w + y_value;
                                        y[lane] = y_value_2;
                                    }
                                    #pragma omp simd
                                    for (int64_t lane = first_inside; lane < last_inside; ++lane) {
                                        const float x = X[((n * C + c) * H + h) * W + (first_ + lane
                                            * stride)];
                                        const float y_value = y[lane];
                                        const float y_value_2 = x * w + y_value;
                                        y[lane] = y_value_2;
                                    }
                                    #pragma omp simd
                                    for (int64_t lane = last_inside; lane < std::min<int64_t>(T, OW
                                        - j * T); ++lane) {
                                        const float x = 0.0f;
                                        const float y_value = y[lane];
                                        const float y_value_2 = x * w + y_value;
                                        y[lane] = y_value_2;
                                    }
                                }
                            }
                        }
                        // store(y -> Y[n, c, oh, j*T:(j+1)*T])
                        for (int64_t block = 0; block < std::min<int64_t>(T, OW - j * T); block +=
                            1024) {
                            const int64_t block_end = std::min<int64_t>(std::min<int64_t>(T, OW - j
                                * T), block + 1024);
                            alignas(64) float Y_block[1024];
                            float *const Y_row = Y_streams ? Y_block : Y + (((n * C + c) * OH + oh)
                                * OW + j * T + block);
                            #pragma omp simd
                            for (int64_t lane = block; lane < block_end; ++lane) {
                                const float y_value = y[lane];
                                Y_row[lane - block] = y_value;
                            }
                            if (Y_streams) {
                                sketch::stream(Y + (((n * C + c) * OH + oh) * OW + j * T + block),
                                    Y_block, block_end - block);
                            }
                        }
                    }
                }
            }
        }
        sketch::end_streams();
    }
    return 0;
}
