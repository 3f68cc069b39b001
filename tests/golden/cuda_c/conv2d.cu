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
// factors_from, sums_in, product_steps, by_threads, multiply_blocks, multiply_along, layout,
// arena, allow_shared.

extern "C" __global__ void conv2d_1(
    const float *__restrict X, const float *__restrict WEIGHT, const float *__restrict BIAS,
    float *__restrict Y, int64_t N, int64_t C, int64_t H, int64_t W, int64_t O, int64_t CG,
    int64_t KH, int64_t KW, int64_t stride, int64_t padding, int64_t dilation, int64_t groups,
    int64_t OG, int64_t OH, int64_t OW, int64_t programs, char *scratch_memory,
    int64_t scratch_bytes, int64_t x_place)
{
    constexpr int64_t TO = 128;
    constexpr int64_t TP = 128;
    constexpr int64_t TK = 32;
    extern __shared__ __align__(128) char block_memory[];
    char *const scratch = scratch_memory + blockIdx.x * scratch_bytes;
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t i = program % sketch::ceil_div(N * OH * OW, TP);
        const int64_t j = program / sketch::ceil_div(N * OH * OW, TP) % sketch::ceil_div(OG, TO);
        const int64_t g = program / sketch::ceil_div(N * OH * OW, TP) / sketch::ceil_div(OG, TO);
        float *const y = reinterpret_cast<float *>(block_memory + 256);
        float *const w = reinterpret_cast<float *>(block_memory + 65792);
        float *const x = reinterpret_cast<float *>(scratch + x_place);
        // p = iota(TP, i*TP, N*OH*OW)
        // n = p//(OH*OW)
        // oh = p//OW % OH
        // ow = p % OW
        // o = iota(TO, j*TO, OG) + g*OG
        for (int64_t row = thread / 32; row < std::min<int64_t>(TO, OG - j * TO); row += threads /
            32) {
            // y = alloc([TO, TP], init=0.0)
            float *const y_row = y + row * TP;
            sketch::over_lanes<4, 1>(thread % 32 * 4, 32 * 4, std::min<int64_t>(TP, N * OH * OW - i
                * TP), sketch::aligned<4>(y_row), [&](int64_t first, auto left) {
                sketch::lanes<float, 4> y_row_lanes;
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    y_row_lanes[part] = 0.0f;
                }
                sketch::store_lanes(y_row + first, left, y_row_lanes);
            });
        }
        // for k0 in range(0, CG*KH*KW, TK):
        for (int64_t k0 = 0; k0 < CG * KH * KW; k0 += TK) {
            // k = iota(TK, k0, CG*KH*KW)
            // c = g*CG + k//(KH*KW)
            // h = (oh*stride-padding)[None, :] + (k//KW%KH*dilation)[:, None]
            // v = (ow*stride-padding)[None, :] + (k%KW*dilation)[:, None]
            __syncthreads();
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
            for (int64_t row = thread / 32; row < std::min<int64_t>(TK, CG * KH * KW - k0); row +=
                threads / 32) {
                // load(X[n[None, :], c[:, None], h, v] -> x, pad=0)
                const int64_t part_ = g * CG + sketch::floor_div(k0 + row, KH * KW);
                const int64_t part_2 = sketch::floor_mod(sketch::floor_div(k0 + row, KW), KH) *
                    dilation;
                const int64_t part_3 = sketch::floor_mod(k0 + row, KW) * dilation;
                float *const x_row = x + row * TP;
                for (int64_t lane = thread % 32; lane < std::min<int64_t>(TP, N * OH * OW - i * TP);
                    lane += 32) {
                    const int64_t X_index = sketch::floor_div(i * TP + lane, OH * OW);
                    const int64_t X_index_2 = sketch::floor_mod(sketch::floor_div(i * TP + lane,
                        OW), OH) * stride - padding + part_2;
                    const int64_t X_index_3 = sketch::floor_mod(i * TP + lane, OW) * stride -
                        padding + part_3;
                    const float x_value = (0 <= X_index_2 && X_index_2 < H && 0 <= X_index_3 &&
                        X_index_3 < W) ? X[((X_index * C + part_) * H + X_index_2) * W + X_index_3]
                        : 0.0f;
                    x_row[lane] = x_value;
                }
            }
            // gemm(w, x, y)
            __syncthreads();
            sketch::multiply_along<sketch::by_threads<4, 8, 16, true, false>, false>(
                1,
                [&](int64_t) {
                    return sketch::factors<float, float>{
                        std::min<int64_t>(TO, OG - j * TO), std::min<int64_t>(TP, N * OH * OW - i *
                            TP), std::min<int64_t>(TK, CG * KH * KW - k0),
                        sketch::matrix<const float>{w, TK, 1},
                        sketch::matrix<const float>{x, TP, 1}};
                },
                sketch::sums_in<float, false>{sketch::matrix<float>{y, TP, 1}},
                    reinterpret_cast<char *>(y));
        }
        // if present(BIAS):
        if (BIAS != nullptr) {
            __syncthreads();
            for (int64_t row = thread / 32; row < std::min<int64_t>(TO, OG - j * TO); row += threads
                / 32) {
                // load(BIAS[o] -> bias)
                // add(y, bias[:, None], y)
                const float bias = BIAS[j * TO + row + g * OG];
                float *const y_row_2 = y + row * TP;
                sketch::over_lanes<4, 1>(thread % 32 * 4, 32 * 4, std::min<int64_t>(TP, N * OH * OW
                    - i * TP), sketch::aligned<4>(y_row_2), [&](int64_t first, auto left) {
                    auto y_row_2_lanes = sketch::load_lanes<4>(y_row_2 + first, left);
                    #pragma unroll
                    for (int part = 0; part < 4; ++part) {
                        const float y_value = y_row_2_lanes[part];
                        const float y_value_2 = y_value + bias;
                        y_row_2_lanes[part] = y_value_2;
                    }
                    sketch::store_lanes(y_row_2 + first, left, y_row_2_lanes);
                });
            }
        }
        __syncthreads();
        for (int64_t row = thread / 32; row < std::min<int64_t>(TO, OG - j * TO); row += threads /
            32) {
            // store(y -> Y[n[None, :], o[:, None], oh[None, :], ow[None, :]])
            const float *const y_row_3 = y + row * TP;
            for (int64_t lane = thread % 32; lane < std::min<int64_t>(TP, N * OH * OW - i * TP);
                lane += 32) {
                const float y_value = y_row_3[lane];
                const int64_t Y_index = sketch::floor_div(i * TP + lane, OH * OW);
                const int64_t Y_index_2 = sketch::floor_mod(sketch::floor_div(i * TP + lane, OW),
                    OH);
                const int64_t Y_index_3 = sketch::floor_mod(i * TP + lane, OW);
                Y[((Y_index * O + (j * TO + row + g * OG)) * OH + Y_index_2) * OW + Y_index_3] =
                    y_value;
            }
        }
        __syncthreads();
    }
}

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
    constexpr int64_t TK = 32;

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
        const int64_t programs = groups * sketch::ceil_div(OG, TO) * sketch::ceil_div(N * OH * OW,
            TP);
        const int64_t blocks = std::min<int64_t>(programs, 1024);
        // Scratch memory of each block.
        sketch::arena arena;
        const int64_t x_place = arena.add(sizeof(float), {TK, TP});
        if (!arena.allocate(blocks)) {
            return -1;
        }
        sketch::allow_shared(conv2d_1, 82176);
        if (blocks > 0) {
            conv2d_1<<<static_cast<unsigned>(blocks), 128, 82176>>>(X, WEIGHT, BIAS, Y, N, C, H, W,
                O, CG, KH, KW, stride, padding, dilation, groups, OG, OH, OW, programs,
                arena.memory(), arena.bytes(), x_place);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
