// causal_attention: a C++ kernel for cpu, made from a sketch.

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
// floor_div, floor_mod, ceil_div, bits_of, float_of, half, max, min, exp, matrix, vector_bytes,
// block_depth, blocking, widened, transpose, line_of, pack_squares, pack, multiply_block,
// multiply_panels, packed_from, panels, multiply, too_large, propagating_max.

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  HK >= 1
//   2  HK >= 1 and HQ % HK == 0
//   3  M <= N and D >= 1
//   4  HQ//HK >= 1
//   5  B >= 0 and HQ >= 0 and HK >= 0 and M >= 0 and N >= 0 and D >= 0
//   6  D <= 128
//   7  sqrt(D) != 0
//   8  fewer than 2**48 elements in each tensor
extern "C" int64_t causal_attention(
    const float *__restrict Q, const float *__restrict K, const float *__restrict V, const float
    *__restrict MASK, float *__restrict Y, int64_t B, int64_t HQ, int64_t HK, int64_t M, int64_t
    N, int64_t D)
{
    constexpr int64_t TM = 64;
    constexpr int64_t TN = 64;

    if (B < 0 || HQ < 0 || HK < 0 || M < 0 || N < 0 || D < 0) {
        return 5;
    }
    if (D > 128) {
        return 6;
    }
    if (HK < 1) {
        return 1;
    }
    if (HK < 1 || sketch::floor_mod(HQ, HK) != 0) {
        return 2;
    }
    if (M > N || D < 1) {
        return 3;
    }
    if (sketch::floor_div(HQ, HK) < 1) {
        return 4;
    }
    if (!(std::sqrt(static_cast<double>(D)) != 0.0)) {
        return 7;
    }
    [[maybe_unused]] const double scale = static_cast<double>(1.0 /
        std::sqrt(static_cast<double>(D)));
    if (sketch::too_large({B, HQ, M, D}) || sketch::too_large({B, HK, N, D})) {
        return 8;
    }
    const bool Y_streams = sketch::streams(sizeof(float), {B, HQ, M, D});
    {
        const int threads = sketch::threads_for(B * HQ * (M * (D *
            (std::min<int64_t>((sketch::ceil_div(M, TM) - 1 + 1) * TM + N - M, N) * 4 +
            (sketch::ceil_div(std::min<int64_t>((sketch::ceil_div(M, TM) - 1 + 1) * TM + N - M, N),
            TN) + 10)) + (std::min<int64_t>((sketch::ceil_div(M, TM) - 1 + 1) * TM + N - M, N) * 10
            + sketch::ceil_div(std::min<int64_t>((sketch::ceil_div(M, TM) - 1 + 1) * TM + N - M, N),
            TN) * 5)) + D * std::min<int64_t>((sketch::ceil_div(M, TM) - 1 + 1) * TM + N - M, N) *
            sketch::ceil_div(M, TM) * 8));
        // Scratch memory of each thread.
        sketch::arena arena;
        const int64_t y_place = arena.add(sizeof(float), {TM, D});
        const int64_t q_mul_place = arena.add(sizeof(float), {TM, D});
        const int64_t scores_place = arena.add(sizeof(float), {TM, TN});
        const int64_t q_mul_panels_place = arena.add(sizeof(float), {std::min<int64_t>(D, 256), TM +
            16});
        const int64_t k_panels_place = arena.add(sizeof(float), {std::min<int64_t>(D, 256), TN +
            64});
        const int64_t scores_panels_place = arena.add(sizeof(float), {std::min<int64_t>(TN, 256), TM
            + 16});
        const int64_t v_panels_place = arena.add(sizeof(float), {std::min<int64_t>(TN, 256), D +
            64});
        if (!arena.allocate(threads)) {
            return -1;
        }
        #pragma omp parallel num_threads(threads)
        {
            float *const __restrict y = arena.at<float>(y_place, omp_get_thread_num());
            float *const __restrict q_mul = arena.at<float>(q_mul_place, omp_get_thread_num());
            float *const __restrict scores = arena.at<float>(scores_place, omp_get_thread_num());
            float *const __restrict q_mul_panels = arena.at<float>(q_mul_panels_place,
                omp_get_thread_num());
            float *const __restrict k_panels = arena.at<float>(k_panels_place,
                omp_get_thread_num());
            float *const __restrict scores_panels = arena.at<float>(scores_panels_place,
                omp_get_thread_num());
            float *const __restrict v_panels = arena.at<float>(v_panels_place,
                omp_get_thread_num());
            #pragma omp for collapse(3) schedule(static)
            for (int64_t b = 0; b < B; ++b) {
                for (int64_t h = 0; h < HQ; ++h) {
                    for (int64_t i = 0; i < sketch::ceil_div(M, TM); ++i) {
                        alignas(64) float running_sum[TM];
                        alignas(64) float running_max[TM];
                        for (int64_t row = 0; row < std::min<int64_t>(TM, M - i * TM); ++row) {
                            // running_sum = alloc([TM, 1], init=0.0)
                            running_sum[row] = 0.0f;
                            // running_max = alloc([TM, 1], init=-inf)
                            running_max[row] = -std::numeric_limits<float>::infinity();
                            // y = alloc([TM, D], init=0.0)
                            // load(Q[b, h, i*TM:(i+1)*TM, 0:D] -> q)
                            // mul(q, scale, q)
                            float *const y_row = y + row * D;
                            const float *const Q_row = Q + ((b * HQ + h) * M + (i * TM + row)) * D;
                            float *const q_mul_row = q_mul + row * D;
                            #pragma omp simd
                            for (int64_t lane = 0; lane < D; ++lane) {
                                y_row[lane] = 0.0f;
                                const float q = Q_row[lane];
                                const float q_mul_value = q * static_cast<float>(scale);
                                q_mul_row[lane] = q_mul_value;
                            }
                        }
                        // for j in range(ceil(min((i+1)*TM + N - M, N), TN)):
                        for (int64_t j = 0; j < sketch::ceil_div(std::min<int64_t>((i + 1) * TM + N
                            - M, N), TN); ++j) {
                            for (int64_t row = 0; row < std::min<int64_t>(TM, M - i * TM); ++row) {
                                float *const scores_row = scores + row * TN;
                                #pragma omp simd
                                for (int64_t lane = 0; lane < std::min<int64_t>(TN, N - j * TN);
                                    ++lane) {
                                    scores_row[lane] = 0.0f;
                                }
                            }
                            // load(K[b, h//(HQ//HK), j*TN:(j+1)*TN, 0:D] -> k)
                            // matmul(q, k, scores, trans_b=True)
                            sketch::multiply(
                                std::min<int64_t>(TM, M - i * TM), std::min<int64_t>(TN, N - j *
                                    TN), D,
                                sketch::matrix<const float>{q_mul, D, 1},
                                sketch::matrix<const float>{K + D * HK * N * b +
                                    sketch::floor_div(h, sketch::floor_div(HQ, HK)) * D * N + D * TN
                                    * j, 1, D},
                                sketch::matrix<float>{scores, TN, 1},
                                {q_mul_panels},
                                {k_panels});
                            // if present(MASK):
                            if (MASK != nullptr) {
                                for (int64_t row = 0; row < std::min<int64_t>(TM, M - i * TM);
                                    ++row) {
                                    // load(MASK[i*TM:(i+1)*TM, j*TN:(j+1)*TN] -> mask)
                                    // add(scores, mask, scores)
                                    float *const scores_row_2 = scores + row * TN;
                                    const float *const MASK_row = MASK + ((i * TM + row) * N + j *
                                        TN);
                                    #pragma omp simd
                                    for (int64_t lane = 0; lane < std::min<int64_t>(TN, N - j * TN);
                                        ++lane) {
                                        const float scores_value = scores_row_2[lane];
                                        const float mask = MASK_row[lane];
                                        const float scores_value_2 = scores_value + mask;
                                        scores_row_2[lane] = scores_value_2;
                                    }
                                }
                            }
                            // query = i*TM + iota(TM)
                            // key = j*TN + iota(TN)
                            for (int64_t row = 0; row < std::min<int64_t>(TM, M - i * TM); ++row) {
                                float block_sum = 0.0f;
                                float block_max = -std::numeric_limits<float>::infinity();
                                // where(key[None, :] <= query[:, None] + N - M, scores, -inf, scores)
                                // reduce_max(scores, 1, block_max)
                                float *const scores_row_3 = scores + row * TN;
                                #pragma omp simd reduction(propagating_max : block_max)
                                for (int64_t lane = 0; lane < std::min<int64_t>(TN, N - j * TN);
                                    ++lane) {
                                    const float scores_value = scores_row_3[lane];
                                    const float scores_value_2 = (j * TN + lane <= i * TM + row + N
                                        - M) ? scores_value :
                                        (-std::numeric_limits<float>::infinity());
                                    scores_row_3[lane] = scores_value_2;
                                    block_max = sketch::max(block_max, scores_value_2);
                                }
                                // max(running_max, block_max, new_max)
                                const float running_max_value = running_max[row];
                                const float new_max = sketch::max(running_max_value, block_max);
                                // sub(running_max, new_max, correction)
                                const float correction = running_max_value - new_max;
                                // exp(correction, correction)
                                const float correction_exp = sketch::exp(correction);
                                // sub(scores, new_max, scores)
                                // exp(scores, scores)
                                // reduce_sum(scores, 1, block_sum)
                                float *const scores_row_4 = scores + row * TN;
                                #pragma omp simd reduction(+ : block_sum)
                                for (int64_t lane = 0; lane < std::min<int64_t>(TN, N - j * TN);
                                    ++lane) {
                                    const float scores_value = scores_row_4[lane];
                                    const float scores_value_2 = scores_value - new_max;
                                    const float scores_value_3 = sketch::exp(scores_value_2);
                                    scores_row_4[lane] = scores_value_3;
                                    block_sum += scores_value_3;
                                }
                                // fma(running_sum, correction, block_sum, running_sum)
                                const float running_sum_value = running_sum[row];
                                const float running_sum_value_2 = running_sum_value * correction_exp
                                    + block_sum;
                                running_sum[row] = running_sum_value_2;
                                // mul(y, correction, y)
                                float *const y_row_2 = y + row * D;
                                #pragma omp simd
                                for (int64_t lane = 0; lane < D; ++lane) {
                                    const float y_value = y_row_2[lane];
                                    const float y_value_2 = y_value * correction_exp;
                                    y_row_2[lane] = y_value_2;
                                }
                                // copy(new_max, running_max)
                                const float running_max_value_2 = new_max;
                                running_max[row] = running_max_value_2;
                            }
                            // load(V[b, h//(HQ//HK), j*TN:(j+1)*TN, 0:D] -> v)
                            // gemm(scores, v, y)
                            sketch::multiply(
                                std::min<int64_t>(TM, M - i * TM), D, std::min<int64_t>(TN, N - j *
                                    TN),
                                sketch::matrix<const float>{scores, TN, 1},
                                sketch::matrix<const float>{V + D * HK * N * b +
                                    sketch::floor_div(h, sketch::floor_div(HQ, HK)) * D * N + D * TN
                                    * j, D, 1},
                                sketch::matrix<float>{y, D, 1},
                                {scores_panels},
                                {v_panels});
                        }
                        for (int64_t row = 0; row < std::min<int64_t>(TM, M - i * TM); ++row) {
                            // div(y, running_sum, y)
                            // store(y -> Y[b, h, i*TM:(i+1)*TM, 0:D])
                            const float running_sum_value = running_sum[row];
                            const float *const y_row_3 = y + row * D;
                            for (int64_t block = 0; block < D; block += 1024) {
                                const int64_t block_end = std::min<int64_t>(D, block + 1024);
                                alignas(64) float Y_block[1024];
                                float *const Y_row = Y_streams ? Y_block : Y + (((b * HQ + h) * M +
                                    (i * TM + row)) * D + block);
                                #pragma omp simd
                                for (int64_t lane = block; lane < block_end; ++lane) {
                                    const float y_value = y_row_3[lane];
                                    const float y_value_2 = y_value / running_sum_value;
                                    Y_row[lane - block] = y_value_2;
                                }
                                if (Y_streams) {
                                    sketch::stream(Y + (((b * HQ + h) * M + (i * TM + row)) * D +
                                        block), Y_block, block_end - block);
                                }
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
