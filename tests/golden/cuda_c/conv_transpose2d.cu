// conv_transpose2d: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o conv_transpose2d.so conv_transpose2d.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, floor_mod, ceil_div, bits_of, float_of, max, min, natural, too_large,
// max_of_floats, min_of_floats, lanes, enough, aligned, at_once, store_lanes, store_all_lanes,
// over_lanes, divisor, matrix, widened, window, factors, factors_from, sums_in, product_steps,
// by_threads, multiply_blocks, multiply_along, allow_shared.

extern "C" __global__ void conv_transpose2d_1(
    const float *__restrict X, const float *__restrict WEIGHT, float *__restrict Y, int64_t N,
    int64_t C, int64_t H, int64_t W, int64_t O, int64_t KH, int64_t KW, int64_t stride,
    int64_t padding, int64_t dilation, int64_t OH, int64_t OW, int64_t programs)
{
    constexpr int64_t TP = 128;
    constexpr int64_t TO = 64;
    constexpr int64_t TK = 32;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t j = program % sketch::ceil_div(O, TO);
        const int64_t i = program / sketch::ceil_div(O, TO);
        float *const y = reinterpret_cast<float *>(block_memory + 256);
        float *const x = reinterpret_cast<float *>(block_memory + 33024);
        float *const w = reinterpret_cast<float *>(block_memory + 49408);
        // p = iota(TP, i*TP, N*OH*OW)
        // n = p//(OH*OW)
        // oh = p//OW % OH
        // ow = p % OW
        // o = iota(TO, j*TO, O)
        for (int64_t row = thread / 32; row < std::min<int64_t>(TP, N * OH * OW - i * TP); row +=
            threads / 32) {
            // y = alloc([TP, TO], init=0.0)
            float *const y_row = y + row * TO;
            sketch::over_lanes<2, 1>(thread % 32 * 2, 32 * 2, std::min<int64_t>(TO, O - j * TO),
                sketch::aligned<2>(y_row), [&](int64_t first, auto left) {
                sketch::lanes<float, 2> y_row_lanes;
                #pragma unroll
                for (int part = 0; part < 2; ++part) {
                    y_row_lanes[part] = 0.0f;
                }
                sketch::store_lanes(y_row + first, left, y_row_lanes);
            });
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
            __syncthreads();
            for (int64_t row = thread / 32; row < std::min<int64_t>(TP, N * OH * OW - i * TP); row
                += threads / 32) {
                // load(X[n[:, None], c[None, :], up//stride, left//stride] -> x, pad=0, where=on_grid)
                const int64_t part_ = sketch::floor_div(i * TP + row, OH * OW);
                const int64_t part_2 = sketch::floor_mod(sketch::floor_div(i * TP + row, OW), OH) +
                    padding;
                const int64_t part_3 = sketch::floor_mod(i * TP + row, OW) + padding;
                float *const x_row = x + row * TK;
                for (int64_t lane = thread % 32; lane < std::min<int64_t>(TK, C * KH * KW - k0);
                    lane += 32) {
                    const int64_t X_index = sketch::floor_div(k0 + lane, KH * KW);
                    const int64_t X_index_2 = sketch::floor_div(part_2 -
                        sketch::floor_mod(sketch::floor_div(k0 + lane, KW), KH) * dilation, stride);
                    const int64_t X_index_3 = sketch::floor_div(part_3 - sketch::floor_mod(k0 +
                        lane, KW) * dilation, stride);
                    const float x_value = (sketch::floor_mod(part_2 -
                        sketch::floor_mod(sketch::floor_div(k0 + lane, KW), KH) * dilation, stride)
                        == 0 && sketch::floor_mod(part_3 - sketch::floor_mod(k0 + lane, KW) *
                        dilation, stride) == 0 && 0 <= X_index_2 && X_index_2 < H && 0 <= X_index_3
                        && X_index_3 < W) ? X[((part_ * C + X_index) * H + X_index_2) * W +
                        X_index_3] : 0.0f;
                    x_row[lane] = x_value;
                }
            }
            for (int64_t row = thread / 32; row < std::min<int64_t>(TK, C * KH * KW - k0); row +=
                threads / 32) {
                // load(WEIGHT[c[:, None], o[None, :], kh[:, None], kw[:, None]] -> w)
                const int64_t part_ = sketch::floor_div(k0 + row, KH * KW);
                const int64_t part_2 = sketch::floor_mod(sketch::floor_div(k0 + row, KW), KH);
                const int64_t part_3 = sketch::floor_mod(k0 + row, KW);
                float *const w_row = w + row * TO;
                for (int64_t lane = thread % 32; lane < std::min<int64_t>(TO, O - j * TO); lane +=
                    32) {
                    const float w_value = WEIGHT[((part_ * O + (j * TO + lane)) * KH + part_2) * KW
                        + part_3];
                    w_row[lane] = w_value;
                }
            }
            // gemm(x, w, y)
            __syncthreads();
            sketch::multiply_along<sketch::by_threads<4, 8, 8, true, false>, false>(
                1,
                [&](int64_t) {
                    return sketch::factors<float, float>{
                        std::min<int64_t>(TP, N * OH * OW - i * TP), std::min<int64_t>(TO, O - j *
                            TO), std::min<int64_t>(TK, C * KH * KW - k0),
                        sketch::matrix<const float>{x, TK, 1},
                        sketch::matrix<const float>{w, TO, 1}};
                },
                sketch::sums_in<float, false>{sketch::matrix<float>{y, TO, 1}},
                    reinterpret_cast<char *>(y));
        }
        __syncthreads();
        for (int64_t row = thread / 32; row < std::min<int64_t>(TP, N * OH * OW - i * TP); row +=
            threads / 32) {
            // store(y -> Y[n[:, None], o[None, :], oh[:, None], ow[:, None]])
            const int64_t part_ = sketch::floor_div(i * TP + row, OH * OW);
            const int64_t part_2 = sketch::floor_mod(sketch::floor_div(i * TP + row, OW), OH);
            const int64_t part_3 = sketch::floor_mod(i * TP + row, OW);
            const float *const y_row_2 = y + row * TO;
            for (int64_t lane = thread % 32; lane < std::min<int64_t>(TO, O - j * TO); lane += 32) {
                const float y_value = y_row_2[lane];
                Y[((part_ * O + (j * TO + lane)) * OH + part_2) * OW + part_3] = y_value;
            }
        }
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
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
        const int64_t programs = sketch::ceil_div(N * OH * OW, TP) * sketch::ceil_div(O, TO);
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        sketch::allow_shared(conv_transpose2d_1, 57600);
        if (blocks > 0) {
            conv_transpose2d_1<<<static_cast<unsigned>(blocks), 128, 57600>>>(X, WEIGHT, Y, N, C, H,
                W, O, KH, KW, stride, padding, dilation, OH, OW, programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
