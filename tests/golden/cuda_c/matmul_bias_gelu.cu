// matmul_bias_gelu: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o matmul_bias_gelu.so matmul_bias_gelu.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, max, min, erf, short_erf, gelu, too_large,
// max_of_floats, min_of_floats, lanes, enough, aligned, at_once, load_lanes, load_all_lanes,
// store_lanes, store_all_lanes, over_lanes, divisor, matrix, widened, window, factors,
// factors_from, sums_in, product_steps, by_threads, multiply_blocks, multiply_along,
// allow_shared.

extern "C" __global__ void matmul_bias_gelu_1(
    const float *__restrict X, const float *__restrict W, const float *__restrict BIAS,
    float *__restrict Y, int64_t M, int64_t N, int64_t K, int64_t programs)
{
    constexpr int64_t TM = 128;
    constexpr int64_t TN = 128;
    constexpr int64_t TK = 32;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t j = program % sketch::ceil_div(N, TN);
        const int64_t i = program / sketch::ceil_div(N, TN);
        float *const y = reinterpret_cast<float *>(block_memory + 256);
        // for k in range(ceil(K, TK)):
        // load(X[i*TM:(i+1)*TM, k*TK:(k+1)*TK] -> x)
        // load(W[j*TN:(j+1)*TN, k*TK:(k+1)*TK] -> w)
        // gemm(x, w, y, trans_b=True)
        sketch::multiply_along<sketch::by_threads<4, 8, 16, true, true>, false>(
            sketch::ceil_div(K, TK),
            [&]([[maybe_unused]] int64_t k) {
                return sketch::factors<float, float>{
                    std::min<int64_t>(TM, M - i * TM), std::min<int64_t>(TN, N - j * TN),
                        std::min<int64_t>(TK, K - k * TK),
                    sketch::matrix<const float>{X + K * TM * i + TK * k, K, 1},
                    sketch::matrix<const float>{W + K * TN * j + TK * k, 1, K}};
            },
            sketch::sums_in<float, true>{sketch::matrix<float>{y, TN, 1}}, reinterpret_cast<char
                *>(y));
        __syncthreads();
        for (int64_t row = thread / 32; row < std::min<int64_t>(TM, M - i * TM); row += threads /
            32) {
            // load(BIAS[j*TN:(j+1)*TN] -> bias)
            // add(y, bias, y)
            // gelu(y, y)
            // store(y -> Y[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
            const float *const y_row_2 = y + row * TN;
            const float *const BIAS_row = BIAS + j * TN;
            float *const Y_row = Y + ((i * TM + row) * N + j * TN);
            sketch::over_lanes<4, 1>(thread % 32 * 4, 32 * 4, std::min<int64_t>(TN, N - j * TN),
                sketch::aligned<4>(y_row_2, BIAS_row, Y_row), [&](int64_t first, auto left) {
                sketch::lanes<float, 4> Y_row_lanes;
                const auto y_row_2_lanes = sketch::load_lanes<4>(y_row_2 + first, left);
                const auto BIAS_row_lanes = sketch::load_lanes<4>(BIAS_row + first, left);
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    const float y_value = y_row_2_lanes[part];
                    const float bias = BIAS_row_lanes[part];
                    const float y_value_2 = y_value + bias;
                    const float y_value_3 = sketch::gelu(y_value_2);
                    Y_row_lanes[part] = y_value_3;
                }
                sketch::store_lanes(Y_row + first, left, Y_row_lanes);
            });
        }
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  M >= 0 and N >= 0 and K >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t matmul_bias_gelu(
    const float *__restrict X, const float *__restrict W, const float *__restrict BIAS, float
    *__restrict Y, int64_t M, int64_t N, int64_t K)
{
    constexpr int64_t TM = 128;
    constexpr int64_t TN = 128;

    if (M < 0 || N < 0 || K < 0) {
        return 1;
    }
    if (sketch::too_large({M, K}) || sketch::too_large({N, K}) || sketch::too_large({M, N})) {
        return 2;
    }
    {
        const int64_t programs = sketch::ceil_div(M, TM) * sketch::ceil_div(N, TN);
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        sketch::allow_shared(matmul_bias_gelu_1, 65792);
        if (blocks > 0) {
            matmul_bias_gelu_1<<<static_cast<unsigned>(blocks), 128, 65792>>>(X, W, BIAS, Y, M, N,
                K, programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
