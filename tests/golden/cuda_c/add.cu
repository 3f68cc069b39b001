// add_bias: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o add_bias.so add_bias.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, max, too_large, max_of_floats, lanes,
// enough, aligned, at_once, load_lanes, load_all_lanes, store_lanes, store_all_lanes, over_lanes,
// divisor.

extern "C" __global__ void add_bias_1(
    const float *__restrict X, const float *__restrict BIAS, float *__restrict Y, int64_t M,
    int64_t N, int64_t programs)
{
    constexpr int64_t TM = 4;
    constexpr int64_t TN = 256;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t j = program % sketch::ceil_div(N, TN);
        const int64_t i = program / sketch::ceil_div(N, TN);
        for (int64_t row = thread / 32; row < std::min<int64_t>(TM, M - i * TM); row += threads /
            32) {
            // load(X[i*TM:(i+1)*TM, j*TN:(j+1)*TN] -> x)
            // load(BIAS[j*TN:(j+1)*TN] -> bias)
            // add(x, bias, y)
            // store(y -> Y[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
            const float *const X_row = X + ((i * TM + row) * N + j * TN);
            const float *const BIAS_row = BIAS + j * TN;
            float *const Y_row = Y + ((i * TM + row) * N + j * TN);
            sketch::over_lanes<4, 2>(thread % 32 * 4, 32 * 4, std::min<int64_t>(TN, N - j * TN),
                sketch::aligned<4>(X_row, BIAS_row, Y_row), [&](int64_t first, auto left) {
                sketch::lanes<float, 4> Y_row_lanes;
                const auto X_row_lanes = sketch::load_lanes<4>(X_row + first, left);
                const auto BIAS_row_lanes = sketch::load_lanes<4>(BIAS_row + first, left);
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    const float x = X_row_lanes[part];
                    const float bias = BIAS_row_lanes[part];
                    const float y = x + bias;
                    Y_row_lanes[part] = y;
                }
                sketch::store_lanes(Y_row + first, left, Y_row_lanes);
            });
        }
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  M >= 0 and N >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t add_bias(
    const float *__restrict X, const float *__restrict BIAS, float *__restrict Y, int64_t M,
    int64_t N)
{
    constexpr int64_t TM = 4;
    constexpr int64_t TN = 256;

    if (M < 0 || N < 0) {
        return 1;
    }
    if (sketch::too_large({M, N})) {
        return 2;
    }
    {
        const int64_t programs = sketch::ceil_div(M, TM) * sketch::ceil_div(N, TN);
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        if (blocks > 0) {
            add_bias_1<<<static_cast<unsigned>(blocks), 128, 256>>>(X, BIAS, Y, M, N, programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
