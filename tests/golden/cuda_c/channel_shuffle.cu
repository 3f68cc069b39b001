// channel_shuffle: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o channel_shuffle.so channel_shuffle.cu

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

extern "C" __global__ void channel_shuffle_1(
    const float *__restrict X, float *__restrict Y, int64_t N, int64_t H, int64_t W,
    int64_t groups, int64_t CG, int64_t programs)
{
    constexpr int64_t T = 1024;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t j = program % sketch::ceil_div(H * W, T);
        const int64_t c = program / sketch::ceil_div(H * W, T) % CG;
        const int64_t g = program / sketch::ceil_div(H * W, T) / CG % groups;
        const int64_t n = program / sketch::ceil_div(H * W, T) / CG / groups;
        // load(XV[n, g, c, j*T:(j+1)*T] -> x)
        // store(x -> YV[n, c, g, j*T:(j+1)*T])
        const float *const X_row = X + (((n * groups + g) * CG + c) * (H * W) + j * T);
        float *const Y_row = Y + (((n * CG + c) * groups + g) * (H * W) + j * T);
        sketch::over_lanes<4, 2>(thread * 4, threads * 4, std::min<int64_t>(T, H * W - j * T),
            sketch::aligned<4>(X_row, Y_row), [&](int64_t first, auto left) {
            sketch::lanes<float, 4> Y_row_lanes;
            const auto X_row_lanes = sketch::load_lanes<4>(X_row + first, left);
            #pragma unroll
            for (int part = 0; part < 4; ++part) {
                const float x = X_row_lanes[part];
                Y_row_lanes[part] = x;
            }
            sketch::store_lanes(Y_row + first, left, Y_row_lanes);
        });
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  groups >= 1
//   3  CG >= 0
//   4  N*groups*CG*(H*W) == N*C*H*W
//   5  N*CG*groups*(H*W) == N*C*H*W
//   6  groups >= 1 and C == CG*groups
//   7  N >= 0 and C >= 0 and H >= 0 and W >= 0
//   8  fewer than 2**48 elements in each tensor
//   9  integers that stay within 64 bits
extern "C" int64_t channel_shuffle(
    const float *__restrict X, float *__restrict Y, int64_t N, int64_t C, int64_t H, int64_t W,
    int64_t groups)
{
    constexpr int64_t T = 1024;

    if (N < 0 || C < 0 || H < 0 || W < 0) {
        return 7;
    }
    if (groups < 1) {
        return 1;
    }
    [[maybe_unused]] const int64_t CG = sketch::floor_div(C, groups);
    if (CG < 0) {
        return 3;
    }
    if (N * groups * CG * (H * W) != N * C * H * W) {
        return 4;
    }
    if (N * CG * groups * (H * W) != N * C * H * W) {
        return 5;
    }
    if (groups < 1 || C != CG * groups) {
        return 6;
    }
    if (sketch::too_large({N, C, H, W})) {
        return 8;
    }
    if ((sketch::natural(CG) * H * N * W * groups + sketch::natural(CG) * N * groups +
        sketch::natural(CG) * N + sketch::natural(CG) * groups + sketch::natural(N) * groups +
        groups).reaches(UINT64_C(9223090561878065152))) {
        return 9;
    }
    {
        const int64_t programs = N * groups * CG * sketch::ceil_div(H * W, T);
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        if (blocks > 0) {
            channel_shuffle_1<<<static_cast<unsigned>(blocks), 128, 256>>>(X, Y, N, H, W, groups,
                CG, programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
