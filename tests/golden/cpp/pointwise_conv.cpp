// pointwise_conv: a C++ kernel for cpu, made from a sketch.

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
// floor_div, ceil_div, half, max, min, matrix, vector_bytes, block_depth, blocking, widened,
// transpose, line_of, pack_squares, pack, multiply_block, multiply_panels, packed_from, panels,
// kept_bytes, keeping, kept_panels, multiply, too_large.

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  B >= 0 and C >= 0 and O >= 0 and H >= 0 and W >= 0
//   2  C <= 64
//   3  fewer than 2**48 elements in each tensor
extern "C" int64_t pointwise_conv(
    const float *__restrict X, const float *__restrict WEIGHT, float *__restrict Y, int64_t B,
    int64_t C, int64_t O, int64_t H, int64_t W)
{
    constexpr int64_t TP = 128;
    constexpr int64_t TO = 64;

    if (B < 0 || C < 0 || O < 0 || H < 0 || W < 0) {
        return 1;
    }
    if (C > 64) {
        return 2;
    }
    if (sketch::too_large({B, C, H, W}) || sketch::too_large({O, C}) || sketch::too_large({B, H, W,
        O})) {
        return 3;
    }
    const bool Y_streams = sketch::streams(sizeof(float), {B, H, W, O});
    {
        const int threads = sketch::threads_for(B * (H * W * (C * (sketch::ceil_div(O, TO) * 4 + O *
            2) + O * 4) + C * O * sketch::ceil_div(H * W, TP) * 4));
        // Scratch memory of each thread.
        const sketch::keeping x_panels_keeping(B * sketch::ceil_div(H * W, TP) * sketch::ceil_div(O,
            TO) > threads, sizeof(float), 1, C, TP + 16);
        const sketch::keeping w_panels_keeping(B * sketch::ceil_div(H * W, TP) * sketch::ceil_div(O,
            TO) > threads * sketch::ceil_div(O, TO), sizeof(float), sketch::ceil_div(O, TO), C, TO +
            64);
        sketch::arena arena;
        const int64_t y_place = arena.add(sizeof(float), {TP, TO});
        const int64_t x_panels_place = arena.add(sizeof(float), {x_panels_keeping.elements()});
        const int64_t w_panels_place = arena.add(sizeof(float), {w_panels_keeping.elements()});
        if (!arena.allocate(threads)) {
            return -1;
        }
        #pragma omp parallel num_threads(threads)
        {
            float *const __restrict y = arena.at<float>(y_place, omp_get_thread_num());
            float *const __restrict x_panels = arena.at<float>(x_panels_place,
                omp_get_thread_num());
            const sketch::kept_panels<float> x_panels_kept(x_panels, x_panels_keeping);
            float *const __restrict w_panels = arena.at<float>(w_panels_place,
                omp_get_thread_num());
            const sketch::kept_panels<float> w_panels_kept(w_panels, w_panels_keeping);
            #pragma omp for collapse(3) schedule(static)
            for (int64_t b = 0; b < B; ++b) {
                for (int64_t i = 0; i < sketch::ceil_div(H * W, TP); ++i) {
                    for (int64_t j = 0; j < sketch::ceil_div(O, TO); ++j) {
                        for (int64_t row = 0; row < std::min<int64_t>(TP, H * W - i * TP); ++row) {
                            float *const y_row = y + row * TO;
                            #pragma omp simd
                            for (int64_t lane = 0; lane < std::min<int64_t>(TO, O - j * TO);
                                ++lane) {
                                y_row[lane] = 0.0f;
                            }
                        }
                        // load(XV[b, 0:C, i*TP:(i+1)*TP] -> x)
                        // load(WV[j*TO:(j+1)*TO, 0:C] -> w)
                        // dot(x, w, y, trans_a=True, trans_b=True, precision="tf32x3")
                        sketch::multiply(
                            std::min<int64_t>(TP, H * W - i * TP), std::min<int64_t>(TO, O - j *
                                TO), C,
                            sketch::matrix<const float>{X + C * H * W * b + TP * i, 1, H * W},
                            sketch::matrix<const float>{WEIGHT + C * TO * j, 1, C},
                            sketch::matrix<float>{y, TO, 1},
                            x_panels_kept.at(0),
                            w_panels_kept.at(j));
                        for (int64_t row = 0; row < std::min<int64_t>(TP, H * W - i * TP); ++row) {
                            // store(y -> YV[b, i*TP:(i+1)*TP, j*TO:(j+1)*TO])
                            const float *const y_row_2 = y + row * TO;
                            for (int64_t block = 0; block < std::min<int64_t>(TO, O - j * TO); block
                                += 1024) {
                                const int64_t block_end = std::min<int64_t>(std::min<int64_t>(TO, O
                                    - j * TO), block + 1024);
                                alignas(64) float Y_block[1024];
                                float *const Y_row = Y_streams ? Y_block : Y + ((b * (H * W) + (i *
                                    TP + row)) * O + j * TO + block);
                                #pragma omp simd
                                for (int64_t lane = block; lane < block_end; ++lane) {
                                    const float y_value = y_row_2[lane];
                                    Y_row[lane - block] = y_value;
                                }
                                if (Y_streams) {
                                    sketch::stream(Y + ((b * (H * W) + (i * TP + row)) * O + j * TO
                                        + block), Y_block, block_end - block);
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
