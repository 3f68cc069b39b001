// gram: a C++ kernel for cpu, made from a sketch.

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
//   1  M >= 0 and N >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t gram(const float *__restrict X, float *__restrict G, int64_t M, int64_t N)
{
    constexpr int64_t TN = 64;
    constexpr int64_t TK = 64;

    if (M < 0 || N < 0) {
        return 1;
    }
    if (sketch::too_large({M, N}) || sketch::too_large({N, N})) {
        return 2;
    }
    const bool G_streams = sketch::streams(sizeof(float), {N, N});
    {
        const int threads = sketch::threads_for(N * (M * (sketch::ceil_div(N, TN) * 8 + N * 2) + N *
            4));
        // Scratch memory of each thread.
        const sketch::keeping left_panels_keeping(sketch::ceil_div(N, TN) * sketch::ceil_div(N, TN)
            > threads, sizeof(float), sketch::ceil_div(M, TK), TK, TN + 16);
        const sketch::keeping right_panels_keeping(sketch::ceil_div(N, TN) * sketch::ceil_div(N, TN)
            > threads * sketch::ceil_div(N, TN), sizeof(float), sketch::ceil_div(N, TN) *
            sketch::ceil_div(M, TK), TK, TN + 64);
        sketch::arena arena;
        const int64_t g_place = arena.add(sizeof(float), {TN, TN});
        const int64_t left_panels_place = arena.add(sizeof(float),
            {left_panels_keeping.elements()});
        const int64_t right_panels_place = arena.add(sizeof(float),
            {right_panels_keeping.elements()});
        if (!arena.allocate(threads)) {
            return -1;
        }
        #pragma omp parallel num_threads(threads)
        {
            float *const __restrict g = arena.at<float>(g_place, omp_get_thread_num());
            float *const __restrict left_panels = arena.at<float>(left_panels_place,
                omp_get_thread_num());
            const sketch::kept_panels<float> left_panels_kept(left_panels, left_panels_keeping);
            float *const __restrict right_panels = arena.at<float>(right_panels_place,
                omp_get_thread_num());
            const sketch::kept_panels<float> right_panels_kept(right_panels, right_panels_keeping);
            #pragma omp for collapse(2) schedule(static)
            for (int64_t i = 0; i < sketch::ceil_div(N, TN); ++i) {
                for (int64_t j = 0; j < sketch::ceil_div(N, TN); ++j) {
                    for (int64_t row = 0; row < std::min<int64_t>(TN, N - i * TN); ++row) {
                        // g = alloc([TN, TN], init=0.0)
                        float *const g_row = g + row * TN;
                        #pragma omp simd
                        for (int64_t lane = 0; lane < std::min<int64_t>(TN, N - j * TN); ++lane) {
                            g_row[lane] = 0.0f;
                        }
                    }
                    // for k in range(ceil(M, TK)):
                    for (int64_t k = 0; k < sketch::ceil_div(M, TK); ++k) {
                        // load(X[k*TK:(k+1)*TK, i*TN:(i+1)*TN] -> left)
                        // load(X[k*TK:(k+1)*TK, j*TN:(j+1)*TN] -> right)
                        // gemm(left, right, g, trans_a=True, precision="tf32x3")
                        sketch::multiply(
                            std::min<int64_t>(TN, N - i * TN), std::min<int64_t>(TN, N - j * TN),
                                std::min<int64_t>(TK, M - k * TK),
                            sketch::matrix<const float>{X + N * TK * k + TN * i, 1, N},
                            sketch::matrix<const float>{X + N * TK * k + TN * j, N, 1},
                            sketch::matrix<float>{g, TN, 1},
                            left_panels_kept.at(k),
                            right_panels_kept.at(j * sketch::ceil_div(M, TK) + k));
                    }
                    for (int64_t row = 0; row < std::min<int64_t>(TN, N - i * TN); ++row) {
                        // store(g -> G[i*TN:(i+1)*TN, j*TN:(j+1)*TN])
                        const float *const g_row_2 = g + row * TN;
                        for (int64_t block = 0; block < std::min<int64_t>(TN, N - j * TN); block +=
                            1024) {
                            const int64_t block_end = std::min<int64_t>(std::min<int64_t>(TN, N - j
                                * TN), block + 1024);
                            alignas(64) float G_block[1024];
                            float *const G_row = G_streams ? G_block : G + ((i * TN + row) * N + j *
                                TN + block);
                            #pragma omp simd
                            for (int64_t lane = block; lane < block_end; ++lane) {
                                const float g_value = g_row_2[lane];
                                G_row[lane - block] = g_value;
                            }
                            if (G_streams) {
                                sketch::stream(G + ((i * TN + row) * N + j * TN + block), G_block,
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
