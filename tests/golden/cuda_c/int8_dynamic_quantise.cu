// int8_dynamic_quantise: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o int8_dynamic_quantise.so int8_dynamic_quantise.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, round_nearest, to_integer, saturated,
// absolute, max, min, too_large, max_of_floats, min_of_floats, largest, lanes, enough, aligned,
// at_once, load_lanes, load_all_lanes, store_lanes, store_all_lanes, over_lanes, divisor,
// combined_in_warp, combined.

extern "C" __global__ void int8_dynamic_quantise_1(
    const float *__restrict X, int8_t *__restrict Q, float *__restrict SCALE, int64_t M,
    int64_t N, int64_t programs)
{
    constexpr int64_t T = 2048;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t i = program;
        // largest = alloc([1], init=1e-12)
        float largest = 1e-12f;
        // for j in range(ceil(N, T)):
        for (int64_t j = 0; j < sketch::ceil_div(N, T); ++j) {
            float block = -std::numeric_limits<float>::infinity();
            // load(X[i, j*T:(j+1)*T] -> x)
            // abs(x, x)
            // reduce_max(x, 0, block)
            const float *const X_row = X + (i * N + j * T);
            float block_of_thread = sketch::largest<float>::start;
            sketch::over_lanes<4, 4>(thread * 4, threads * 4, std::min<int64_t>(T, N - j * T),
                sketch::aligned<4>(X_row), [&](int64_t first, auto left) {
                const auto X_row_lanes = sketch::load_lanes<4>(X_row + first, left);
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    const float x = X_row_lanes[part];
                    const float x_abs = sketch::absolute(x);
                    block_of_thread = sketch::largest<float>::combine(block_of_thread, part < left ?
                        x_abs : sketch::largest<float>::start);
                }
            });
            block = sketch::largest<float>::combine(block,
                sketch::combined<sketch::largest<float>>(block_of_thread, block_memory));
            // max(largest, block, largest)
            largest = sketch::max(largest, block);
        }
        // div(largest, 127, scale)
        const float scale = largest / 127.0f;
        // store(scale -> SCALE[i])
        if (thread == 0) {
            SCALE[i] = scale;
        }
        // for j in range(ceil(N, T)):
        for (int64_t j_2 = 0; j_2 < sketch::ceil_div(N, T); ++j_2) {
            // load(X[i, j*T:(j+1)*T] -> x)
            // div(x, scale, x)
            // cast(x, q, round="nearest", sat=True)
            // store(q -> Q[i, j*T:(j+1)*T])
            __syncthreads();
            const float *const X_row_2 = X + (i * N + j_2 * T);
            int8_t *const Q_row = Q + (i * N + j_2 * T);
            sketch::over_lanes<4, 4>(thread * 4, threads * 4, std::min<int64_t>(T, N - j_2 * T),
                sketch::aligned<4>(X_row_2, Q_row), [&, divisor = sketch::divisor(scale)](int64_t
                first, auto left) {
                sketch::lanes<int8_t, 4> Q_row_lanes;
                const auto X_row_2_lanes = sketch::load_lanes<4>(X_row_2 + first, left);
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    const float x_2 = X_row_2_lanes[part];
                    const float x_2_div = x_2 / divisor;
                    const int8_t q = sketch::saturated<int8_t>(sketch::round_nearest(x_2_div));
                    Q_row_lanes[part] = q;
                }
                sketch::store_lanes(Q_row + first, left, Q_row_lanes);
            });
        }
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  M >= 0 and N >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t int8_dynamic_quantise(
    const float *__restrict X, int8_t *__restrict Q, float *__restrict SCALE, int64_t M, int64_t
    N)
{
    if (M < 0 || N < 0) {
        return 1;
    }
    if (sketch::too_large({M, N})) {
        return 2;
    }
    {
        const int64_t programs = M;
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        if (blocks > 0) {
            int8_dynamic_quantise_1<<<static_cast<unsigned>(blocks), 128, 256>>>(X, Q, SCALE, M, N,
                programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
