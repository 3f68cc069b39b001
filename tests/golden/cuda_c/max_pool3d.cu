// max_pool3d: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o max_pool3d.so max_pool3d.cu

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

extern "C" __global__ void max_pool3d_1(
    const float *__restrict X, float *__restrict Y, int64_t N, int64_t C, int64_t D, int64_t H,
    int64_t W, int64_t kernel_size, int64_t stride, int64_t padding, int64_t dilation, int64_t OD,
    int64_t OH, int64_t OW, int64_t programs)
{
    constexpr int64_t TH = 16;
    constexpr int64_t TW = 64;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t j = program % sketch::ceil_div(OW, TW);
        const int64_t i = program / sketch::ceil_div(OW, TW) % sketch::ceil_div(OH, TH);
        const int64_t od = program / sketch::ceil_div(OW, TW) / sketch::ceil_div(OH, TH) % OD;
        const int64_t n = program / sketch::ceil_div(OW, TW) / sketch::ceil_div(OH, TH) / OD;
        float *const y = reinterpret_cast<float *>(block_memory + 256);
        for (int64_t row = thread / 32; row < TH; row += threads / 32) {
            // y = alloc([TH, TW], init=-inf)
            float *const y_row = y + row * TW;
            sketch::over_lanes<2, 1>(thread % 32 * 2, 32 * 2, TW, sketch::aligned<2>(y_row),
                [&](int64_t first, auto left) {
                sketch::lanes<float, 2> y_row_lanes;
                #pragma unroll
                for (int part = 0; part < 2; ++part) {
                    y_row_lanes[part] = -std::numeric_limits<float>::infinity();
                }
                sketch::store_lanes(y_row + first, left, y_row_lanes);
            });
        }
        // for kd in range(kernel_size):
        for (int64_t kd = 0; kd < kernel_size; ++kd) {
            // d = od*stride + kd*dilation - padding
            const int64_t d = od * stride + kd * dilation - padding;
            // if d >= 0 and d < D:
            if (d >= 0 && d < D) {
                // for kh in range(kernel_size):
                for (int64_t kh = 0; kh < kernel_size; ++kh) {
                    // for kw in range(kernel_size):
                    for (int64_t kw = 0; kw < kernel_size; ++kw) {
                        // h = i*TH*stride + kh*dilation - padding
                        const int64_t h = i * TH * stride + kh * dilation - padding;
                        // w = j*TW*stride + kw*dilation - padding
                        const int64_t w = j * TW * stride + kw * dilation - padding;
                        const int64_t part_ = sketch::floor_div(-h - 1, stride) + 1;
                        const int64_t part_2 = sketch::floor_div(H - h - 1, stride) + 1;
                        const int64_t part_3 = sketch::floor_div(-w - 1, stride) + 1;
                        const int64_t part_4 = sketch::floor_div(W - w - 1, stride) + 1;
                        __syncthreads();
                        for (int64_t row = thread / 32; row < TH; row += threads / 32) {
                            // load(XV[n, d, h:h+TH*stride:stride, w:w+TW*stride:stride] -> x, pad=-inf)
                            // max(y, x, y)
                            const int64_t part_5 = part_ <= row;
                            const int64_t part_6 = row < part_2;
                            float *const y_row_2 = y + row * TW;
                            for (int64_t lane = thread % 32; lane < TW; lane += 32) {
                                const float y_value = y_row_2[lane];
                                const float x = (part_5 && part_6 && part_3 <= lane && lane <
                                    part_4) ? X[((n * D + d) * H + (h + row * stride)) * W + (w +
                                    lane * stride)] : (-std::numeric_limits<float>::infinity());
                                const float y_value_2 = sketch::max(y_value, x);
                                y_row_2[lane] = y_value_2;
                            }
                        }
                    }
                }
            }
        }
        __syncthreads();
        for (int64_t row = thread / 32; row < std::min<int64_t>(TH, OH - i * TH); row += threads /
            32) {
            // store(y -> YV[n, od, i*TH:(i+1)*TH, j*TW:(j+1)*TW])
            const float *const y_row_3 = y + row * TW;
            float *const Y_row = Y + (((n * OD + od) * OH + (i * TH + row)) * OW + j * TW);
            sketch::over_lanes<2, 1>(thread % 32 * 2, 32 * 2, std::min<int64_t>(TW, OW - j * TW),
                sketch::aligned<2>(y_row_3, Y_row), [&](int64_t first, auto left) {
                sketch::lanes<float, 2> Y_row_lanes;
                const auto y_row_3_lanes = sketch::load_lanes<2>(y_row_3 + first, left);
                #pragma unroll
                for (int part = 0; part < 2; ++part) {
                    const float y_value = y_row_3_lanes[part];
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
//   2  OD >= 0
//   3  OH >= 0
//   4  OW >= 0
//   5  kernel_size >= 1 and stride >= 1 and dilation >= 1
//   6  padding >= 0 and 2*padding <= kernel_size
//   7  N >= 0 and C >= 0 and D >= 0 and H >= 0 and W >= 0
//   8  fewer than 2**48 elements in each tensor
//   9  integers that stay within 64 bits
extern "C" int64_t max_pool3d(
    const float *__restrict X, float *__restrict Y, int64_t N, int64_t C, int64_t D, int64_t H,
    int64_t W, int64_t kernel_size, int64_t stride, int64_t padding, int64_t dilation)
{
    constexpr int64_t TH = 16;
    constexpr int64_t TW = 64;

    if (N < 0 || C < 0 || D < 0 || H < 0 || W < 0) {
        return 7;
    }
    if (stride < 1) {
        return 1;
    }
    if (kernel_size < 1 || stride < 1 || dilation < 1) {
        return 5;
    }
    if (padding < 0 || 2 * padding > kernel_size) {
        return 6;
    }
    [[maybe_unused]] const int64_t OD = sketch::floor_div(D + 2 * padding - dilation * (kernel_size
        - 1) - 1, stride) + 1;
    if (OD < 0) {
        return 2;
    }
    [[maybe_unused]] const int64_t OH = sketch::floor_div(H + 2 * padding - dilation * (kernel_size
        - 1) - 1, stride) + 1;
    if (OH < 0) {
        return 3;
    }
    [[maybe_unused]] const int64_t OW = sketch::floor_div(W + 2 * padding - dilation * (kernel_size
        - 1) - 1, stride) + 1;
    if (OW < 0) {
        return 4;
    }
    if (sketch::too_large({N, C, D, H, W}) || sketch::too_large({N, C, OD, OH, OW})) {
        return 8;
    }
    if ((sketch::natural(OD) * stride + sketch::natural(OH) * stride + sketch::natural(OW) * stride
        + sketch::natural(dilation) * kernel_size + dilation + kernel_size + sketch::natural(2) *
        padding + sketch::natural(128) * stride).reaches(UINT64_C(9222246136947933184))) {
        return 9;
    }
    {
        const int64_t programs = N * C * OD * sketch::ceil_div(OH, TH) * sketch::ceil_div(OW, TW);
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        if (blocks > 0) {
            max_pool3d_1<<<static_cast<unsigned>(blocks), 128, 4352>>>(X, Y, N, C, D, H, W,
                kernel_size, stride, padding, dilation, OD, OH, OW, programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
