// avg_pool1d: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o avg_pool1d.so avg_pool1d.cu

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

extern "C" __global__ void avg_pool1d_1(
    const float *__restrict X, float *__restrict Y, int64_t N, int64_t C, int64_t L,
    int64_t kernel_size, int64_t stride, int64_t padding, int64_t count_include_pad, int64_t OL,
    int64_t programs)
{
    constexpr int64_t T = 512;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t j = program % sketch::ceil_div(OL, T);
        const int64_t c = program / sketch::ceil_div(OL, T) % C;
        const int64_t n = program / sketch::ceil_div(OL, T) / C;
        float *const y = reinterpret_cast<float *>(block_memory + 256);
        // y = alloc([T], init=0.0)
        sketch::over_lanes<4, 1>(thread * 4, threads * 4, T, sketch::aligned<4>(y), [&](int64_t
            first, auto left) {
            sketch::lanes<float, 4> y_lanes;
            #pragma unroll
            for (int part = 0; part < 4; ++part) {
                y_lanes[part] = 0.0f;
            }
            sketch::store_lanes(y + first, left, y_lanes);
        });
        // for k in range(kernel_size):
        for (int64_t k = 0; k < kernel_size; ++k) {
            // first = j*T*stride + k - padding
            const int64_t first_ = j * T * stride + k - padding;
            // load(X[n, c, first:first+T*stride:stride] -> x, pad=0)
            // add(y, x, y)
            const int64_t part_ = sketch::floor_div(-first_ - 1, stride) + 1;
            const int64_t part_2 = sketch::floor_div(L - first_ - 1, stride) + 1;
            __syncthreads();
            for (int64_t lane = thread; lane < T; lane += threads) {
                const float y_value = y[lane];
                const float x = (part_ <= lane && lane < part_2) ? X[(n * C + c) * L + (first_ +
                    lane * stride)] : 0.0f;
                const float y_value_2 = y_value + x;
                y[lane] = y_value_2;
            }
        }
        // if count_include_pad:
        if (count_include_pad) {
            // div(y, kernel_size, y)
            __syncthreads();
            sketch::over_lanes<4, 1>(thread * 4, threads * 4, T, sketch::aligned<4>(y), [&](int64_t
                first, auto left) {
                auto y_lanes = sketch::load_lanes<4>(y + first, left);
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    const float y_value = y_lanes[part];
                    const float y_value_2 = y_value / static_cast<float>(kernel_size);
                    y_lanes[part] = y_value_2;
                }
                sketch::store_lanes(y + first, left, y_lanes);
            });
        }
        else {
            // start = (j*T+iota(T))*stride - padding
            // div(y, min(start + kernel_size, L) - max(start, 0), y)
            __syncthreads();
            sketch::over_lanes<4, 1>(thread * 4, threads * 4, T, sketch::aligned<4>(y), [&](int64_t
                first, auto left) {
                auto y_lanes = sketch::load_lanes<4>(y + first, left);
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    const int64_t lane = first + part;
                    const float y_value = y_lanes[part];
                    const float y_value_2 = y_value / static_cast<float>(std::min<int64_t>((j * T +
                        lane) * stride - padding + kernel_size, L) - std::max<int64_t>((j * T +
                        lane) * stride - padding, 0));
                    y_lanes[part] = y_value_2;
                }
                sketch::store_lanes(y + first, left, y_lanes);
            });
        }
        // store(y -> Y[n, c, j*T:(j+1)*T])
        __syncthreads();
        float *const Y_row = Y + ((n * C + c) * OL + j * T);
        sketch::over_lanes<4, 1>(thread * 4, threads * 4, std::min<int64_t>(T, OL - j * T),
            sketch::aligned<4>(y, Y_row), [&](int64_t first, auto left) {
            sketch::lanes<float, 4> Y_row_lanes;
            const auto y_lanes = sketch::load_lanes<4>(y + first, left);
            #pragma unroll
            for (int part = 0; part < 4; ++part) {
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
//   2  OL >= 0
//   3  kernel_size >= 1 and stride >= 1
//   4  padding >= 0 and 2*padding <= kernel_size
//   5  N >= 0 and C >= 0 and L >= 0
//   6  fewer than 2**48 elements in each tensor
//   7  integers that stay within 64 bits
extern "C" int64_t avg_pool1d(
    const float *__restrict X, float *__restrict Y, int64_t N, int64_t C, int64_t L, int64_t
    kernel_size, int64_t stride, int64_t padding, int64_t count_include_pad)
{
    constexpr int64_t T = 512;

    if (N < 0 || C < 0 || L < 0) {
        return 5;
    }
    if (stride < 1) {
        return 1;
    }
    if (kernel_size < 1 || stride < 1) {
        return 3;
    }
    if (padding < 0 || 2 * padding > kernel_size) {
        return 4;
    }
    [[maybe_unused]] const int64_t OL = sketch::floor_div(L + 2 * padding - kernel_size, stride) +
        1;
    if (OL < 0) {
        return 2;
    }
    if (sketch::too_large({N, C, L}) || sketch::too_large({N, C, OL})) {
        return 6;
    }
    if ((sketch::natural(2) * OL * stride + kernel_size + sketch::natural(2) * padding +
        sketch::natural(2046) * stride).reaches(UINT64_C(9222246136947933184))) {
        return 7;
    }
    {
        const int64_t programs = N * C * sketch::ceil_div(OL, T);
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        if (blocks > 0) {
            avg_pool1d_1<<<static_cast<unsigned>(blocks), 128, 2304>>>(X, Y, N, C, L, kernel_size,
                stride, padding, count_include_pad, OL, programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
