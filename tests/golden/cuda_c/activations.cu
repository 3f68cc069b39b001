// activations: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o activations.so activations.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, absolute, max, at_least, at_most, tanh,
// expm1, log1p, exp, sigmoid, silu, gelu_tanh, softplus, softsign, hardsigmoid, hardswish, elu,
// selu, leaky_relu, too_large, max_of_floats, lanes, enough, aligned, at_once, load_lanes,
// load_all_lanes, store_lanes, store_all_lanes, over_lanes, divisor.

extern "C" __global__ void activations_1(
    const float *__restrict X, float *__restrict SIGMOID, float *__restrict SILU,
    float *__restrict GELU_TANH, float *__restrict SOFTPLUS, float *__restrict SOFTSIGN,
    float *__restrict HARDSIGMOID, float *__restrict HARDSWISH, float *__restrict ELU,
    float *__restrict SELU, float *__restrict LEAKY_RELU, int64_t M, int64_t N, int64_t programs)
{
    constexpr int64_t TM = 8;
    constexpr int64_t TN = 128;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t j = program % sketch::ceil_div(N, TN);
        const int64_t i = program / sketch::ceil_div(N, TN);
        for (int64_t row = thread / 32; row < std::min<int64_t>(TM, M - i * TM); row += threads /
            32) {
            // load(X[i*TM:(i+1)*TM, j*TN:(j+1)*TN] -> x)
            // sigmoid(x, y)
            // store(y -> SIGMOID[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
            // silu(x, y)
            // store(y -> SILU[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
            // gelu(x, y, approximate="tanh")
            // store(y -> GELU_TANH[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
            // softplus(x, y)
            // store(y -> SOFTPLUS[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
            // softsign(x, y)
            // store(y -> SOFTSIGN[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
            // hardsigmoid(x, y)
            // store(y -> HARDSIGMOID[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
            // hardswish(x, y)
            // store(y -> HARDSWISH[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
            // elu(x, y, alpha=0.5)
            // store(y -> ELU[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
            // selu(x, y)
            // store(y -> SELU[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
            // leaky_relu(x, y, slope=0.2)
            // store(y -> LEAKY_RELU[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
            const float *const X_row = X + ((i * TM + row) * N + j * TN);
            float *const SIGMOID_row = SIGMOID + ((i * TM + row) * N + j * TN);
            float *const SILU_row = SILU + ((i * TM + row) * N + j * TN);
            float *const GELU_TANH_row = GELU_TANH + ((i * TM + row) * N + j * TN);
            float *const SOFTPLUS_row = SOFTPLUS + ((i * TM + row) * N + j * TN);
            float *const SOFTSIGN_row = SOFTSIGN + ((i * TM + row) * N + j * TN);
            float *const HARDSIGMOID_row = HARDSIGMOID + ((i * TM + row) * N + j * TN);
            float *const HARDSWISH_row = HARDSWISH + ((i * TM + row) * N + j * TN);
            float *const ELU_row = ELU + ((i * TM + row) * N + j * TN);
            float *const SELU_row = SELU + ((i * TM + row) * N + j * TN);
            float *const LEAKY_RELU_row = LEAKY_RELU + ((i * TM + row) * N + j * TN);
            sketch::over_lanes<4, 1>(thread % 32 * 4, 32 * 4, std::min<int64_t>(TN, N - j * TN),
                sketch::aligned<4>(X_row, SIGMOID_row, SILU_row, GELU_TANH_row, SOFTPLUS_row,
                SOFTSIGN_row, HARDSIGMOID_row, HARDSWISH_row, ELU_row, SELU_row, LEAKY_RELU_row),
                [&](int64_t first, auto left) {
                sketch::lanes<float, 4> SIGMOID_row_lanes;
                sketch::lanes<float, 4> SILU_row_lanes;
                sketch::lanes<float, 4> GELU_TANH_row_lanes;
                sketch::lanes<float, 4> SOFTPLUS_row_lanes;
                sketch::lanes<float, 4> SOFTSIGN_row_lanes;
                sketch::lanes<float, 4> HARDSIGMOID_row_lanes;
                sketch::lanes<float, 4> HARDSWISH_row_lanes;
                sketch::lanes<float, 4> ELU_row_lanes;
                sketch::lanes<float, 4> SELU_row_lanes;
                sketch::lanes<float, 4> LEAKY_RELU_row_lanes;
                const auto X_row_lanes = sketch::load_lanes<4>(X_row + first, left);
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    const float x = X_row_lanes[part];
                    const float y = sketch::sigmoid(x);
                    SIGMOID_row_lanes[part] = y;
                    const float y_silu = sketch::silu(x);
                    SILU_row_lanes[part] = y_silu;
                    const float y_gelu = sketch::gelu_tanh(x);
                    GELU_TANH_row_lanes[part] = y_gelu;
                    const float y_softplus = sketch::softplus(x);
                    SOFTPLUS_row_lanes[part] = y_softplus;
                    const float y_softsign = sketch::softsign(x);
                    SOFTSIGN_row_lanes[part] = y_softsign;
                    const float y_hardsigmoid = sketch::hardsigmoid(x);
                    HARDSIGMOID_row_lanes[part] = y_hardsigmoid;
                    const float y_hardswish = sketch::hardswish(x);
                    HARDSWISH_row_lanes[part] = y_hardswish;
                    const float y_elu = sketch::elu(x, 0.5f);
                    ELU_row_lanes[part] = y_elu;
                    const float y_selu = sketch::selu(x);
                    SELU_row_lanes[part] = y_selu;
                    const float y_leaky_relu = sketch::leaky_relu(x, 0.2f);
                    LEAKY_RELU_row_lanes[part] = y_leaky_relu;
                }
                sketch::store_lanes(SIGMOID_row + first, left, SIGMOID_row_lanes);
                sketch::store_lanes(SILU_row + first, left, SILU_row_lanes);
                sketch::store_lanes(GELU_TANH_row + first, left, GELU_TANH_row_lanes);
                sketch::store_lanes(SOFTPLUS_row + first, left, SOFTPLUS_row_lanes);
                sketch::store_lanes(SOFTSIGN_row + first, left, SOFTSIGN_row_lanes);
                sketch::store_lanes(HARDSIGMOID_row + first, left, HARDSIGMOID_row_lanes);
                sketch::store_lanes(HARDSWISH_row + first, left, HARDSWISH_row_lanes);
                sketch::store_lanes(ELU_row + first, left, ELU_row_lanes);
                sketch::store_lanes(SELU_row + first, left, SELU_row_lanes);
                sketch::store_lanes(LEAKY_RELU_row + first, left, LEAKY_RELU_row_lanes);
            });
        }
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  M >= 0 and N >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t activations(
    const float *__restrict X, float *__restrict SIGMOID, float *__restrict SILU, float
    *__restrict GELU_TANH, float *__restrict SOFTPLUS, float *__restrict SOFTSIGN, float
    *__restrict HARDSIGMOID, float *__restrict HARDSWISH, float *__restrict ELU, float *__restrict
    SELU, float *__restrict LEAKY_RELU, int64_t M, int64_t N)
{
    constexpr int64_t TM = 8;
    constexpr int64_t TN = 128;

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
            activations_1<<<static_cast<unsigned>(blocks), 128, 256>>>(X, SIGMOID, SILU, GELU_TANH,
                SOFTPLUS, SOFTSIGN, HARDSIGMOID, HARDSWISH, ELU, SELU, LEAKY_RELU, M, N, programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
