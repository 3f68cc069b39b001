// depthwise_conv2d: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o depthwise_conv2d.so depthwise_conv2d.cu

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

extern "C" __global__ void depthwise_conv2d_1(
    const float *__restrict X, const float *__restrict WEIGHT, float *__restrict Y, int64_t N,
    int64_t C, int64_t H, int64_t W, int64_t KH, int64_t KW, int64_t stride, int64_t padding,
    int64_t dilation, int64_t OH, int64_t OW, int64_t programs)
{
    constexpr int64_t T = 256;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t j = program % sketch::ceil_div(OW, T);
        const int64_t oh = program / sketch::ceil_div(OW, T) % OH;
        const int64_t c = program / sketch::ceil_div(OW, T) / OH % C;
        const int64_t n = program / sketch::ceil_div(OW, T) / OH / C;
        float *const y = reinterpret_cast<float *>(block_memory + 256);
        // y = alloc([T], init=0.0)
        sketch::over_lanes<2, 1>(thread * 2, threads * 2, T, sketch::aligned<2>(y), [&](int64_t
            first, auto left) {
            sketch::lanes<float, 2> y_lanes;
            #pragma unroll
            for (int part = 0; part < 2; ++part) {
                y_lanes[part] = 0.0f;
            }
            sketch::store_lanes(y + first, left, y_lanes);
        });
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
                    const int64_t part_ = sketch::floor_div(-first_ - 1, stride) + 1;
                    const int64_t part_2 = sketch::floor_div(W - first_ - 1, stride) + 1;
                    __syncthreads();
                    for (int64_t lane = thread; lane < T; lane += threads) {
                        const float x = (part_ <= lane && lane < part_2) ? X[((n * C + c) * H + h) *
                            W + (first_ + lane * stride)] : 0.0f;
                        const float y_value = y[lane];
                        const float y_value_2 = x * w + y_value;
                        y[lane] = y_value_2;
                    }
                }
            }
        }
        // store(y -> Y[n, c, oh, j*T:(j+1)*T])
        __syncthreads();
        float *const Y_row = Y + (((n * C + c) * OH + oh) * OW + j * T);
        sketch::over_lanes<2, 1>(thread * 2, threads * 2, std::min<int64_t>(T, OW - j * T),
            sketch::aligned<2>(y, Y_row), [&](int64_t first, auto left) {
            sketch::lanes<float, 2> Y_row_lanes;
            const auto y_lanes = sketch::load_lanes<2>(y + first, left);
            #pragma unroll
            for (int part = 0; part < 2; ++part) {
                const float y_value = y_lanes[part];
                Y_row_lanes[part] = y_value;
            }
            sketch::store_lanes(Y_row + first, left, Y_row_lanes);
        });
        __syncthreads();
    }
}

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
    {
        const int64_t programs = N * C * OH * sketch::ceil_div(OW, T);
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        if (blocks > 0) {
            depthwise_conv2d_1<<<static_cast<unsigned>(blocks), 128, 1280>>>(X, WEIGHT, Y, N, C, H,
                W, KH, KW, stride, padding, dilation, OH, OW, programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
