// split_k_matmul: a C++ kernel for cpu, made from a sketch.

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

// The library: arena, least_shared_work, threads_for, floor_div, ceil_div, half, max, min,
// matrix, vector_bytes, block_depth, blocking, widened, transpose, line_of, pack_squares, pack,
// multiply_block, multiply_panels, packed_from, panels, multiply, atomic_update, atomic_add,
// natural, too_large.

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  M >= 0 and N >= 0 and K >= 0
//   2  fewer than 2**48 elements in each tensor
//   3  K*M*N < 2**63 - 2**51
extern "C" int64_t split_k_matmul(
    const float *__restrict A, const float *__restrict B, float *__restrict C, int64_t M, int64_t
    N, int64_t K)
{
    constexpr int64_t PART = 512;
    constexpr int64_t TM = 64;
    constexpr int64_t TN = 64;
    constexpr int64_t TK = 64;

    if (M < 0 || N < 0 || K < 0) {
        return 1;
    }
    if (sketch::too_large({M, K}) || sketch::too_large({K, N}) || sketch::too_large({M, N})) {
        return 2;
    }
    if ((sketch::natural(K) * M * N).reaches(UINT64_C(9221120237041090560))) {
        return 3;
    }
    // C starts as 0.0.
    #pragma omp parallel for simd num_threads(sketch::threads_for(M * N * 4)) schedule(static)
    for (int64_t element = 0; element < M * N; ++element) {
        C[element] = 0.0f;
    }
    {
        const int threads = sketch::threads_for(sketch::ceil_div(K, PART) * (M *
            (std::max<int64_t>(sketch::ceil_div(std::min<int64_t>((sketch::ceil_div(K, PART) - 1 +
            1) * PART, K) - 0 * PART, TK), 0) * TK * (sketch::ceil_div(N, TN) * 4 + N * 2) + N * 9)
            + std::max<int64_t>(sketch::ceil_div(std::min<int64_t>((sketch::ceil_div(K, PART) - 1 +
            1) * PART, K) - 0 * PART, TK), 0) * TK * N * sketch::ceil_div(M, TM) * 4));
        // Scratch memory of each thread.
        sketch::arena arena;
        const int64_t c_place = arena.add(sizeof(float), {TM, TN});
        const int64_t a_panels_place = arena.add(sizeof(float), {std::min<int64_t>(TK, 256), TM +
            16});
        const int64_t b_panels_place = arena.add(sizeof(float), {std::min<int64_t>(TK, 256), TN +
            64});
        if (!arena.allocate(threads)) {
            return -1;
        }
        #pragma omp parallel num_threads(threads)
        {
            float *const __restrict c = arena.at<float>(c_place, omp_get_thread_num());
            float *const __restrict a_panels = arena.at<float>(a_panels_place,
                omp_get_thread_num());
            float *const __restrict b_panels = arena.at<float>(b_panels_place,
                omp_get_thread_num());
            #pragma omp for collapse(3) schedule(static)
            for (int64_t i = 0; i < sketch::ceil_div(M, TM); ++i) {
                for (int64_t j = 0; j < sketch::ceil_div(N, TN); ++j) {
                    for (int64_t p = 0; p < sketch::ceil_div(K, PART); ++p) {
                        for (int64_t row = 0; row < std::min<int64_t>(TM, M - i * TM); ++row) {
                            // c = alloc([TM, TN], init=0.0)
                            float *const c_row = c + row * TN;
                            #pragma omp simd
                            for (int64_t lane = 0; lane < std::min<int64_t>(TN, N - j * TN);
                                ++lane) {
                                c_row[lane] = 0.0f;
                            }
                        }
                        // for k in range(p*PART, min((p+1)*PART, K), TK):
                        for (int64_t k = p * PART; k < std::min<int64_t>((p + 1) * PART, K); k +=
                            TK) {
                            // load(A[i*TM:(i+1)*TM, k:min(k + TK, (p+1)*PART)] -> a)
                            // load(B[k:min(k + TK, (p+1)*PART), j*TN:(j+1)*TN] -> b)
                            // gemm(a, b, c)
                            sketch::multiply(
                                std::min<int64_t>(TM, M - i * TM), std::min<int64_t>(TN, N - j *
                                    TN), std::min<int64_t>(TK, K - k),
                                sketch::matrix<const float>{A + K * TM * i + k, K, 1},
                                sketch::matrix<const float>{B + N * k + TN * j, N, 1},
                                sketch::matrix<float>{c, TN, 1},
                                {a_panels},
                                {b_panels});
                        }
                        for (int64_t row = 0; row < std::min<int64_t>(TM, M - i * TM); ++row) {
                            // atomic_add(c -> C[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
                            for (int64_t lane = 0; lane < std::min<int64_t>(TN, N - j * TN);
                                ++lane) {
                                const float c_value = c[row * TN + lane];
                                sketch::atomic_add(&C[(i * TM + row) * N + (j * TN + lane)],
                                    c_value);
                            }
                        }
                    }
                }
            }
        }
    }
    return 0;
}
