// matmul_bias_gelu: a C++ kernel for cpu, made from a sketch.

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

// The library: arena, least_shared_work, threads_for, cache_bytes, streams, stream, end_streams,
// floor_div, ceil_div, half, max, min, erf, short_erf, gelu, matrix, vector_bytes, block_depth,
// blocking, widened, transpose, line_of, pack_squares, pack, multiply_block, multiply_panels,
// packed_from, panels, kept_bytes, keeping, kept_panels, multiply, too_large.

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  M >= 0 and N >= 0 and K >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t matmul_bias_gelu(
    const float *__restrict X, const float *__restrict W, const float *__restrict BIAS, float
    *__restrict Y, int64_t M, int64_t N, int64_t K)
{
    constexpr int64_t TM = 128;
    constexpr int64_t TN = 128;
    constexpr int64_t TK = 256;

    if (M < 0 || N < 0 || K < 0) {
        return 1;
    }
    if (sketch::too_large({M, K}) || sketch::too_large({N, K}) || sketch::too_large({M, N})) {
        return 2;
    }
    const bool Y_streams = sketch::streams(sizeof(float), {M, N});
    {
        const int threads = sketch::threads_for(N * (K * (sketch::ceil_div(M, TM) * 4 + M * 2) +
            (sketch::ceil_div(M, TM) * 4 + M * 6)) + K * M * sketch::ceil_div(N, TN) * 4);
        // Scratch memory of each thread.
        const sketch::keeping x_panels_keeping(sketch::ceil_div(M, TM) * sketch::ceil_div(N, TN) >
            threads, sizeof(float), sketch::ceil_div(K, TK), TK, TM + 16);
        const sketch::keeping w_panels_keeping(sketch::ceil_div(M, TM) * sketch::ceil_div(N, TN) >
            threads * sketch::ceil_div(N, TN), sizeof(float), sketch::ceil_div(N, TN) *
            sketch::ceil_div(K, TK), TK, TN + 64);
        sketch::arena arena;
        const int64_t y_place = arena.add(sizeof(float), {TM, TN});
        const int64_t x_panels_place = arena.add(sizeof(float), {x_panels_keeping.elements()});
        const int64_t w_panels_place = arena.add(sizeof(float), {w_panels_keeping.elements()});
        if (!arena.allocate(threads)) {
            return -1;
        }
        #pragma omp parallel num_threads(threads)
        {
            float *const __restrict y = arena.at<float>(y_place, omp_get_thread_num());
            float *const __restrict x_panels = arena.at<float>(x_panels_place,
                omp_get_thread_num());
            const sketch::kept_panels<float> x_panels_kept(x_panels, x_panels_keeping);
            float *const __restrict w_panels = arena.at<float>(w_panels_place,
                omp_get_thread_num());
            const sketch::kept_panels<float> w_panels_kept(w_panels, w_panels_keeping);
            #pragma omp for collapse(2) schedule(static)
            for (int64_t i = 0; i < sketch::ceil_div(M, TM); ++i) {
                for (int64_t j = 0; j < sketch::ceil_div(N, TN); ++j) {
                    for (int64_t row = 0; row < std::min<int64_t>(TM, M - i * TM); ++row) {
                        // y = alloc([TM, TN], init=0.0)
                        float *const y_row = y + row * TN;
                        #pragma omp simd
                        for (int64_t lane = 0; lane < std::min<int64_t>(TN, N - j * TN); ++lane) {
                            y_row[lane] = 0.0f;
                        }
                    }
                    // for k in range(ceil(K, TK)):
                    for (int64_t k = 0; k < sketch::ceil_div(K, TK); ++k) {
                        // load(X[i*TM:(i+1)*TM, k*TK:(k+1)*TK] -> x)
                        // load(W[j*TN:(j+1)*TN, k*TK:(k+1)*TK] -> w)
                        // gemm(x, w, y, trans_b=True)
                        sketch::multiply(
                            std::min<int64_t>(TM, M - i * TM), std::min<int64_t>(TN, N - j * TN),
                                std::min<int64_t>(TK, K - k * TK),
                            sketch::matrix<const float>{X + K * TM * i + TK * k, K, 1},
                            sketch::matrix<const float>{W + K * TN * j + TK * k, 1, K},
                            sketch::matrix<float>{y, TN, 1},
                            x_panels_kept.at(k),
                            w_panels_kept.at(j * sketch::ceil_div(K, TK) + k));
                    }
                    for (int64_t row = 0; row < std::min<int64_t>(TM, M - i * TM); ++row) {
                        // load(BIAS[j*TN:(j+1)*TN] -> bias)
                        // add(y, bias, y)
                        // gelu(y, y)
                        // store(y -> Y[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
                        const float *const y_row_2 = y + row * TN;
                        const float *const BIAS_row = BIAS + j * TN;
                        for (int64_t block = 0; block < std::min<int64_t>(TN, N - j * TN); block +=
                            1024) {
                            const int64_t block_end = std::min<int64_t>(std::min<int64_t>(TN, N - j
                                * TN), block + 1024);
                            alignas(64) float Y_block[1024];
                            float *const Y_row = Y_streams ? Y_block : Y + ((i * TM + row) * N + j *
                                TN + block);
                            #pragma omp simd
                            for (int64_t lane = block; lane < block_end; ++lane) {
                                const float y_value = y_row_2[lane];
                                const float bias = BIAS_row[lane];
                                const float y_value_2 = y_value + bias;
                                const float y_value_3 = sketch::gelu(y_value_2);
                                Y_row[lane - block] = y_value_3;
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
    }
    return 0;
}
