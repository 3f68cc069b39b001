// retention: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o retention.so retention.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, absolute, max, min, exp2, log2, isfinite,
// tile, too_large, max_of_floats, min_of_floats, lanes, enough, aligned, at_once, load_lanes,
// load_all_lanes, store_lanes, store_all_lanes, over_lanes, divisor, matrix, window, factors,
// factors_from, sums_in, gathered, sums_in_tiles, in_tiles, product_steps, shared_place,
// place_of, differing, copy_chunk, commit_chunks, wait_for_chunks, load_fragments, seen_bits,
// leading_bits, multiply_leading, fragment, halves, in_tf32, strides, staged, stages_of,
// fragments_of, by_warps, multiply_blocks, multiply_along, layout, allow_shared.

extern "C" __global__ void retention_1(
    const float *__restrict Q, const float *__restrict K, const float *__restrict V,
    const float *__restrict GAMMA, float *__restrict Y, int64_t H, int64_t N, int64_t D,
    int64_t programs, int64_t state_place, int64_t block_place, int64_t q_mul_place,
    int64_t k_mul_place)
{
    constexpr int64_t T = 32;
    constexpr int64_t TD = 32;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t j = program % sketch::ceil_div(D, TD);
        const int64_t h = program / sketch::ceil_div(D, TD);
        float *const scores = reinterpret_cast<float *>(block_memory + 256);
        float *const weight_exp2 = reinterpret_cast<float *>(block_memory + 4352);
        float *const fade_exp2 = reinterpret_cast<float *>(block_memory + 8448);
        float *const fade_exp2_2 = reinterpret_cast<float *>(block_memory + 8576);
        float *const y = reinterpret_cast<float *>(block_memory + 8704);
        float *const scores_where = reinterpret_cast<float *>(block_memory + 12800);
        float *const state = reinterpret_cast<float *>(block_memory + state_place);
        float *const block = reinterpret_cast<float *>(block_memory + block_place);
        float *const q_mul = reinterpret_cast<float *>(block_memory + q_mul_place);
        float *const k_mul = reinterpret_cast<float *>(block_memory + k_mul_place);
        for (int64_t row = thread / 32; row < D; row += threads / 32) {
            // state = alloc([D, TD], init=0.0)
            float *const state_row = state + row * TD;
            for (int64_t lane = thread % 32; lane < std::min<int64_t>(TD, D - j * TD); lane += 32) {
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
            __syncthreads();
            for (int64_t row = thread / 32; row < D; row += threads / 32) {
                float *const block_row = block + row * TD;
                for (int64_t lane = thread % 32; lane < std::min<int64_t>(TD, D - j * TD); lane +=
                    32) {
                    block_row[lane] = 0.0f;
                }
            }
            // load(Q[h, i*T:(i+1)*T, 0:D] -> q)
            // load(K[h, i*T:(i+1)*T, 0:D] -> k)
            // matmul(q, k, scores, trans_b=True, precision="tf32x3")
            sketch::multiply_along<sketch::by_warps<4, 2, 1, 1, 32, 3, true, true, sketch::in_tf32>,
                false>(
                1,
                [&](int64_t) {
                    return sketch::factors<float, float>{
                        std::min<int64_t>(T, N - i * T), std::min<int64_t>(T, N - i * T), D,
                        sketch::matrix<const float>{Q + D * N * h + D * T * i, D, 1},
                        sketch::matrix<const float>{K + D * N * h + D * T * i, 1, D}};
                },
                sketch::sums_in<float, true>{sketch::matrix<float>{scores, T, 1}}, block_memory +
                    16896);
            for (int64_t row = thread / 32; row < T; row += threads / 32) {
                // mul(rate, max(query - key, 0), weight)
                // exp2(weight, weight)
                float *const weight_exp2_row = weight_exp2 + row * T;
                for (int64_t lane = thread % 32; lane < T; lane += 32) {
                    const float weight = rate_log2 * static_cast<float>(std::max<int64_t>(row -
                        lane, 0));
                    const float weight_exp2_value = sketch::exp2(weight);
                    weight_exp2_row[lane] = weight_exp2_value;
                }
                // mul(rate, query + 1, fade)
                const float fade = rate_log2 * static_cast<float>(row + 1);
                // exp2(fade, fade)
                const float fade_exp2_value = sketch::exp2(fade);
                if (thread % 32 == 0) {
                    fade_exp2[row] = fade_exp2_value;
                }
                // mul(rate, rows - 1 - query, fade)
                const float fade_mul = rate_log2 * static_cast<float>(rows - 1 - row);
                // exp2(fade, fade)
                const float fade_exp2_2_value = sketch::exp2(fade_mul);
                if (thread % 32 == 0) {
                    fade_exp2_2[row] = fade_exp2_2_value;
                }
            }
            __syncthreads();
            for (int64_t row = thread / 32; row < std::min<int64_t>(T, N - i * T); row += threads /
                32) {
                float *const y_row = y + row * TD;
                for (int64_t lane = thread % 32; lane < std::min<int64_t>(TD, D - j * TD); lane +=
                    32) {
                    y_row[lane] = 0.0f;
                }
                // mul(scores, weight, scores)
                // where(key <= query, scores, 0, scores)
                const float *const scores_row_2 = scores + row * T;
                const float *const weight_exp2_row_2 = weight_exp2 + row * T;
                float *const scores_where_row = scores_where + row * T;
                for (int64_t lane = thread % 32; lane < std::min<int64_t>(T, N - i * T); lane +=
                    32) {
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
                sketch::over_lanes<4, 4>(thread % 32 * 4, 32 * 4, D, sketch::aligned<4>(Q_row,
                    q_mul_row), [&](int64_t first, auto left) {
                    sketch::lanes<float, 4> q_mul_row_lanes;
                    const auto Q_row_lanes = sketch::load_lanes<4>(Q_row + first, left);
                    #pragma unroll
                    for (int part = 0; part < 4; ++part) {
                        const float q = Q_row_lanes[part];
                        const float q_mul_value = q * fade_exp2_value;
                        q_mul_row_lanes[part] = q_mul_value;
                    }
                    sketch::store_lanes(q_mul_row + first, left, q_mul_row_lanes);
                });
            }
            // load(V[h, i*T:(i+1)*T, j*TD:(j+1)*TD] -> v)
            // matmul(scores, v, y, precision="tf32x3")
            __syncthreads();
            sketch::multiply_along<sketch::by_warps<4, 2, 1, 1, 32, 3, true, false,
                sketch::in_tf32>, true>(
                1,
                [&](int64_t) {
                    return sketch::factors<float, float>{
                        std::min<int64_t>(T, N - i * T), std::min<int64_t>(TD, D - j * TD),
                            std::min<int64_t>(T, N - i * T),
                        sketch::matrix<const float>{scores_where, T, 1},
                        sketch::matrix<const float>{V + D * N * h + D * T * i + TD * j, D, 1}};
                },
                sketch::sums_in<float, false>{sketch::matrix<float>{y, TD, 1}}, block_memory +
                    16896);
            // gemm(q, state, y, precision="tf32x3")
            __syncthreads();
            sketch::multiply_along<sketch::by_warps<4, 2, 1, 1, 32, 3, true, false,
                sketch::in_tf32>, false>(
                1,
                [&](int64_t) {
                    return sketch::factors<float, float>{
                        std::min<int64_t>(T, N - i * T), std::min<int64_t>(TD, D - j * TD), D,
                        sketch::matrix<const float>{q_mul, D, 1},
                        sketch::matrix<const float>{state, TD, 1}};
                },
                sketch::sums_in<float, false>{sketch::matrix<float>{y, TD, 1}}, block_memory +
                    16896);
            __syncthreads();
            for (int64_t row = thread / 32; row < std::min<int64_t>(T, N - i * T); row += threads /
                32) {
                // store(y -> Y[h, i*T:(i+1)*T, j*TD:(j+1)*TD])
                const float *const y_row_2 = y + row * TD;
                float *const Y_row = Y + ((h * N + (i * T + row)) * D + j * TD);
                for (int64_t lane = thread % 32; lane < std::min<int64_t>(TD, D - j * TD); lane +=
                    32) {
                    const float y_value = y_row_2[lane];
                    Y_row[lane] = y_value;
                }
                // load(K[h, i*T:(i+1)*T, 0:D] -> k)
                // mul(k, fade, k)
                const float fade_exp2_2_value = fade_exp2_2[row];
                const float *const K_row = K + (h * N + (i * T + row)) * D;
                float *const k_mul_row = k_mul + row * D;
                sketch::over_lanes<4, 4>(thread % 32 * 4, 32 * 4, D, sketch::aligned<4>(K_row,
                    k_mul_row), [&](int64_t first, auto left) {
                    sketch::lanes<float, 4> k_mul_row_lanes;
                    const auto K_row_lanes = sketch::load_lanes<4>(K_row + first, left);
                    #pragma unroll
                    for (int part = 0; part < 4; ++part) {
                        const float k = K_row_lanes[part];
                        const float k_mul_value = k * fade_exp2_2_value;
                        k_mul_row_lanes[part] = k_mul_value;
                    }
                    sketch::store_lanes(k_mul_row + first, left, k_mul_row_lanes);
                });
            }
            // load(V[h, i*T:(i+1)*T, j*TD:(j+1)*TD] -> v)
            // matmul(k, v, block, trans_a=True, precision="tf32x3")
            __syncthreads();
            sketch::multiply_along<sketch::by_warps<4, 2, 2, 1, 32, 3, false, false,
                sketch::in_tf32>, true>(
                1,
                [&](int64_t) {
                    return sketch::factors<float, float>{
                        D, std::min<int64_t>(TD, D - j * TD), std::min<int64_t>(T, N - i * T),
                        sketch::matrix<const float>{k_mul, 1, D},
                        sketch::matrix<const float>{V + D * N * h + D * T * i + TD * j, D, 1}};
                },
                sketch::sums_in<float, false>{sketch::matrix<float>{block, TD, 1}}, block_memory +
                    16896);
            // mul(rate, rows, kept)
            const float kept = rate_log2 * static_cast<float>(rows);
            // exp2(kept, kept)
            const float kept_exp2 = sketch::exp2(kept);
            __syncthreads();
            for (int64_t row = thread / 32; row < D; row += threads / 32) {
                // fma(state, kept, block, state)
                float *const state_row_2 = state + row * TD;
                const float *const block_row_2 = block + row * TD;
                for (int64_t lane = thread % 32; lane < std::min<int64_t>(TD, D - j * TD); lane +=
                    32) {
                    const float state_value = state_row_2[lane];
                    const float block_value = block_row_2[lane];
                    const float state_value_2 = state_value * kept_exp2 + block_value;
                    state_row_2[lane] = state_value_2;
                }
            }
        }
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
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
    {
        const int64_t programs = H * sketch::ceil_div(D, TD);
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        sketch::layout shared{53760};
        const int64_t state_place = shared.add(sizeof(float), {D, TD});
        const int64_t block_place = shared.add(sizeof(float), {D, TD});
        const int64_t q_mul_place = shared.add(sizeof(float), {T, D});
        const int64_t k_mul_place = shared.add(sizeof(float), {T, D});
        sketch::allow_shared(retention_1, 119040);
        if (blocks > 0) {
            retention_1<<<static_cast<unsigned>(blocks), 128,
                static_cast<unsigned>(shared.bytes())>>>(Q, K, V, GAMMA, Y, H, N, D, programs,
                state_place, block_place, q_mul_place, k_mul_place);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
