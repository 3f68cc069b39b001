// add_noise: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o add_noise.so add_noise.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, sqrt, log, cos, philox, randn, lanes,
// enough, aligned, at_once, load_lanes, load_all_lanes, store_lanes, store_all_lanes, over_lanes,
// divisor.

extern "C" __global__ void add_noise_1(
    const float *__restrict X, float *__restrict Y, int64_t N, double sigma, int64_t seed,
    int64_t programs)
{
    constexpr int64_t T = 1024;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t i = program;
        float *const noise = reinterpret_cast<float *>(block_memory + 256);
        // randn(seed, i*T + iota(T), noise)
        sketch::over_lanes<4, 2>(thread * 4, threads * 4, T, sketch::aligned<4>(noise), [&](int64_t
            first, auto left) {
            sketch::lanes<float, 4> noise_lanes;
            #pragma unroll
            for (int part = 0; part < 4; ++part) {
                const int64_t lane = first + part;
                const float noise_value = static_cast<float>(sketch::randn(seed, i * T + lane));
                noise_lanes[part] = noise_value;
            }
            sketch::store_lanes(noise + first, left, noise_lanes);
        });
        // load(X[i*T:(i+1)*T] -> x)
        // fma(noise, sigma, x, x)
        // store(x -> Y[i*T:(i+1)*T])
        const float *const X_row = X + i * T;
        float *const Y_row = Y + i * T;
        sketch::over_lanes<4, 2>(thread * 4, threads * 4, std::min<int64_t>(T, N - i * T),
            sketch::aligned<4>(noise, X_row, Y_row), [&](int64_t first, auto left) {
            sketch::lanes<float, 4> Y_row_lanes;
            const auto noise_lanes = sketch::load_lanes<4>(noise + first, left);
            const auto X_row_lanes = sketch::load_lanes<4>(X_row + first, left);
            #pragma unroll
            for (int part = 0; part < 4; ++part) {
                const float noise_value = noise_lanes[part];
                const float x = X_row_lanes[part];
                const float x_fma = noise_value * static_cast<float>(sigma) + x;
                Y_row_lanes[part] = x_fma;
            }
            sketch::store_lanes(Y_row + first, left, Y_row_lanes);
        });
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  N >= 0
extern "C" int64_t add_noise(
    const float *__restrict X, float *__restrict Y, int64_t N, double sigma, int64_t seed)
{
    constexpr int64_t T = 1024;

    if (N < 0) {
        return 1;
    }
    {
        const int64_t programs = sketch::ceil_div(N, T);
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        if (blocks > 0) {
            add_noise_1<<<static_cast<unsigned>(blocks), 128, 4352>>>(X, Y, N, sigma, seed,
                programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
