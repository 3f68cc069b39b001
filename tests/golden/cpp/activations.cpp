// activations: a C++ kernel for cpu, made from a sketch.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <new>
#include <type_traits>
#include <utility>
#include <omp.h>
#if defined(__AVX__)
#include <immintrin.h>
#endif

// The library: least_shared_work, threads_for, cache_bytes, streams, stream, end_streams,
// floor_div, ceil_div, bits_of, float_of, absolute, max, at_least, at_most, tanh, expm1, log1p,
// exp, sigmoid, silu, gelu_tanh, softplus, softsign, hardsigmoid, hardswish, elu, selu,
// leaky_relu, too_large.

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
    constexpr int64_t TN = 512;

    if (M < 0 || N < 0) {
        return 1;
    }
    if (sketch::too_large({M, N})) {
        return 2;
    }
    const bool SIGMOID_streams = sketch::streams(sizeof(float), {M, N});
    const bool SILU_streams = sketch::streams(sizeof(float), {M, N});
    const bool GELU_TANH_streams = sketch::streams(sizeof(float), {M, N});
    const bool SOFTPLUS_streams = sketch::streams(sizeof(float), {M, N});
    const bool SOFTSIGN_streams = sketch::streams(sizeof(float), {M, N});
    const bool HARDSIGMOID_streams = sketch::streams(sizeof(float), {M, N});
    const bool HARDSWISH_streams = sketch::streams(sizeof(float), {M, N});
    const bool ELU_streams = sketch::streams(sizeof(float), {M, N});
    const bool SELU_streams = sketch::streams(sizeof(float), {M, N});
    const bool LEAKY_RELU_streams = sketch::streams(sizeof(float), {M, N});
    const int threads = sketch::threads_for(N * M * 54);
    #pragma omp parallel num_threads(threads)
    {
        #pragma omp for collapse(2) schedule(static)
        for (int64_t i = 0; i < sketch::ceil_div(M, TM); ++i) {
            for (int64_t j = 0; j < sketch::ceil_div(N, TN); ++j) {
                for (int64_t row = 0; row < std::min<int64_t>(TM, M - i * TM); ++row) {
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
                    for (int64_t block = 0; block < std::min<int64_t>(TN, N - j * TN); block +=
                        1024) {
                        const int64_t block_end = std::min<int64_t>(std::min<int64_t>(TN, N - j *
                            TN), block + 1024);
                        alignas(64) float SIGMOID_block[1024];
                        float *const SIGMOID_row = SIGMOID_streams ? SIGMOID_block : SIGMOID + ((i *
                            TM + row) * N + j * TN + block);
                        alignas(64) float SILU_block[1024];
                        float *const SILU_row = SILU_streams ? SILU_block : SILU + ((i * TM + row) *
                            N + j * TN + block);
                        alignas(64) float GELU_TANH_block[1024];
                        float *const GELU_TANH_row = GELU_TANH_streams ? GELU_TANH_block : GELU_TANH
                            + ((i * TM + row) * N + j * TN + block);
                        alignas(64) float SOFTPLUS_block[1024];
                        float *const SOFTPLUS_row = SOFTPLUS_streams ? SOFTPLUS_block : SOFTPLUS +
                            ((i * TM + row) * N + j * TN + block);
                        alignas(64) float SOFTSIGN_block[1024];
                        float *const SOFTSIGN_row = SOFTSIGN_streams ? SOFTSIGN_block : SOFTSIGN +
                            ((i * TM + row) * N + j * TN + block);
                        alignas(64) float HARDSIGMOID_block[1024];
                        float *const HARDSIGMOID_row = HARDSIGMOID_streams ? HARDSIGMOID_block :
                            HARDSIGMOID + ((i * TM + row) * N + j * TN + block);
                        alignas(64) float HARDSWISH_block[1024];
                        float *const HARDSWISH_row = HARDSWISH_streams ? HARDSWISH_block : HARDSWISH
                            + ((i * TM + row) * N + j * TN + block);
                        alignas(64) float ELU_block[1024];
                        float *const ELU_row = ELU_streams ? ELU_block : ELU + ((i * TM + row) * N +
                            j * TN + block);
                        alignas(64) float SELU_block[1024];
                        float *const SELU_row = SELU_streams ? SELU_block : SELU + ((i * TM + row) *
                            N + j * TN + block);
                        alignas(64) float LEAKY_RELU_block[1024];
                        float *const LEAKY_RELU_row = LEAKY_RELU_streams ? LEAKY_RELU_block :
                            LEAKY_RELU + ((i * TM + row) * N + j * TN + block);
                        #pragma omp simd
                        for (int64_t lane = block; lane < block_end; ++lane) {
                            const float x = X_row[lane];
                            const float y = sketch::sigmoid(x);
                            SIGMOID_row[lane - block] = y;
                            const float y_silu = sketch::silu(x);
                            SILU_row[lane - block] = y_silu;
                            const float y_gelu = sketch::gelu_tanh(x);
                            GELU_TANH_row[lane - block] = y_gelu;
                            const float y_softplus = sketch::softplus(x);
                            SOFTPLUS_row[lane - block] = y_softplus;
                            const float y_softsign = sketch::softsign(x);
                            SOFTSIGN_row[lane - block] = y_softsign;
                            const float y_hardsigmoid = sketch::hardsigmoid(x);
                            HARDSIGMOID_row[lane - block] = y_hardsigmoid;
                            const float y_hardswish = sketch::hardswish(x);
                            HARDSWISH_row[lane - block] = y_hardswish;
                            const float y_elu = sketch::elu(x, 0.5f);
                            ELU_row[lane - block] = y_elu;
                            const float y_selu = sketch::selu(x);
                            SELU_row[lane - block] = y_selu;
                            const float y_leaky_relu = sketch::leaky_relu(x, 0.2f);
                            LEAKY_RELU_row[lane - block] = y_leaky_relu;
                        }
                        if (SIGMOID_streams) {
                            sketch::stream(SIGMOID + ((i * TM + row) * N + j * TN + block),
                                SIGMOID_block, block_end - block);
                        }
                        if (SILU_streams) {
                            sketch::stream(SILU + ((i * TM + row) * N + j * TN + block), SILU_block,
                                block_end - block);
                        }
                        if (GELU_TANH_streams) {
                            sketch::stream(GELU_TANH + ((i * TM + row) * N + j * TN + block),
                                GELU_TANH_block, block_end - block);
                        }
                        if (SOFTPLUS_streams) {
                            sketch::stream(SOFTPLUS + ((i * TM + row) * N + j * TN + block),
                                SOFTPLUS_block, block_end - block);
                        }
                        if (SOFTSIGN_streams) {
                            sketch::stream(SOFTSIGN + ((i * TM + row) * N + j * TN + block),
                                SOFTSIGN_block, block_end - block);
                        }
                        if (HARDSIGMOID_streams) {
                            sketch::stream(HARDSIGMOID + ((i * TM + row) * N + j * TN + block),
                                HARDSIGMOID_block, block_end - block);
                        }
                        if (HARDSWISH_streams) {
                            sketch::stream(HARDSWISH + ((i * TM + row) * N + j * TN + block),
                                HARDSWISH_block, block_end - block);
                        }
                        if (ELU_streams) {
                            sketch::stream(ELU + ((i * TM + row) * N + j * TN + block), ELU_block,
                                block_end - block);
                        }
                        if (SELU_streams) {
                            sketch::stream(SELU + ((i * TM + row) * N + j * TN + block), SELU_block,
                                block_end - block);
                        }
                        if (LEAKY_RELU_streams) {
                            sketch::stream(LEAKY_RELU + ((i * TM + row) * N + j * TN + block),
                                LEAKY_RELU_block, block_end - block);
                        }
                    }
                }
            }
        }
        sketch::end_streams();
    }
    return 0;
}
