// pixel_shuffle: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o pixel_shuffle.so pixel_shuffle.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, max, too_large, max_of_floats, divisor.

extern "C" __global__ void pixel_shuffle_1(
    const float *__restrict X, float *__restrict Y, int64_t N, int64_t H, int64_t W, int64_t C,
    int64_t programs)
{
    constexpr int64_t R = 2;
    constexpr int64_t T = 256;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t j = program % sketch::ceil_div(W, T);
        const int64_t h = program / sketch::ceil_div(W, T) % H;
        const int64_t c = program / sketch::ceil_div(W, T) / H % C;
        const int64_t n = program / sketch::ceil_div(W, T) / H / C;
        for (int64_t plane = thread / 32; plane < R; plane += threads / 32) {
            for (int64_t row = 0; row < std::min<int64_t>(T, W - j * T); ++row) {
                // load(XV[n, c, 0:R, 0:R, h, j*T:(j+1)*T] -> x)
                // permute(x, [0, 2, 1], y)
                // store(y -> YV[n, c, h, 0:R, j*T:(j+1)*T, 0:R])
                __syncwarp();
                float *const Y_row = Y + ((((n * C + c) * H + h) * R + plane) * W + (j * T + row)) *
                    R;
                for (int64_t lane = thread % 32; lane < R; lane += 32) {
                    const float x = X[((((n * C + c) * R + plane) * R + lane) * H + h) * W + (j * T
                        + row)];
                    const float y = x;
                    Y_row[lane] = y;
                }
            }
        }
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  N*C*R*R*H*W == N*CRR*H*W
//   2  CRR == C*R*R
//   3  N >= 0 and CRR >= 0 and H >= 0 and W >= 0
//   4  fewer than 2**48 elements in each tensor
extern "C" int64_t pixel_shuffle(
    const float *__restrict X, float *__restrict Y, int64_t N, int64_t CRR, int64_t H, int64_t W)
{
    constexpr int64_t R = 2;
    constexpr int64_t T = 256;

    if (N < 0 || CRR < 0 || H < 0 || W < 0) {
        return 3;
    }
    [[maybe_unused]] const int64_t C = sketch::floor_div(CRR, R * R);
    if (N * C * R * R * H * W != N * CRR * H * W) {
        return 1;
    }
    if (CRR != C * R * R) {
        return 2;
    }
    if (sketch::too_large({N, CRR, H, W}) || sketch::too_large({N, C, H, W})) {
        return 4;
    }
    {
        const int64_t programs = N * C * H * sketch::ceil_div(W, T);
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        if (blocks > 0) {
            pixel_shuffle_1<<<static_cast<unsigned>(blocks), 128, 256>>>(X, Y, N, H, W, C,
                programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
