// matmul_blocked: a C++ kernel for cpu, made from a sketch.

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
// floor_div, ceil_div, half, max, min, matrix, vector_bytes, block_depth, blocking, widened,
// transpose, line_of, pack_squares, pack, multiply_block, multiply_panels, packed_from, panels,
// kept_bytes, keeping, kept_panels, multiply, too_large.

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  M >= 0 and N >= 0 and K >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t matmul_blocked(
    const float *__restrict A, const float *__restrict B, float *__restrict C, int64_t M, int64_t
    N, int64_t K)
{
    constexpr int64_t TM = 128;
    constexpr int64_t TN = 128;
    constexpr int64_t TK = 256;

    if (M < 0 || N < 0 || K < 0) {
        return 1;
    }
    if (sketch::too_large({M, K}) || sketch::too_large({K, N}) || sketch::too_large({M, N})) {
        return 2;
    }
    const bool C_streams = sketch::streams(sizeof(float), {M, N});
    {
        const int threads = sketch::threads_for(K * (M * (sketch::ceil_div(N, TN) * 4 + N * 2) + N *
            sketch::ceil_div(M, TM) * 4) + M * N * 4);
        // Scratch memory of each thread.
        const sketch::keeping a_panels_keeping(sketch::ceil_div(M, TM) * sketch::ceil_div(N, TN) >
            threads, sizeof(float), sketch::ceil_div(K, TK), TK, TM + 16);
        const sketch::keeping b_panels_keeping(sketch::ceil_div(M, TM) * sketch::ceil_div(N, TN) >
            threads * sketch::ceil_div(N, TN), sizeof(float), sketch::ceil_div(N, TN) *
            sketch::ceil_div(K, TK), TK, TN + 64);
        sketch::arena arena;
        const int64_t c_place = arena.add(sizeof(float), {TM, TN});
        const int64_t a_panels_place = arena.add(sizeof(float), {a_panels_keeping.elements()});
        const int64_t b_panels_place = arena.add(sizeof(float), {b_panels_keeping.elements()});
        if (!arena.allocate(threads)) {
            return -1;
        }
        #pragma omp parallel num_threads(threads)
        {
            float *const __restrict c = arena.at<float>(c_place, omp_get_thread_num());
            float *const __restrict a_panels = arena.at<float>(a_panels_place,
                omp_get_thread_num());
            const sketch::kept_panels<float> a_panels_kept(a_panels, a_panels_keeping);
            float *const __restrict b_panels = arena.at<float>(b_panels_place,
                omp_get_thread_num());
            const sketch::kept_panels<float> b_panels_kept(b_panels, b_panels_keeping);
            #pragma omp for collapse(2) schedule(static)
            for (int64_t i = 0; i < sketch::ceil_div(M, TM); ++i) {
                for (int64_t j = 0; j < sketch::ceil_div(N, TN); ++j) {
                    for (int64_t row = 0; row < std::min<int64_t>(TM, M - i * TM); ++row) {
                        // c = alloc([TM, TN], init=0.0)
                        float *const c_row = c + row * TN;
                        #pragma omp simd
                        for (int64_t lane = 0; lane < std::min<int64_t>(TN, N - j * TN); ++lane) {
                            c_row[lane] = 0.0f;
                        }
                    }
                    // for k in range(ceil(K, TK)):
                    for (int64_t k = 0; k < sketch::ceil_div(K, TK); ++k) {
                        // load(A[i*TM:(i+1)*TM, k*TK:(k+1)*TK] -> a)
                        // load(B[k*TK:(k+1)*TK, j*TN:(j+1)*TN] -> b)
                        // gemm(a, b, c)
                        sketch::multiply(
                            std::min<int64_t>(TM, M - i * TM), std::min<int64_t>(TN, N - j * TN),
                                std::min<int64_t>(TK, K - k * TK),
                            sketch::matrix<const float>{A + K * TM * i + TK * k, K, 1},
                            sketch::matrix<const float>{B + N * TK * k + TN * j, N, 1},
                            sketch::matrix<float>{c, TN, 1},
                            a_panels_kept.at(k),
                            b_panels_kept.at(j * sketch::ceil_div(K, TK) + k));
                    }
                    for (int64_t row = 0; row < std::min<int64_t>(TM, M - i * TM); ++row) {
                        // store(c -> C[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
                        const float *const c_row_2 = c + row * TN;
                        for (int64_t block = 0; block < std::min<int64_t>(TN, N - j * TN); block +=
                            1024) {
                            const int64_t block_end = std::min<int64_t>(std::min<int64_t>(TN, N - j
                                * TN), block + 1024);
                            alignas(64) float C_block[1024];
                            float *const C_row = C_streams ? C_block : C + ((i * TM + row) * N + j *
                                TN + block);
                            #pragma omp simd
                            for (int64_t lane = block; lane < block_end; ++lane) {
                                const float c_value = c_row_2[lane];
                                C_row[lane - block] = c_value;
                            }
                            if (C_streams) {
                                sketch::stream(C + ((i * TM + row) * N + j * TN + block), C_block,
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
