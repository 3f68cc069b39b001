// avg_pool3d: a C++ kernel for cpu, made from a sketch.

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

// The library: cache_bytes, streams, stream, end_streams, floor_div, ceil_div, max, natural,
// too_large.

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  stride >= 1
//   2  OD >= 0
//   3  OH >= 0
//   4  OW >= 0
//   5  kernel_size >= 1 and stride >= 1
//   6  padding >= 0 and 2*padding <= kernel_size
//   7  N >= 0 and C >= 0 and D >= 0 and H >= 0 and W >= 0
//   8  fewer than 2**48 elements in each tensor
//   9  integers that stay within 64 bits
extern "C" int64_t avg_pool3d(
    const float *__restrict X, float *__restrict Y, int64_t N, int64_t C, int64_t D, int64_t H,
    int64_t W, int64_t kernel_size, int64_t stride, int64_t padding)
{
    constexpr int64_t TH = 16;
    constexpr int64_t TW = 64;

    if (N < 0 || C < 0 || D < 0 || H < 0 || W < 0) {
        return 7;
    }
    if (stride < 1) {
        return 1;
    }
    if (kernel_size < 1 || stride < 1) {
        return 5;
    }
    if (padding < 0 || 2 * padding > kernel_size) {
        return 6;
    }
    [[maybe_unused]] const int64_t OD = sketch::floor_div(D + 2 * padding - kernel_size, stride) +
        1;
    if (OD < 0) {
        return 2;
    }
    [[maybe_unused]] const int64_t OH = sketch::floor_div(H + 2 * padding - kernel_size, stride) +
        1;
    if (OH < 0) {
        return 3;
    }
    [[maybe_unused]] const int64_t OW = sketch::floor_div(W + 2 * padding - kernel_size, stride) +
        1;
    if (OW < 0) {
        return 4;
    }
    if (sketch::too_large({N, C, D, H, W}) || sketch::too_large({N, C, OD, OH, OW})) {
        return 8;
    }
    if ((sketch::natural(kernel_size) * kernel_size * kernel_size + sketch::natural(OD) * stride +
        sketch::natural(OH) * stride + sketch::natural(OW) * stride + sketch::natural(kernel_size) *
        kernel_size + kernel_size + sketch::natural(2) * padding + sketch::natural(128) *
        stride).reaches(UINT64_C(9222246136947933184))) {
        return 9;
    }
    const bool Y_streams = sketch::streams(sizeof(float), {N, C, OD, OH, OW});
    #pragma omp parallel
    {
        #pragma omp for collapse(4) schedule(static)
        for (int64_t n = 0; n < N * C; ++n) {
            for (int64_t od = 0; od < OD; ++od) {
                for (int64_t i = 0; i < sketch::ceil_div(OH, TH); ++i) {
                    for (int64_t j = 0; j < sketch::ceil_div(OW, TW); ++j) {
                        alignas(64) float y[TH * TW];
                        // front = od*stride - padding
                        const int64_t front = od * stride - padding;
                        for (int64_t row = 0; row < std::min<int64_t>(TH, OH - i * TH); ++row) {
                            // y = alloc([TH, TW], init=0.0)
                            float *const y_row = y + row * TW;
                            #pragma omp simd
                            for (int64_t lane = 0; lane < std::min<int64_t>(TW, OW - j * TW);
                                ++lane) {
                                y_row[lane] = 0.0f;
                            }
                        }
                        // for d in range(max(front, 0), min(front + kernel_size, D)):
                        for (int64_t d = std::max<int64_t>(front, 0); d < std::min<int64_t>(front +
                            kernel_size, D); ++d) {
                            // for kh in range(kernel_size):
                            for (int64_t kh = 0; kh < kernel_size; ++kh) {
                                // for kw in range(kernel_size):
                                for (int64_t kw = 0; kw < kernel_size; ++kw) {
                                    // h = i*TH*stride + kh - padding
                                    const int64_t h = i * TH * stride + kh - padding;
                                    // w = j*TW*stride + kw - padding
                                    const int64_t w = j * TW * stride + kw - padding;
                                    const int64_t part_ = sketch::floor_div(-h - 1, stride) + 1;
                                    const int64_t part_2 = sketch::floor_div(H - h - 1, stride) + 1;
                                    const int64_t part_3 = sketch::floor_div(-w - 1, stride) + 1;
                                    const int64_t part_4 = sketch::floor_div(W - w - 1, stride) + 1;
                                    for (int64_t row = 0; row < std::min<int64_t>(TH, OH - i * TH);
                                        ++row) {
                                        // load(XV[n, d, h:h+TH*stride:stride, w:w+TW*stride:stride] -> x, pad=0)
                                        // add(y, x, y)
                                        const int64_t part_5 = part_ <= row;
                                        const int64_t part_6 = row < part_2;
                                        const int64_t first_inside =
                                            std::min<int64_t>(std::max<int64_t>(0, part_3),
                                            std::min<int64_t>(TW, OW - j * TW));
                                        const int64_t last_inside = std::max<int64_t>(first_inside,
                                            std::min<int64_t>(std::min<int64_t>(TW, OW - j * TW),
                                            part_4));
                                        float *const y_row_2 = y + row * TW;
                                        #pragma omp simd
                                        for (int64_t lane = 0; lane < first_inside; ++lane) {
                                            const float y_value = y_row_2[lane];
                                            const float x = 0.0f;
                                            const float y_value_2 = y_value + x;
                                            y_row_2[lane] = y_value_2;
                                        }
                                        float *const y_row_3 = y + row * TW;
                                        #pragma omp simd
                                        for (int64_t lane = first_inside; lane < last_inside;
                                            ++lane) {
                                            const float y_value = y_row_3[lane];
                                            const float x = (part_5 && part_6) ? X[((n * D + d) * H
                                                + (h + row * stride)) * W + (w + lane * stride)] :
                                                0.0f;
                                            const float y_value_2 = y_value + x;
                                            y_row_3[lane] = y_value_2;
                                        }
                                        float *const y_row_4 = y + row * TW;
                                        #pragma omp simd
                                        for (int64_t lane = last_inside; lane <
                                            std::min<int64_t>(TW, OW - j * TW); ++lane) {
                                            const float y_value = y_row_4[lane];
                                            const float x = 0.0f;
                                            const float y_value_2 = y_value + x;
                                            y_row_4[lane] = y_value_2;
                                        }
                                    }
                                }
                            }
                        }
                        for (int64_t row = 0; row < std::min<int64_t>(TH, OH - i * TH); ++row) {
                            // div(y, kernel_size*kernel_size*kernel_size, y)
                            // store(y -> YV[n, od, i*TH:(i+1)*TH, j*TW:(j+1)*TW])
                            const float *const y_row_5 = y + row * TW;
                            for (int64_t block = 0; block < std::min<int64_t>(TW, OW - j * TW);
                                block += 1024) {
                                const int64_t block_end = std::min<int64_t>(std::min<int64_t>(TW, OW
                                    - j * TW), block + 1024);
                                alignas(64) float Y_block[1024];
                                float *const Y_row = Y_streams ? Y_block : Y + (((n * OD + od) * OH
                                    + (i * TH + row)) * OW + j * TW + block);
                                #pragma omp simd
                                for (int64_t lane = block; lane < block_end; ++lane) {
                                    const float y_value = y_row_5[lane];
                                    const float y_value_2 = y_value / static_cast<float>(kernel_size
                                        * kernel_size * kernel_size);
                                    Y_row[lane - block] = y_value_2;
                                }
                                if (Y_streams) {
                                    sketch::stream(Y + (((n * OD + od) * OH + (i * TH + row)) * OW +
                                        j * TW + block), Y_block, block_end - block);
                                }
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
