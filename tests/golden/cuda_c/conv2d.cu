// conv2d: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o conv2d.so conv2d.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, floor_mod, ceil_div, bits_of, float_of, max, min, natural, too_large,
// max_of_floats, min_of_floats, lanes, enough, aligned, at_once, load_lanes, load_all_lanes,
// store_lanes, store_all_lanes, over_lanes, divisor, matrix, widened, window, factors,
// factors_from, sums_in, product_steps, by_threads, multiply_blocks, multiply_along,
// allow_shared.

extern "C" __global__ void conv2d_1(
    const float *__restrict X, const float *__restrict WEIGHT, const float *__restrict BIAS,
    float *__restrict Y, int64_t N, int64_t C, int64_t H, int64_t W, int64_t O, int64_t CG,
    int64_t KH, int64_t KW, int64_t stride, int64_t padding, int64_t dilation, int64_t groups,
    int64_t OG, int64_t OH, int64_t OW, int64_t programs)
{
    constexpr int64_t TP = 128;
    constexpr int64_t TO = 64;
    constexpr int64_t TK = 32;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t j = program % sketch::ceil_div(OG, TO);
        const int64_t i = program / sketch::ceil_div(OG, TO) % sketch::ceil_div(N * OH * OW, TP);
        const int64_t g = program / sketch::ceil_div(OG, TO) / sketch::ceil_div(N * OH * OW, TP);
        float *const y = reinterpret_cast<float *>(block_memory + 256);
        float *const x = reinterpret_cast<float *>(block_memory + 33024);
        float *const w = reinterpret_cast<float *>(block_memory + 49408);
        // p = iota(TP, i*TP, N*OH*OW)
        // n = p//(OH*OW)
        // oh = p//OW % OH
        // ow = p % OW
        // o = iota(TO, j*TO, OG) + g*OG
        for (int64_t row = thread / 32; row < std::min<int64_t>(TP, N * OH * OW - i * TP); row +=
            threads / 32) {
            // y = alloc([TP, TO], init=0.0)
            float *const y_row = y + row * TO;
            sketch::over_lanes<2, 1>(thread % 32 * 2, 32 * 2, std::min<int64_t>(TO, OG - j * TO),
                sketch::aligned<2>(y_row), [&](int64_t first, auto left) {
                sketch::lanes<float, 2> y_row_lanes;
                #pragma unroll
                for (int part = 0; part < 2; ++part) {
                    y_row_lanes[part] = 0.0f;
                }
                sketch::store_lanes(y_row + first, left, y_row_lanes);
            });
        }
        // for k0 in range(0, CG*KH*KW, TK):
        for (int64_t k0 = 0; k0 < CG * KH * KW; k0 += TK) {
            // k = iota(TK, k0, CG*KH*KW)
            // c = g*CG + k//(KH*KW)
            // h = (oh*stride-padding)[:, None] + (k//KW%KH*dilation)[None, :]
            // v = (ow*stride-padding)[:, None] + (k%KW*dilation)[None, :]
            __syncthreads();
            for (int64_t row = thread / 32; row < std::min<int64_t>(TP, N * OH * OW - i * TP); row
                += threads / 32) {
                // load(X[n[:, None], c[None, :], h, v] -> x, pad=0)
                const int64_t part_ = sketch::floor_div(i * TP + row, OH * OW);
                const int64_t part_2 = sketch::floor_mod(sketch::floor_div(i * TP + row, OW), OH) *
                    stride - padding;
                const int64_t part_3 = sketch::floor_mod(i * TP + row, OW) * stride - padding;
                float *const x_row = x + row * TK;
                for (int64_t lane = thread % 32; lane < std::min<int64_t>(TK, CG * KH * KW - k0);
                    lane += 32) {
                    const int64_t X_index = g * CG + sketch::floor_div(k0 + lane, KH * KW);
                    const int64_t X_index_2 = part_2 + sketch::floor_mod(sketch::floor_div(k0 +
                        lane, KW), KH) * dilation;
                    const int64_t X_index_3 = part_3 + sketch::floor_mod(k0 + lane, KW) * dilation;
                    const float x_value = (0 <= X_index_2 && X_index_2 < H && 0 <= X_index_3 &&
                        X_index_3 < W) ? X[((part_ * C + X_index) * H + X_index_2) * W + X_index_3]
                        : 0.0f;
                    x_row[lane] = x_value;
                }
            }
            for (int64_t row = thread / 32; row < std::min<int64_t>(TO, OG - j * TO); row += threads
                / 32) {
                // load(WF[o, k0:k0+TK] -> w)
                const float *const WEIGHT_row = WEIGHT + ((j * TO + row + g * OG) * (CG * KH * KW) +
                    k0);
                float *const w_row = w + row * TK;
                for (int64_t lane = thread % 32; lane < std::min<int64_t>(TK, CG * KH * KW - k0);
                    lane += 32) {
                    const float w_value = WEIGHT_row[lane];
                    w_row[lane] = w_value;
                }
            }
            // gemm(x, w, y, trans_b=True)
            __syncthreads();
            sketch::multiply_along<sketch::by_threads<4, 8, 8, true, true>, false>(
                1,
                [&](int64_t) {
                    return sketch::factors<float, float>{
                        std::min<int64_t>(TP, N * OH * OW - i * TP), std::min<int64_t>(TO, OG - j *
                            TO), std::min<int64_t>(TK, CG * KH * KW - k0),
                        sketch::matrix<const float>{x, TK, 1},
                        sketch::matrix<const float>{w, 1, TK}};
                },
                sketch::sums_in<float, false>{sketch::matrix<float>{y, TO, 1}},
                    reinterpret_cast<char *>(y));
        }
        // if present(BIAS):
        if (BIAS != nullptr) {
            __syncthreads();
            for (int64_t row = thread / 32; row < std::min<int64_t>(TP, N * OH * OW - i * TP); row
                += threads / 32) {
                // load(BIAS[o] -> bias)
                // add(y, bias, y)
                float *const y_row_2 = y + row * TO;
                const float *const BIAS_row = BIAS + (j * TO + g * OG);
                sketch::over_lanes<2, 1>(thread % 32 * 2, 32 * 2, std::min<int64_t>(TO, OG - j *
                    TO), sketch::aligned<2>(y_row_2, BIAS_row), [&](int64_t first, auto left) {
                    auto y_row_2_lanes = sketch::load_lanes<2>(y_row_2 + first, left);
                    const auto BIAS_row_lanes = sketch::load_lanes<2>(BIAS_row + first, left);
                    #pragma unroll
                    for (int part = 0; part < 2; ++part) {
                        const float y_value = y_row_2_lanes[part];
                        const float bias = BIAS_row_lanes[part];
                        const float y_value_2 = y_value + bias;
                        y_row_2_lanes[part] = y_value_2;
                    }
                    sketch::store_lanes(y_row_2 + first, left, y_row_2_lanes);
                });
            }
        }
        __syncthreads();
        for (int64_t row = thread / 32; row < std::min<int64_t>(TP, N * OH * OW - i * TP); row +=
            threads / 32) {
            // store(y -> Y[n[:, None], o[None, :], oh[:, None], ow[:, None]])
            const int64_t part_ = sketch::floor_div(i * TP + row, OH * OW);
            const int64_t part_2 = sketch::floor_mod(sketch::floor_div(i * TP + row, OW), OH);
            const int64_t part_3 = sketch::floor_mod(i * TP + row, OW);
            const float *const y_row_3 = y + row * TO;
            for (int64_t lane = thread % 32; lane < std::min<int64_t>(TO, OG - j * TO); lane +=
                32) {
                const float y_value = y_row_3[lane];
                Y[((part_ * O + (j * TO + lane + g * OG)) * OH + part_2) * OW + part_3] = y_value;
            }
        }
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
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
    constexpr int64_t TP = 128;
    constexpr int64_t TO = 64;

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
        const int64_t programs = groups * sketch::ceil_div(N * OH * OW, TP) * sketch::ceil_div(OG,
            TO);
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        sketch::allow_shared(conv2d_1, 57600);
        if (blocks > 0) {
            conv2d_1<<<static_cast<unsigned>(blocks), 128, 57600>>>(X, WEIGHT, BIAS, Y, N, C, H, W,
                O, CG, KH, KW, stride, padding, dilation, groups, OG, OH, OW, programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
