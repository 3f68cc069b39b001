// conv_transpose2d: a C++ kernel for cpu, made from a sketch.

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

// The library: arena, least_shared_work, threads_for, floor_div, floor_mod, ceil_div, half, sign,
// max, min, lane_floor_div, lane_floor_mod, matrix, vector_bytes, block_depth, blocking, widened,
// transpose, line_of, pack_squares, pack, multiply_block, multiply_panels, packed_from, panels,
// multiply, natural, too_large.

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//    1  OH >= 0
//    2  OW >= 0
//    3  stride >= 1 and dilation >= 1 and padding >= 0 and output_padding >= 0
//    4  OH*OW >= 1
//    5  OW >= 1
//    6  OH >= 1
//    7  KH*KW >= 1
//    8  KW >= 1
//    9  KH >= 1
//   10  N >= 0 and C >= 0 and H >= 0 and W >= 0 and O >= 0 and KH >= 0 and KW >= 0
//   11  fewer than 2**48 elements in each tensor
//   12  integers that stay within 64 bits
extern "C" int64_t conv_transpose2d(
    const float *__restrict X, const float *__restrict WEIGHT, float *__restrict Y, int64_t N,
    int64_t C, int64_t H, int64_t W, int64_t O, int64_t KH, int64_t KW, int64_t stride, int64_t
    padding, int64_t output_padding, int64_t dilation)
{
    constexpr int64_t TP = 128;
    constexpr int64_t TO = 64;
    constexpr int64_t TK = 64;

    if (N < 0 || C < 0 || H < 0 || W < 0 || O < 0 || KH < 0 || KW < 0) {
        return 10;
    }
    if (stride < 1 || dilation < 1 || padding < 0 || output_padding < 0) {
        return 3;
    }
    if (KH * KW < 1) {
        return 7;
    }
    if (KW < 1) {
        return 8;
    }
    if (KH < 1) {
        return 9;
    }
    [[maybe_unused]] const int64_t OH = (H - 1) * stride - 2 * padding + dilation * (KH - 1) +
        output_padding + 1;
    if (OH < 0) {
        return 1;
    }
    if (OH < 1) {
        return 6;
    }
    [[maybe_unused]] const int64_t OW = (W - 1) * stride - 2 * padding + dilation * (KW - 1) +
        output_padding + 1;
    if (OW < 0) {
        return 2;
    }
    if (OH * OW < 1) {
        return 4;
    }
    if (OW < 1) {
        return 5;
    }
    if (sketch::too_large({N, C, H, W}) || sketch::too_large({C, O, KH, KW}) ||
        sketch::too_large({N, O, OH, OW})) {
        return 11;
    }
    if ((sketch::natural(H) * stride + sketch::natural(KH) * dilation + sketch::natural(KW) *
        dilation + sketch::natural(W) * stride + dilation + output_padding + sketch::natural(2) *
        padding + stride).reaches(UINT64_C(9223090561878065152))) {
        return 12;
    }
    {
        const int threads = sketch::threads_for(C * KH * KW * (N * OH * OW * (sketch::ceil_div(O,
            TO) * 4 + O * 2) + O * sketch::ceil_div(N * OH * OW, TP) * 4) + N * OH * OW * O * 4);
        // Scratch memory of each thread.
        sketch::arena arena;
        const int64_t y_place = arena.add(sizeof(float), {TP, TO});
        const int64_t x_place = arena.add(sizeof(float), {TP, TK});
        const int64_t w_place = arena.add(sizeof(float), {TK, TO});
        const int64_t x_panels_place = arena.add(sizeof(float), {std::min<int64_t>(TK, 256), TP +
            16});
        const int64_t w_panels_place = arena.add(sizeof(float), {std::min<int64_t>(TK, 256), TO +
            64});
        if (!arena.allocate(threads)) {
            return -1;
        }
        #pragma omp parallel num_threads(threads)
        {
            float *const __restrict y = arena.at<float>(y_place, omp_get_thread_num());
            float *const __restrict x = arena.at<float>(x_place, omp_get_thread_num());
            float *const __restrict w = arena.at<float>(w_place, omp_get_thread_num());
            float *const __restrict x_panels = arena.at<float>(x_panels_place,
                omp_get_thread_num());
            float *const __restrict w_panels = arena.at<float>(w_panels_place,
                omp_get_thread_num());
            #pragma omp for collapse(2) schedule(static)
            for (int64_t i = 0; i < sketch::ceil_div(N * OH * OW, TP); ++i) {
                for (int64_t j = 0; j < sketch::ceil_div(O, TO); ++j) {
                    alignas(64) int64_t index_table[TK];
                    alignas(64) int64_t index_table_2[TK];
                    alignas(64) int64_t index_table_3[TK];
                    // p = iota(TP, i*TP, N*OH*OW)
                    // n = p//(OH*OW)
                    // oh = p//OW % OH
                    // ow = p % OW
                    // o = iota(TO, j*TO, O)
                    for (int64_t row = 0; row < std::min<int64_t>(TP, N * OH * OW - i * TP);
                        ++row) {
                        // y = alloc([TP, TO], init=0.0)
                        float *const y_row = y + row * TO;
                        #pragma omp simd
                        for (int64_t lane = 0; lane < std::min<int64_t>(TO, O - j * TO); ++lane) {
                            y_row[lane] = 0.0f;
                        }
                    }
                    // for k0 in range(0, C*KH*KW, TK):
                    for (int64_t k0 = 0; k0 < C * KH * KW; k0 += TK) {
                        // k = iota(TK, k0, C*KH*KW)
                        // c = k//(KH*KW)
                        // kh = k//KW % KH
                        // kw = k % KW
                        // up = (oh+padding)[:, None] - (kh*dilation)[None, :]
                        // left = (ow+padding)[:, None] - (kw*dilation)[None, :]
                        // on_grid = up % stride == 0 and left % stride == 0
                        #pragma omp simd
                        for (int64_t lane = 0; lane < std::min<int64_t>(TK, C * KH * KW - k0);
                            ++lane) {
                            index_table[lane] = sketch::lane_floor_div(k0 + lane, KH * KW);
                        }
                        #pragma omp simd
                        for (int64_t lane = 0; lane < std::min<int64_t>(TK, C * KH * KW - k0);
                            ++lane) {
                            index_table_2[lane] = sketch::lane_floor_mod(sketch::lane_floor_div(k0 +
                                lane, KW), KH) * dilation;
                        }
                        #pragma omp simd
                        for (int64_t lane = 0; lane < std::min<int64_t>(TK, C * KH * KW - k0);
                            ++lane) {
                            index_table_3[lane] = sketch::lane_floor_mod(k0 + lane, KW) * dilation;
                        }
                        for (int64_t row = 0; row < std::min<int64_t>(TP, N * OH * OW - i * TP);
                            ++row) {
                            // load(X[n[:, None], c[None, :], up//stride, left//stride] -> x, pad=0, where=on_grid)
                            const int64_t part_ = sketch::floor_div(i * TP + row, OH * OW);
                            const int64_t part_2 = sketch::floor_mod(sketch::floor_div(i * TP + row,
                                OW), OH) + padding;
                            const int64_t part_3 = sketch::floor_mod(i * TP + row, OW) + padding;
                            float *const x_row = x + row * TK;
                            #pragma omp simd
                            for (int64_t lane = 0; lane < std::min<int64_t>(TK, C * KH * KW - k0);
                                ++lane) {
                                const int64_t index_part = index_table[lane];
                                const int64_t index_part_2 = index_table_2[lane];
                                const int64_t index_part_3 = index_table_3[lane];
                                const int64_t X_index = index_part;
                                const int64_t X_index_2 = sketch::lane_floor_div(part_2 -
                                    index_part_2, stride);
                                const int64_t X_index_3 = sketch::lane_floor_div(part_3 -
                                    index_part_3, stride);
                                const float x_value = (sketch::lane_floor_mod(part_2 - index_part_2,
                                    stride) == 0 && sketch::lane_floor_mod(part_3 - index_part_3,
                                    stride) == 0 && 0 <= X_index_2 && X_index_2 < H && 0 <=
                                    X_index_3 && X_index_3 < W) ? X[((part_ * C + X_index) * H +
                                    X_index_2) * W + X_index_3] : 0.0f;
                                x_row[lane] = x_value;
                            }
                        }
                        for (int64_t row = 0; row < std::min<int64_t>(TK, C * KH * KW - k0);
                            ++row) {
                            // load(WEIGHT[c[:, None], o[None, :], kh[:, None], kw[:, None]] -> w)
                            const int64_t part_ = sketch::floor_div(k0 + row, KH * KW);
                            const int64_t part_2 = sketch::floor_mod(sketch::floor_div(k0 + row,
                                KW), KH);
                            const int64_t part_3 = sketch::floor_mod(k0 + row, KW);
                            float *const w_row = w + row * TO;
                            #pragma omp simd
                            for (int64_t lane = 0; lane < std::min<int64_t>(TO, O - j * TO);
                                ++lane) {
                                const float w_value = WEIGHT[((part_ * O + (j * TO + lane)) * KH +
                                    part_2) * KW + part_3];
                                w_row[lane] = w_value;
                            }
                        }
                        // gemm(x, w, y)
                        sketch::multiply(
                            std::min<int64_t>(TP, N * OH * OW - i * TP), std::min<int64_t>(TO, O - j
                                * TO), std::min<int64_t>(TK, C * KH * KW - k0),
                            sketch::matrix<const float>{x, TK, 1},
                            sketch::matrix<const float>{w, TO, 1},
                            sketch::matrix<float>{y, TO, 1},
                            {x_panels},
                            {w_panels});
                    }
                    for (int64_t row = 0; row < std::min<int64_t>(TP, N * OH * OW - i * TP);
                        ++row) {
                        // store(y -> Y[n[:, None], o[None, :], oh[:, None], ow[:, None]])
                        const int64_t part_ = sketch::floor_div(i * TP + row, OH * OW);
                        const int64_t part_2 = sketch::floor_mod(sketch::floor_div(i * TP + row,
                            OW), OH);
                        const int64_t part_3 = sketch::floor_mod(i * TP + row, OW);
                        const float *const y_row_2 = y + row * TO;
                        #pragma omp simd
                        for (int64_t lane = 0; lane < std::min<int64_t>(TO, O - j * TO); ++lane) {
                            const float y_value = y_row_2[lane];
                            Y[((part_ * O + (j * TO + lane)) * OH + part_2) * OW + part_3] =
                                y_value;
                        }
                    }
                }
            }
        }
    }
    return 0;
}
