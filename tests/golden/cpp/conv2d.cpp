// conv2d: a C++ kernel for cpu, made from a sketch.

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
//    1  groups >= 1
//    2  stride >= 1
//    3  OH >= 0
//    4  OW >= 0
//    5  groups >= 1 and stride >= 1 and dilation >= 1 and padding >= 0
//    6  C == CG*groups and O == OG*groups
//    7  OH*OW >= 1
//    8  OW >= 1
//    9  OH >= 1
//   10  KH*KW >= 1
//   11  KW >= 1
//   12  KH >= 1
//   13  N >= 0 and C >= 0 and H >= 0 and W >= 0 and O >= 0 and CG >= 0 and KH >= 0 and KW >= 0
//   14  fewer than 2**48 elements in each tensor
//   15  integers that stay within 64 bits
extern "C" int64_t conv2d(
    const float *__restrict X, const float *__restrict WEIGHT, const float *__restrict BIAS, float
    *__restrict Y, int64_t N, int64_t C, int64_t H, int64_t W, int64_t O, int64_t CG, int64_t KH,
    int64_t KW, int64_t stride, int64_t padding, int64_t dilation, int64_t groups)
{
    constexpr int64_t TO = 128;
    constexpr int64_t TP = 128;
    constexpr int64_t TK = 64;

    if (N < 0 || C < 0 || H < 0 || W < 0 || O < 0 || CG < 0 || KH < 0 || KW < 0) {
        return 13;
    }
    if (groups < 1) {
        return 1;
    }
    if (stride < 1) {
        return 2;
    }
    if (groups < 1 || stride < 1 || dilation < 1 || padding < 0) {
        return 5;
    }
    if (KH * KW < 1) {
        return 10;
    }
    if (KW < 1) {
        return 11;
    }
    if (KH < 1) {
        return 12;
    }
    [[maybe_unused]] const int64_t OG = sketch::floor_div(O, groups);
    if (C != CG * groups || O != OG * groups) {
        return 6;
    }
    [[maybe_unused]] const int64_t OH = sketch::floor_div(H + 2 * padding - dilation * (KH - 1) - 1,
        stride) + 1;
    if (OH < 0) {
        return 3;
    }
    if (OH < 1) {
        return 9;
    }
    [[maybe_unused]] const int64_t OW = sketch::floor_div(W + 2 * padding - dilation * (KW - 1) - 1,
        stride) + 1;
    if (OW < 0) {
        return 4;
    }
    if (OH * OW < 1) {
        return 7;
    }
    if (OW < 1) {
        return 8;
    }
    if (sketch::too_large({N, C, H, W}) || sketch::too_large({O, CG, KH, KW}) ||
        sketch::too_large({N, O, OH, OW})) {
        return 14;
    }
    if ((sketch::natural(N) * OG * OH * OW * groups + sketch::natural(N) * OH * OW * groups +
        sketch::natural(CG) * groups + sketch::natural(KH) * dilation + sketch::natural(KW) *
        dilation + sketch::natural(OG) * groups + sketch::natural(OH) * stride + sketch::natural(OW)
        * stride + sketch::natural(2) * OG + dilation + groups + sketch::natural(2) * padding +
        stride).reaches(UINT64_C(9222809086901354496))) {
        return 15;
    }
    {
        const int threads = sketch::threads_for(groups * (OG * (CG * KH * KW * (sketch::ceil_div(N *
            OH * OW, TP) * 4 + N * OH * OW * 2) + (sketch::ceil_div(N * OH * OW, TP) * 4 + N * OH *
            OW * 5)) + CG * KH * KW * N * OH * OW * sketch::ceil_div(OG, TO) * 4));
        // Scratch memory of each thread.
        sketch::arena arena;
        const int64_t y_place = arena.add(sizeof(float), {TO, TP});
        const int64_t w_place = arena.add(sizeof(float), {TO, TK});
        const int64_t x_place = arena.add(sizeof(float), {TK, TP});
        const int64_t w_panels_place = arena.add(sizeof(float), {std::min<int64_t>(TK, 256), TO +
            16});
        const int64_t x_panels_place = arena.add(sizeof(float), {std::min<int64_t>(TK, 256), TP +
            64});
        if (!arena.allocate(threads)) {
            return -1;
        }
        #pragma omp parallel num_threads(threads)
        {
            float *const __restrict y = arena.at<float>(y_place, omp_get_thread_num());
            float *const __restrict w = arena.at<float>(w_place, omp_get_thread_num());
            float *const __restrict x = arena.at<float>(x_place, omp_get_thread_num());
            float *const __restrict w_panels = arena.at<float>(w_panels_place,
                omp_get_thread_num());
            float *const __restrict x_panels = arena.at<float>(x_panels_place,
                omp_get_thread_num());
            #pragma omp for collapse(3) schedule(static)
            for (int64_t g = 0; g < groups; ++g) {
                for (int64_t j = 0; j < sketch::ceil_div(OG, TO); ++j) {
                    for (int64_t i = 0; i < sketch::ceil_div(N * OH * OW, TP); ++i) {
                        alignas(64) int64_t index_table[TP];
                        alignas(64) int64_t index_table_2[TP];
                        alignas(64) int64_t index_table_3[TP];
                        alignas(64) int64_t index_table_4[TP];
                        alignas(64) int64_t index_table_5[TP];
                        alignas(64) int64_t index_table_6[TP];
                        // p = iota(TP, i*TP, N*OH*OW)
                        // n = p//(OH*OW)
                        // oh = p//OW % OH
                        // ow = p % OW
                        // o = iota(TO, j*TO, OG) + g*OG
                        for (int64_t row = 0; row < std::min<int64_t>(TO, OG - j * TO); ++row) {
                            // y = alloc([TO, TP], init=0.0)
                            float *const y_row = y + row * TP;
                            #pragma omp simd
                            for (int64_t lane = 0; lane < std::min<int64_t>(TP, N * OH * OW - i *
                                TP); ++lane) {
                                y_row[lane] = 0.0f;
                            }
                        }
                        // for k0 in range(0, CG*KH*KW, TK):
                        for (int64_t k0 = 0; k0 < CG * KH * KW; k0 += TK) {
                            // k = iota(TK, k0, CG*KH*KW)
                            // c = g*CG + k//(KH*KW)
                            // h = (oh*stride-padding)[None, :] + (k//KW%KH*dilation)[:, None]
                            // v = (ow*stride-padding)[None, :] + (k%KW*dilation)[:, None]
                            for (int64_t row = 0; row < std::min<int64_t>(TO, OG - j * TO); ++row) {
                                // load(WF[o, k0:k0+TK] -> w)
                                const float *const WEIGHT_row = WEIGHT + ((j * TO + row + g * OG) *
                                    (CG * KH * KW) + k0);
                                float *const w_row = w + row * TK;
                                #pragma omp simd
                                for (int64_t lane = 0; lane < std::min<int64_t>(TK, CG * KH * KW -
                                    k0); ++lane) {
                                    const float w_value = WEIGHT_row[lane];
                                    w_row[lane] = w_value;
                                }
                            }
                            #pragma omp simd
                            for (int64_t lane = 0; lane < std::min<int64_t>(TP, N * OH * OW - i *
                                TP); ++lane) {
                                index_table[lane] = sketch::lane_floor_div(i * TP + lane, OH * OW);
                            }
                            #pragma omp simd
                            for (int64_t lane = 0; lane < std::min<int64_t>(TP, N * OH * OW - i *
                                TP); ++lane) {
                                index_table_2[lane] =
                                    sketch::lane_floor_mod(sketch::lane_floor_div(i * TP + lane,
                                    OW), OH) * stride - padding;
                            }
                            #pragma omp simd
                            for (int64_t lane = 0; lane < std::min<int64_t>(TP, N * OH * OW - i *
                                TP); ++lane) {
                                index_table_3[lane] = sketch::lane_floor_mod(i * TP + lane, OW) *
                                    stride - padding;
                            }
                            for (int64_t row = 0; row < std::min<int64_t>(TK, CG * KH * KW - k0);
                                ++row) {
                                // load(X[n[None, :], c[:, None], h, v] -> x, pad=0)
                                const int64_t part_ = g * CG + sketch::floor_div(k0 + row, KH * KW);
                                const int64_t part_2 = sketch::floor_mod(sketch::floor_div(k0 + row,
                                    KW), KH) * dilation;
                                const int64_t part_3 = sketch::floor_mod(k0 + row, KW) * dilation;
                                float *const x_row = x + row * TP;
                                #pragma omp simd
                                for (int64_t lane = 0; lane < std::min<int64_t>(TP, N * OH * OW - i
                                    * TP); ++lane) {
                                    const int64_t index_part = index_table[lane];
                                    const int64_t index_part_2 = index_table_2[lane];
                                    const int64_t index_part_3 = index_table_3[lane];
                                    const int64_t X_index = index_part;
                                    const int64_t X_index_2 = index_part_2 + part_2;
                                    const int64_t X_index_3 = index_part_3 + part_3;
                                    const float x_value = (0 <= X_index_2 && X_index_2 < H && 0 <=
                                        X_index_3 && X_index_3 < W) ? X[((X_index * C + part_) * H +
                                        X_index_2) * W + X_index_3] : 0.0f;
                                    x_row[lane] = x_value;
                                }
                            }
                            // gemm(w, x, y)
                            sketch::multiply(
                                std::min<int64_t>(TO, OG - j * TO), std::min<int64_t>(TP, N * OH *
                                    OW - i * TP), std::min<int64_t>(TK, CG * KH * KW - k0),
                                sketch::matrix<const float>{w, TK, 1},
                                sketch::matrix<const float>{x, TP, 1},
                                sketch::matrix<float>{y, TP, 1},
                                {w_panels},
                                {x_panels});
                        }
                        // if present(BIAS):
                        if (BIAS != nullptr) {
                            for (int64_t row = 0; row < std::min<int64_t>(TO, OG - j * TO); ++row) {
                                // load(BIAS[o] -> bias)
                                // add(y, bias[:, None], y)
                                const float bias = BIAS[j * TO + row + g * OG];
                                float *const y_row_2 = y + row * TP;
                                #pragma omp simd
                                for (int64_t lane = 0; lane < std::min<int64_t>(TP, N * OH * OW - i
                                    * TP); ++lane) {
                                    const float y_value = y_row_2[lane];
                                    const float y_value_2 = y_value + bias;
                                    y_row_2[lane] = y_value_2;
                                }
                            }
                        }
                        #pragma omp simd
                        for (int64_t lane = 0; lane < std::min<int64_t>(TP, N * OH * OW - i * TP);
                            ++lane) {
                            index_table_4[lane] = sketch::lane_floor_div(i * TP + lane, OH * OW);
                        }
                        #pragma omp simd
                        for (int64_t lane = 0; lane < std::min<int64_t>(TP, N * OH * OW - i * TP);
                            ++lane) {
                            index_table_5[lane] = sketch::lane_floor_mod(sketch::lane_floor_div(i *
                                TP + lane, OW), OH);
                        }
                        #pragma omp simd
                        for (int64_t lane = 0; lane < std::min<int64_t>(TP, N * OH * OW - i * TP);
                            ++lane) {
                            index_table_6[lane] = sketch::lane_floor_mod(i * TP + lane, OW);
                        }
                        for (int64_t row = 0; row < std::min<int64_t>(TO, OG - j * TO); ++row) {
                            // store(y -> Y[n[None, :], o[:, None], oh[None, :], ow[None, :]])
                            const float *const y_row_3 = y + row * TP;
                            #pragma omp simd
                            for (int64_t lane = 0; lane < std::min<int64_t>(TP, N * OH * OW - i *
                                TP); ++lane) {
                                const int64_t index_part_4 = index_table_4[lane];
                                const int64_t index_part_5 = index_table_5[lane];
                                const int64_t index_part_6 = index_table_6[lane];
                                const float y_value = y_row_3[lane];
                                const int64_t Y_index = index_part_4;
                                const int64_t Y_index_2 = index_part_5;
                                const int64_t Y_index_3 = index_part_6;
                                Y[((Y_index * O + (j * TO + row + g * OG)) * OH + Y_index_2) * OW +
                                    Y_index_3] = y_value;
                            }
                        }
                    }
                }
            }
        }
    }
    return 0;
}
