// retention: a C++ kernel for cpu, made from a sketch.

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
// floor_div, ceil_div, half, max, min, exp2, log2, matrix, vector_bytes, block_depth, blocking,
// widened, transpose, line_of, pack_squares, pack, multiply_block, multiply_panels, packed_from,
// panels, kept_bytes, keeping, kept_panels, multiply, too_large.

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  H >= 0 and N >= 0 and D >= 0
//   2  D <= 64
//   3  fewer than 2**48 elements in each tensor
extern "C" int64_t retention(
    const float *__restrict Q, const float *__restrict K, const float *__restrict V, const float
    *__restrict GAMMA, float *__restrict Y, int64_t H, int64_t N, int64_t D)
{
    constexpr int64_t T = 32;
    constexpr int64_t TD = 32;

    if (H < 0 || N < 0 || D < 0) {
        return 1;
    }
    if (D > 64) {
        return 2;
    }
    if (sketch::too_large({H, N, D})) {
        return 3;
    }
    const bool Y_streams = sketch::streams(sizeof(float), {H, N, D});
    {
        const int threads = sketch::threads_for(H * (N * (D * (sketch::ceil_div(D, TD) * (T * 2 +
            10) + (T * 2 + (D * 4 + 8))) + sketch::ceil_div(D, TD) * (T * 4 + 4)) +
            (sketch::ceil_div(D, TD) * (sketch::ceil_div(N, T) * 2 + 5) + D * D *
            sketch::ceil_div(N, T))));
        // Scratch memory of each thread.
        const sketch::keeping q_panels_keeping(H * sketch::ceil_div(D, TD) > threads, sizeof(float),
            sketch::ceil_div(N, T), D, T + 16);
        const sketch::keeping k_panels_keeping(H * sketch::ceil_div(D, TD) > threads, sizeof(float),
            sketch::ceil_div(N, T), D, T + 64);
        sketch::arena arena;
        const int64_t state_place = arena.add(sizeof(float), {D, TD});
        const int64_t block_place = arena.add(sizeof(float), {D, TD});
        const int64_t q_mul_place = arena.add(sizeof(float), {T, D});
        const int64_t k_mul_place = arena.add(sizeof(float), {T, D});
        const int64_t q_panels_place = arena.add(sizeof(float), {q_panels_keeping.elements()});
        const int64_t k_panels_place = arena.add(sizeof(float), {k_panels_keeping.elements()});
        const int64_t scores_where_panels_place = arena.add(sizeof(float), {std::min<int64_t>(T,
            256), T + 16});
        const int64_t v_panels_place = arena.add(sizeof(float), {std::min<int64_t>(T, 256), TD +
            64});
        const int64_t q_mul_panels_place = arena.add(sizeof(float), {std::min<int64_t>(D, 256), T +
            16});
        const int64_t state_panels_place = arena.add(sizeof(float), {std::min<int64_t>(D, 256), TD +
            64});
        const int64_t k_mul_panels_place = arena.add(sizeof(float), {std::min<int64_t>(T, 256), D +
            16});
        const int64_t v_panels_2_place = arena.add(sizeof(float), {std::min<int64_t>(T, 256), TD +
            64});
        if (!arena.allocate(threads)) {
            return -1;
        }
        #pragma omp parallel num_threads(threads)
        {
            float *const __restrict state = arena.at<float>(state_place, omp_get_thread_num());
            float *const __restrict block = arena.at<float>(block_place, omp_get_thread_num());
            float *const __restrict q_mul = arena.at<float>(q_mul_place, omp_get_thread_num());
            float *const __restrict k_mul = arena.at<float>(k_mul_place, omp_get_thread_num());
            float *const __restrict q_panels = arena.at<float>(q_panels_place,
                omp_get_thread_num());
            const sketch::kept_panels<float> q_panels_kept(q_panels, q_panels_keeping);
            float *const __restrict k_panels = arena.at<float>(k_panels_place,
                omp_get_thread_num());
            const sketch::kept_panels<float> k_panels_kept(k_panels, k_panels_keeping);
            float *const __restrict scores_where_panels = arena.at<float>(scores_where_panels_place,
                omp_get_thread_num());
            float *const __restrict v_panels = arena.at<float>(v_panels_place,
                omp_get_thread_num());
            float *const __restrict q_mul_panels = arena.at<float>(q_mul_panels_place,
                omp_get_thread_num());
            float *const __restrict state_panels = arena.at<float>(state_panels_place,
                omp_get_thread_num());
            float *const __restrict k_mul_panels = arena.at<float>(k_mul_panels_place,
                omp_get_thread_num());
            float *const __restrict v_panels_2 = arena.at<float>(v_panels_2_place,
                omp_get_thread_num());
            #pragma omp for collapse(2) schedule(static)
            for (int64_t h = 0; h < H; ++h) {
                for (int64_t j = 0; j < sketch::ceil_div(D, TD); ++j) {
                    alignas(64) float scores[T * T];
                    alignas(64) float weight_exp2[T * T];
                    alignas(64) float fade_exp2[T];
                    alignas(64) float fade_exp2_2[T];
                    alignas(64) float y[T * TD];
                    alignas(64) float scores_where[T * T];
                    for (int64_t row = 0; row < D; ++row) {
                        // state = alloc([D, TD], init=0.0)
                        float *const state_row = state + row * TD;
                        #pragma omp simd
                        for (int64_t lane = 0; lane < std::min<int64_t>(TD, D - j * TD); ++lane) {
                            state_row[lane] = 0.0f;
                        }
                    }
                    // load(GAMMA[h] -> rate)
                    // log2(rate, rate)
                    const float rate = GAMMA[h];
                    const float rate_log2 = sketch::log2(rate);
                    // for i in range(ceil(N, T)):
                    for (int64_t i = 0; i < sketch::ceil_div(N, T); ++i) {
                        // query = iota(T)[:, None]
                        // key = iota(T)[None, :]
                        // rows = min((i+1)*T, N) - i*T
                        const int64_t rows = std::min<int64_t>((i + 1) * T, N) - i * T;
                        for (int64_t row = 0; row < D; ++row) {
                            float *const block_row = block + row * TD;
                            #pragma omp simd
                            for (int64_t lane = 0; lane < std::min<int64_t>(TD, D - j * TD);
                                ++lane) {
                                block_row[lane] = 0.0f;
                            }
                        }
                        for (int64_t row = 0; row < std::min<int64_t>(T, N - i * T); ++row) {
                            float *const scores_row = scores + row * T;
                            #pragma omp simd
                            for (int64_t lane = 0; lane < std::min<int64_t>(T, N - i * T); ++lane) {
                                scores_row[lane] = 0.0f;
                            }
                        }
                        // load(Q[h, i*T:(i+1)*T, 0:D] -> q)
                        // load(K[h, i*T:(i+1)*T, 0:D] -> k)
                        // matmul(q, k, scores, trans_b=True, precision="tf32x3")
                        sketch::multiply(
                            std::min<int64_t>(T, N - i * T), std::min<int64_t>(T, N - i * T), D,
                            sketch::matrix<const float>{Q + D * N * h + D * T * i, D, 1},
                            sketch::matrix<const float>{K + D * N * h + D * T * i, 1, D},
                            sketch::matrix<float>{scores, T, 1},
                            q_panels_kept.at(i),
                            k_panels_kept.at(i));
                        for (int64_t row = 0; row < T; ++row) {
                            // mul(rate, max(query - key, 0), weight)
                            // exp2(weight, weight)
                            float *const weight_exp2_row = weight_exp2 + row * T;
                            #pragma omp simd
                            for (int64_t lane = 0; lane < T; ++lane) {
                                const float weight = rate_log2 *
                                    static_cast<float>(std::max<int64_t>(row - lane, 0));
                                const float weight_exp2_value = sketch::exp2(weight);
                                weight_exp2_row[lane] = weight_exp2_value;
                            }
                            // mul(rate, query + 1, fade)
                            const float fade = rate_log2 * static_cast<float>(row + 1);
                            // exp2(fade, fade)
                            const float fade_exp2_value = sketch::exp2(fade);
                            fade_exp2[row] = fade_exp2_value;
                            // mul(rate, rows - 1 - query, fade)
                            const float fade_mul = rate_log2 * static_cast<float>(rows - 1 - row);
                            // exp2(fade, fade)
                            const float fade_exp2_2_value = sketch::exp2(fade_mul);
                            fade_exp2_2[row] = fade_exp2_2_value;
                        }
                        for (int64_t row = 0; row < std::min<int64_t>(T, N - i * T); ++row) {
                            float *const y_row = y + row * TD;
                            #pragma omp simd
                            for (int64_t lane = 0; lane < std::min<int64_t>(TD, D - j * TD);
                                ++lane) {
                                y_row[lane] = 0.0f;
                            }
                            // mul(scores, weight, scores)
                            // where(key <= query, scores, 0, scores)
                            const float *const scores_row_2 = scores + row * T;
                            const float *const weight_exp2_row_2 = weight_exp2 + row * T;
                            float *const scores_where_row = scores_where + row * T;
                            #pragma omp simd
                            for (int64_t lane = 0; lane < std::min<int64_t>(T, N - i * T); ++lane) {
                                const float scores_value = scores_row_2[lane];
                                const float weight_exp2_value = weight_exp2_row_2[lane];
                                const float scores_mul = scores_value * weight_exp2_value;
                                const float scores_where_value = (lane <= row) ? scores_mul : 0.0f;
                                scores_where_row[lane] = scores_where_value;
                            }
                            // load(Q[h, i*T:(i+1)*T, 0:D] -> q)
                            // mul(q, fade, q)
                            const float fade_exp2_value = fade_exp2[row];
                            const float *const Q_row = Q + (h * N + (i * T + row)) * D;
                            float *const q_mul_row = q_mul + row * D;
                            #pragma omp simd
                            for (int64_t lane = 0; lane < D; ++lane) {
                                const float q = Q_row[lane];
                                const float q_mul_value = q * fade_exp2_value;
                                q_mul_row[lane] = q_mul_value;
                            }
                        }
                        // load(V[h, i*T:(i+1)*T, j*TD:(j+1)*TD] -> v)
                        // matmul(scores, v, y, precision="tf32x3")
                        sketch::multiply(
                            std::min<int64_t>(T, N - i * T), std::min<int64_t>(TD, D - j * TD),
                                std::min<int64_t>(T, N - i * T),
                            sketch::matrix<const float>{scores_where, T, 1},
                            sketch::matrix<const float>{V + D * N * h + D * T * i + TD * j, D, 1},
                            sketch::matrix<float>{y, TD, 1},
                            {scores_where_panels},
                            {v_panels});
                        // gemm(q, state, y, precision="tf32x3")
                        sketch::multiply(
                            std::min<int64_t>(T, N - i * T), std::min<int64_t>(TD, D - j * TD), D,
                            sketch::matrix<const float>{q_mul, D, 1},
                            sketch::matrix<const float>{state, TD, 1},
                            sketch::matrix<float>{y, TD, 1},
                            {q_mul_panels},
                            {state_panels});
                        for (int64_t row = 0; row < std::min<int64_t>(T, N - i * T); ++row) {
                            // store(y -> Y[h, i*T:(i+1)*T, j*TD:(j+1)*TD])
                            const float *const y_row_2 = y + row * TD;
                            for (int64_t block_2 = 0; block_2 < std::min<int64_t>(TD, D - j * TD);
                                block_2 += 1024) {
                                const int64_t block_2_end = std::min<int64_t>(std::min<int64_t>(TD,
                                    D - j * TD), block_2 + 1024);
                                alignas(64) float Y_block[1024];
                                float *const Y_row = Y_streams ? Y_block : Y + ((h * N + (i * T +
                                    row)) * D + j * TD + block_2);
                                #pragma omp simd
                                for (int64_t lane = block_2; lane < block_2_end; ++lane) {
                                    const float y_value = y_row_2[lane];
                                    Y_row[lane - block_2] = y_value;
                                }
                                if (Y_streams) {
                                    sketch::stream(Y + ((h * N + (i * T + row)) * D + j * TD +
                                        block_2), Y_block, block_2_end - block_2);
                                }
                            }
                            // load(K[h, i*T:(i+1)*T, 0:D] -> k)
                            // mul(k, fade, k)
                            const float fade_exp2_2_value = fade_exp2_2[row];
                            const float *const K_row = K + (h * N + (i * T + row)) * D;
                            float *const k_mul_row = k_mul + row * D;
                            #pragma omp simd
                            for (int64_t lane = 0; lane < D; ++lane) {
                                const float k = K_row[lane];
                                const float k_mul_value = k * fade_exp2_2_value;
                                k_mul_row[lane] = k_mul_value;
                            }
                        }
                        // load(V[h, i*T:(i+1)*T, j*TD:(j+1)*TD] -> v)
                        // matmul(k, v, block, trans_a=True, precision="tf32x3")
                        sketch::multiply(
                            D, std::min<int64_t>(TD, D - j * TD), std::min<int64_t>(T, N - i * T),
                            sketch::matrix<const float>{k_mul, 1, D},
                            sketch::matrix<const float>{V + D * N * h + D * T * i + TD * j, D, 1},
                            sketch::matrix<float>{block, TD, 1},
                            {k_mul_panels},
                            {v_panels_2});
                        // mul(rate, rows, kept)
                        const float kept = rate_log2 * static_cast<float>(rows);
                        // exp2(kept, kept)
                        const float kept_exp2 = sketch::exp2(kept);
                        for (int64_t row = 0; row < D; ++row) {
                            // fma(state, kept, block, state)
                            float *const state_row_2 = state + row * TD;
                            const float *const block_row_2 = block + row * TD;
                            #pragma omp simd
                            for (int64_t lane = 0; lane < std::min<int64_t>(TD, D - j * TD);
                                ++lane) {
                                const float state_value = state_row_2[lane];
                                const float block_value = block_row_2[lane];
                                const float state_value_2 = state_value * kept_exp2 + block_value;
                                state_row_2[lane] = state_value_2;
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
