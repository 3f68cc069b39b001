// avg_pool2d: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o avg_pool2d.so avg_pool2d.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, max, natural, too_large, max_of_floats,
// lanes, enough, aligned, at_once, load_lanes, load_all_lanes, store_lanes, store_all_lanes,
// over_lanes, divisor.

extern "C" __global__ void avg_pool2d_1(
    const float *__restrict X, float *__restrict Y, int64_t N, int64_t C, int64_t H, int64_t W,
    int64_t kernel_size, int64_t stride, int64_t padding, int64_t OH, int64_t OW,
    int64_t programs)
{
    constexpr int64_t TH = 16;
    constexpr int64_t TW = 64;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t j = program % sketch::ceil_div(OW, TW);
        const int64_t i = program / sketch::ceil_div(OW, TW) % sketch::ceil_div(OH, TH);
        const int64_t c = program / sketch::ceil_div(OW, TW) / sketch::ceil_div(OH, TH) % C;
        const int64_t n = program / sketch::ceil_div(OW, TW) / sketch::ceil_div(OH, TH) / C;
        float *const y = reinterpret_cast<float *>(block_memory + 256);
        for (int64_t row = thread / 32; row < TH; row += threads / 32) {
            // y = alloc([TH, TW], init=0.0)
            float *const y_row = y + row * TW;
            sketch::over_lanes<2, 1>(thread % 32 * 2, 32 * 2, TW, sketch::aligned<2>(y_row),
                [&](int64_t first, auto left) {
                sketch::lanes<float, 2> y_row_lanes;
                #pragma unroll
                for (int part = 0; part < 2; ++part) {
                    y_row_lanes[part] = 0.0f;
                }
                sketch::store_lanes(y_row + first, left, y_row_lanes);
            });
        }
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
                __syncthreads();
                for (int64_t row = thread / 32; row < TH; row += threads / 32) {
                    // load(X[n, c, h:h+TH*stride:stride, w:w+TW*stride:stride] -> x, pad=0)
                    // add(y, x, y)
                    const int64_t part_5 = part_ <= row;
                    const int64_t part_6 = row < part_2;
                    float *const y_row_2 = y + row * TW;
                    for (int64_t lane = thread % 32; lane < TW; lane += 32) {
                        const float y_value = y_row_2[lane];
                        const float x = (part_5 && part_6 && part_3 <= lane && lane < part_4) ?
                            X[((n * C + c) * H + (h + row * stride)) * W + (w + lane * stride)] :
                            0.0f;
                        const float y_value_2 = y_value + x;
                        y_row_2[lane] = y_value_2;
                    }
                }
            }
        }
        // top = (i*TH+iota(TH))*stride - padding
        // left = (j*TW+iota(TW))*stride - padding
        // rows = min(top + kernel_size, H) - max(top, 0)
        // columns = min(left + kernel_size, W) - max(left, 0)
        __syncthreads();
        for (int64_t row = thread / 32; row < TH; row += threads / 32) {
            // div(y, rows[:, None]*columns[None, :], y)
            float *const y_row_3 = y + row * TW;
            sketch::over_lanes<2, 1>(thread % 32 * 2, 32 * 2, TW, sketch::aligned<2>(y_row_3),
                [&](int64_t first, auto left) {
                auto y_row_3_lanes = sketch::load_lanes<2>(y_row_3 + first, left);
                #pragma unroll
                for (int part = 0; part < 2; ++part) {
                    const int64_t lane = first + part;
                    const float y_value = y_row_3_lanes[part];
                    const float y_value_2 = y_value / static_cast<float>((std::min<int64_t>((i * TH
                        + row) * stride - padding + kernel_size, H) - std::max<int64_t>((i * TH +
                        row) * stride - padding, 0)) * (std::min<int64_t>((j * TW + lane) * stride -
                        padding + kernel_size, W) - std::max<int64_t>((j * TW + lane) * stride -
                        padding, 0)));
                    y_row_3_lanes[part] = y_value_2;
                }
                sketch::store_lanes(y_row_3 + first, left, y_row_3_lanes);
            });
        }
        __syncthreads();
        for (int64_t row = thread / 32; row < std::min<int64_t>(TH, OH - i * TH); row += threads /
            32) {
            // store(y -> Y[n, c, i*TH:(i+1)*TH, j*TW:(j+1)*TW])
            const float *const y_row_4 = y + row * TW;
            float *const Y_row = Y + (((n * C + c) * OH + (i * TH + row)) * OW + j * TW);
            sketch::over_lanes<2, 1>(thread % 32 * 2, 32 * 2, std::min<int64_t>(TW, OW - j * TW),
                sketch::aligned<2>(y_row_4, Y_row), [&](int64_t first, auto left) {
                sketch::lanes<float, 2> Y_row_lanes;
                const auto y_row_4_lanes = sketch::load_lanes<2>(y_row_4 + first, left);
                #pragma unroll
                for (int part = 0; part < 2; ++part) {
                    const float y_value = y_row_4_lanes[part];
                    Y_row_lanes[part] = y_value;
                }
                sketch::store_lanes(Y_row + first, left, Y_row_lanes);
            });
        }
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  stride >= 1
//   2  OH >= 0
//   3  OW >= 0
//   4  kernel_size >= 1 and stride >= 1
//   5  padding >= 0 and 2*padding <= kernel_size
//   6  N >= 0 and C >= 0 and H >= 0 and W >= 0
//   7  fewer than 2**48 elements in each tensor
//   8  integers that stay within 64 bits
extern "C" int64_t avg_pool2d(
    const float *__restrict X, float *__restrict Y, int64_t N, int64_t C, int64_t H, int64_t W,
    int64_t kernel_size, int64_t stride, int64_t padding)
{
    constexpr int64_t TH = 16;
    constexpr int64_t TW = 64;

    if (N < 0 || C < 0 || H < 0 || W < 0) {
        return 6;
    }
    if (stride < 1) {
        return 1;
    }
    if (kernel_size < 1 || stride < 1) {
        return 4;
    }
    if (padding < 0 || 2 * padding > kernel_size) {
        return 5;
    }
    [[maybe_unused]] const int64_t OH = sketch::floor_div(H + 2 * padding - kernel_size, stride) +
        1;
    if (OH < 0) {
        return 2;
    }
    [[maybe_unused]] const int64_t OW = sketch::floor_div(W + 2 * padding - kernel_size, stride) +
        1;
    if (OW < 0) {
        return 3;
    }
    if (sketch::too_large({N, C, H, W}) || sketch::too_large({N, C, OH, OW})) {
        return 7;
    }
    if ((sketch::natural(4) * OH * OW * stride * stride + sketch::natural(2) * H * OW * stride +
        sketch::natural(2) * OH * W * stride + sketch::natural(2) * OH * kernel_size * stride +
        sketch::natural(4) * OH * padding * stride + sketch::natural(508) * OH * stride * stride +
        sketch::natural(2) * OW * kernel_size * stride + sketch::natural(4) * OW * padding * stride
        + sketch::natural(124) * OW * stride * stride + sketch::natural(H) * kernel_size +
        sketch::natural(2) * H * padding + sketch::natural(254) * H * stride + sketch::natural(2) *
        OH * stride + sketch::natural(2) * OW * stride + sketch::natural(W) * kernel_size +
        sketch::natural(2) * W * padding + sketch::natural(62) * W * stride +
        sketch::natural(kernel_size) * kernel_size + sketch::natural(4) * kernel_size * padding +
        sketch::natural(316) * kernel_size * stride + sketch::natural(4) * padding * padding +
        sketch::natural(632) * padding * stride + sketch::natural(15748) * stride * stride +
        kernel_size + sketch::natural(2) * padding + sketch::natural(254) *
        stride).reaches(UINT64_C(9222246136947933184))) {
        return 8;
    }
    {
        const int64_t programs = N * C * sketch::ceil_div(OH, TH) * sketch::ceil_div(OW, TW);
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        if (blocks > 0) {
            avg_pool2d_1<<<static_cast<unsigned>(blocks), 128, 4352>>>(X, Y, N, C, H, W,
                kernel_size, stride, padding, OH, OW, programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
