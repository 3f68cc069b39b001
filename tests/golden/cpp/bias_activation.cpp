// bias_activation: a C++ kernel for cpu, made from a sketch.

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
// floor_div, ceil_div, max, relu, too_large.

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  M >= 0 and N >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t bias_activation(
    const float *__restrict X, const float *__restrict BIAS, float *__restrict Y, int64_t M,
    int64_t N)
{
    constexpr int64_t TM = 4;
    constexpr int64_t TN = 1024;

    if (M < 0 || N < 0) {
        return 1;
    }
    if (sketch::too_large({M, N})) {
        return 2;
    }
    const bool Y_streams = sketch::streams(sizeof(float), {M, N});
    const int threads = sketch::threads_for(N * (M * 10 + sketch::ceil_div(M, TM) * 4));
    #pragma omp parallel num_threads(threads)
    {
        #pragma omp for collapse(2) schedule(static)
        for (int64_t i = 0; i < sketch::ceil_div(M, TM); ++i) {
            for (int64_t j = 0; j < sketch::ceil_div(N, TN); ++j) {
                for (int64_t row = 0; row < std::min<int64_t>(TM, M - i * TM); ++row) {
                    // load(X[i*TM:(i+1)*TM, j*TN:(j+1)*TN] -> x)
                    // load(BIAS[j*TN:(j+1)*TN] -> bias)
                    // add(x, bias, x)
                    // relu(x, x)
                    // store(x -> Y[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
                    const float *const X_row = X + ((i * TM + row) * N + j * TN);
                    const float *const BIAS_row = BIAS + j * TN;
                    for (int64_t block = 0; block < std::min<int64_t>(TN, N - j * TN); block +=
                        1024) {
                        const int64_t block_end = std::min<int64_t>(std::min<int64_t>(TN, N - j *
                            TN), block + 1024);
                        alignas(64) float Y_block[1024];
                        float *const Y_row = Y_streams ? Y_block : Y + ((i * TM + row) * N + j * TN
                            + block);
                        #pragma omp simd
                        for (int64_t lane = block; lane < block_end; ++lane) {
                            const float x = X_row[lane];
                            const float bias = BIAS_row[lane];
                            const float x_add = x + bias;
                            const float x_relu = sketch::relu(x_add);
                            Y_row[lane - block] = x_relu;
                        }
                        if (Y_streams) {
                            sketch::stream(Y + ((i * TM + row) * N + j * TN + block), Y_block,
                                block_end - block);
                        }
                    }
                }
            }
        }
        sketch::end_streams();
    }
    return 0;
}
