// dropout: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o dropout.so dropout.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, max, philox, rand, too_large,
// max_of_floats, lanes, enough, aligned, at_once, load_lanes, load_all_lanes, store_lanes,
// store_all_lanes, over_lanes, divisor.

extern "C" __global__ void dropout_1(
    const float *__restrict X, float *__restrict Y, int64_t M, int64_t N, double p, int64_t seed,
    double scale, int64_t programs)
{
    constexpr int64_t T = 1024;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t i = program;
        bool *const keep = reinterpret_cast<bool *>(block_memory + 256);
        // rand(seed, i*T + iota(T), random)
        // ge(random, p, keep)
        sketch::over_lanes<8, 1>(thread * 8, threads * 8, T, sketch::aligned<8>(keep), [&](int64_t
            first, auto left) {
            sketch::lanes<bool, 8> keep_lanes;
            #pragma unroll
            for (int part = 0; part < 8; ++part) {
                const int64_t lane = first + part;
                const float random = sketch::rand(seed, i * T + lane);
                const bool keep_value = random >= static_cast<float>(p);
                keep_lanes[part] = keep_value;
            }
            sketch::store_lanes(keep + first, left, keep_lanes);
        });
        // load(XF[i*T:(i+1)*T] -> x)
        // mul(x, scale, x)
        // where(keep, x, 0, x)
        // store(x -> YF[i*T:(i+1)*T])
        __syncthreads();
        const float *const X_row = X + i * T;
        float *const Y_row = Y + i * T;
        sketch::over_lanes<4, 2>(thread * 4, threads * 4, std::min<int64_t>(T, M * N - i * T),
            sketch::aligned<4>(X_row, keep, Y_row), [&](int64_t first, auto left) {
            sketch::lanes<float, 4> Y_row_lanes;
            const auto X_row_lanes = sketch::load_lanes<4>(X_row + first, left);
            const auto keep_lanes = sketch::load_lanes<4>(keep + first, left);
            #pragma unroll
            for (int part = 0; part < 4; ++part) {
                const float x = X_row_lanes[part];
                const float x_mul = x * static_cast<float>(scale);
                const bool keep_value = keep_lanes[part];
                const float x_where = keep_value ? x_mul : 0.0f;
                Y_row_lanes[part] = x_where;
            }
            sketch::store_lanes(Y_row + first, left, Y_row_lanes);
        });
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  p >= 0 and p < 1
//   2  M >= 0 and N >= 0
//   3  1 - p != 0
//   4  fewer than 2**48 elements in each tensor
extern "C" int64_t dropout(
    const float *__restrict X, float *__restrict Y, int64_t M, int64_t N, double p, int64_t seed)
{
    constexpr int64_t T = 1024;

    // p is of type f32.
    p = static_cast<float>(p);
    if (M < 0 || N < 0) {
        return 2;
    }
    if (!(p >= 0.0) || !(p < 1.0)) {
        return 1;
    }
    if (!(1.0 - p != 0.0)) {
        return 3;
    }
    [[maybe_unused]] const double scale = static_cast<double>(1.0 / (1.0 - p));
    if (sketch::too_large({M, N})) {
        return 4;
    }
    {
        const int64_t programs = sketch::ceil_div(M * N, T);
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        if (blocks > 0) {
            dropout_1<<<static_cast<unsigned>(blocks), 128, 1280>>>(X, Y, M, N, p, seed, scale,
                programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
