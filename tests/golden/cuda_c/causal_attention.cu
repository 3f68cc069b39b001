// causal_attention: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o causal_attention.so causal_attention.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, floor_mod, ceil_div, bits_of, float_of, max, min, exp, too_large,
// max_of_floats, min_of_floats, plus, largest, lanes, enough, aligned, at_once, load_lanes,
// load_all_lanes, store_lanes, store_all_lanes, over_lanes, divisor, combined_in_warp, matrix,
// widened, window, factors, factors_from, sums_in, product_steps, by_threads, multiply_blocks,
// multiply_along, layout, arena, allow_shared.

extern "C" __global__ void causal_attention_1(
    const float *__restrict Q, const float *__restrict K, const float *__restrict V,
    const float *__restrict MASK, float *__restrict Y, int64_t B, int64_t HQ, int64_t HK,
    int64_t M, int64_t N, int64_t D, double scale, int64_t programs, int64_t y_place,
    int64_t q_mul_place, char *scratch_memory, int64_t scratch_bytes, int64_t scores_place)
{
    constexpr int64_t TM = 64;
    constexpr int64_t TN = 64;
    extern __shared__ __align__(128) char block_memory[];
    char *const scratch = scratch_memory + blockIdx.x * scratch_bytes;
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t i = program % sketch::ceil_div(M, TM);
        const int64_t h = program / sketch::ceil_div(M, TM) % HQ;
        const int64_t b = program / sketch::ceil_div(M, TM) / HQ;
        float *const running_sum = reinterpret_cast<float *>(block_memory + 256);
        float *const running_max = reinterpret_cast<float *>(block_memory + 512);
        float *const y = reinterpret_cast<float *>(block_memory + y_place);
        float *const q_mul = reinterpret_cast<float *>(block_memory + q_mul_place);
        float *const scores = reinterpret_cast<float *>(scratch + scores_place);
        for (int64_t row = thread / 32; row < std::min<int64_t>(TM, M - i * TM); row += threads /
            32) {
            // running_sum = alloc([TM, 1], init=0.0)
            if (thread % 32 == 0) {
                running_sum[row] = 0.0f;
            }
            // running_max = alloc([TM, 1], init=-inf)
            if (thread % 32 == 0) {
                running_max[row] = -std::numeric_limits<float>::infinity();
            }
            // y = alloc([TM, D], init=0.0)
            // load(Q[b, h, i*TM:(i+1)*TM, 0:D] -> q)
            // mul(q, scale, q)
            float *const y_row = y + row * D;
            const float *const Q_row = Q + ((b * HQ + h) * M + (i * TM + row)) * D;
            float *const q_mul_row = q_mul + row * D;
            sketch::over_lanes<4, 4>(thread % 32 * 4, 32 * 4, D, sketch::aligned<4>(Q_row, y_row,
                q_mul_row), [&](int64_t first, auto left) {
                sketch::lanes<float, 4> y_row_lanes;
                sketch::lanes<float, 4> q_mul_row_lanes;
                const auto Q_row_lanes = sketch::load_lanes<4>(Q_row + first, left);
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    y_row_lanes[part] = 0.0f;
                    const float q = Q_row_lanes[part];
                    const float q_mul_value = q * static_cast<float>(scale);
                    q_mul_row_lanes[part] = q_mul_value;
                }
                sketch::store_lanes(y_row + first, left, y_row_lanes);
                sketch::store_lanes(q_mul_row + first, left, q_mul_row_lanes);
            });
        }
        // for j in range(ceil(min((i+1)*TM + N - M, N), TN)):
        for (int64_t j = 0; j < sketch::ceil_div(std::min<int64_t>((i + 1) * TM + N - M, N), TN);
            ++j) {
            // load(K[b, h//(HQ//HK), j*TN:(j+1)*TN, 0:D] -> k)
            // matmul(q, k, scores, trans_b=True)
            __syncthreads();
            sketch::multiply_along<sketch::by_threads<4, 4, 8, true, true>, false>(
                1,
                [&](int64_t) {
                    return sketch::factors<float, float>{
                        std::min<int64_t>(TM, M - i * TM), std::min<int64_t>(TN, N - j * TN), D,
                        sketch::matrix<const float>{q_mul, D, 1},
                        sketch::matrix<const float>{K + D * HK * N * b + sketch::floor_div(h,
                            sketch::floor_div(HQ, HK)) * D * N + D * TN * j, 1, D}};
                },
                sketch::sums_in<float, true>{sketch::matrix<float>{scores, TN, 1}}, block_memory +
                    768);
            // if present(MASK):
            if (MASK != nullptr) {
                __syncthreads();
                for (int64_t row = thread / 32; row < std::min<int64_t>(TM, M - i * TM); row +=
                    threads / 32) {
                    // load(MASK[i*TM:(i+1)*TM, j*TN:(j+1)*TN] -> mask)
                    // add(scores, mask, scores)
                    float *const scores_row_2 = scores + row * TN;
                    const float *const MASK_row = MASK + ((i * TM + row) * N + j * TN);
                    sketch::over_lanes<2, 1>(thread % 32 * 2, 32 * 2, std::min<int64_t>(TN, N - j *
                        TN), sketch::aligned<2>(scores_row_2, MASK_row), [&](int64_t first, auto
                        left) {
                        auto scores_row_2_lanes = sketch::load_lanes<2>(scores_row_2 + first, left);
                        const auto MASK_row_lanes = sketch::load_lanes<2>(MASK_row + first, left);
                        #pragma unroll
                        for (int part = 0; part < 2; ++part) {
                            const float scores_value = scores_row_2_lanes[part];
                            const float mask = MASK_row_lanes[part];
                            const float scores_value_2 = scores_value + mask;
                            scores_row_2_lanes[part] = scores_value_2;
                        }
                        sketch::store_lanes(scores_row_2 + first, left, scores_row_2_lanes);
                    });
                }
            }
            // query = i*TM + iota(TM)
            // key = j*TN + iota(TN)
            __syncthreads();
            for (int64_t row = thread / 32; row < std::min<int64_t>(TM, M - i * TM); row += threads
                / 32) {
                float block_sum = 0.0f;
                float block_max = -std::numeric_limits<float>::infinity();
                // where(key[None, :] <= query[:, None] + N - M, scores, -inf, scores)
                // reduce_max(scores, 1, block_max)
                float *const scores_row_3 = scores + row * TN;
                float block_max_of_thread = sketch::largest<float>::start;
                sketch::over_lanes<2, 1>(thread % 32 * 2, 32 * 2, std::min<int64_t>(TN, N - j * TN),
                    sketch::aligned<2>(scores_row_3), [&](int64_t first, auto left) {
                    auto scores_row_3_lanes = sketch::load_lanes<2>(scores_row_3 + first, left);
                    #pragma unroll
                    for (int part = 0; part < 2; ++part) {
                        const int64_t lane = first + part;
                        const float scores_value = scores_row_3_lanes[part];
                        const float scores_value_2 = (j * TN + lane <= i * TM + row + N - M) ?
                            scores_value : (-std::numeric_limits<float>::infinity());
                        scores_row_3_lanes[part] = scores_value_2;
                        block_max_of_thread = sketch::largest<float>::combine(block_max_of_thread,
                            part < left ? scores_value_2 : sketch::largest<float>::start);
                    }
                    sketch::store_lanes(scores_row_3 + first, left, scores_row_3_lanes);
                });
                block_max = sketch::largest<float>::combine(block_max,
                    sketch::combined_in_warp<sketch::largest<float>>(block_max_of_thread));
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
                float block_sum_of_thread = sketch::plus<float>::start;
                sketch::over_lanes<2, 1>(thread % 32 * 2, 32 * 2, std::min<int64_t>(TN, N - j * TN),
                    sketch::aligned<2>(scores_row_4), [&](int64_t first, auto left) {
                    auto scores_row_4_lanes = sketch::load_lanes<2>(scores_row_4 + first, left);
                    #pragma unroll
                    for (int part = 0; part < 2; ++part) {
                        const float scores_value = scores_row_4_lanes[part];
                        const float scores_value_2 = scores_value - new_max;
                        const float scores_value_3 = sketch::exp(scores_value_2);
                        scores_row_4_lanes[part] = scores_value_3;
                        block_sum_of_thread = sketch::plus<float>::combine(block_sum_of_thread, part
                            < left ? scores_value_3 : sketch::plus<float>::start);
                    }
                    sketch::store_lanes(scores_row_4 + first, left, scores_row_4_lanes);
                });
                block_sum = sketch::plus<float>::combine(block_sum,
                    sketch::combined_in_warp<sketch::plus<float>>(block_sum_of_thread));
                // fma(running_sum, correction, block_sum, running_sum)
                const float running_sum_value = running_sum[row];
                const float running_sum_value_2 = running_sum_value * correction_exp + block_sum;
                __syncwarp();
                if (thread % 32 == 0) {
                    running_sum[row] = running_sum_value_2;
                }
                // mul(y, correction, y)
                float *const y_row_2 = y + row * D;
                sketch::over_lanes<4, 4>(thread % 32 * 4, 32 * 4, D, sketch::aligned<4>(y_row_2),
                    [&](int64_t first, auto left) {
                    auto y_row_2_lanes = sketch::load_lanes<4>(y_row_2 + first, left);
                    #pragma unroll
                    for (int part = 0; part < 4; ++part) {
                        const float y_value = y_row_2_lanes[part];
                        const float y_value_2 = y_value * correction_exp;
                        y_row_2_lanes[part] = y_value_2;
                    }
                    sketch::store_lanes(y_row_2 + first, left, y_row_2_lanes);
                });
                // copy(new_max, running_max)
                const float running_max_value_2 = new_max;
                if (thread % 32 == 0) {
                    running_max[row] = running_max_value_2;
                }
            }
            // load(V[b, h//(HQ//HK), j*TN:(j+1)*TN, 0:D] -> v)
            // gemm(scores, v, y)
            __syncthreads();
            sketch::multiply_along<sketch::by_threads<4, 4, 8, true, false>, false>(
                1,
                [&](int64_t) {
                    return sketch::factors<float, float>{
                        std::min<int64_t>(TM, M - i * TM), D, std::min<int64_t>(TN, N - j * TN),
                        sketch::matrix<const float>{scores, TN, 1},
                        sketch::matrix<const float>{V + D * HK * N * b + sketch::floor_div(h,
                            sketch::floor_div(HQ, HK)) * D * N + D * TN * j, D, 1}};
                },
                sketch::sums_in<float, false>{sketch::matrix<float>{y, D, 1}}, block_memory + 768);
        }
        __syncthreads();
        for (int64_t row = thread / 32; row < std::min<int64_t>(TM, M - i * TM); row += threads /
            32) {
            // div(y, running_sum, y)
            // store(y -> Y[b, h, i*TM:(i+1)*TM, 0:D])
            const float running_sum_value = running_sum[row];
            const float *const y_row_3 = y + row * D;
            float *const Y_row = Y + ((b * HQ + h) * M + (i * TM + row)) * D;
            sketch::over_lanes<4, 4>(thread % 32 * 4, 32 * 4, D, sketch::aligned<4>(y_row_3, Y_row),
                [&, divisor = sketch::divisor(running_sum_value)](int64_t first, auto left) {
                sketch::lanes<float, 4> Y_row_lanes;
                const auto y_row_3_lanes = sketch::load_lanes<4>(y_row_3 + first, left);
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    const float y_value = y_row_3_lanes[part];
                    const float y_value_2 = y_value / divisor;
                    Y_row_lanes[part] = y_value_2;
                }
                sketch::store_lanes(Y_row + first, left, Y_row_lanes);
            });
        }
        __syncthreads();
    }
}

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
    {
        const int64_t programs = B * HQ * sketch::ceil_div(M, TM);
        const int64_t blocks = std::min<int64_t>(programs, 1024);
        sketch::layout shared{8960};
        const int64_t y_place = shared.add(sizeof(float), {TM, D});
        const int64_t q_mul_place = shared.add(sizeof(float), {TM, D});
        // Scratch memory of each block.
        sketch::arena arena;
        const int64_t scores_place = arena.add(sizeof(float), {TM, TN});
        if (!arena.allocate(blocks)) {
            return -1;
        }
        sketch::allow_shared(causal_attention_1, 90368);
        if (blocks > 0) {
            causal_attention_1<<<static_cast<unsigned>(blocks), 128,
                static_cast<unsigned>(shared.bytes())>>>(Q, K, V, MASK, Y, B, HQ, HK, M, N, D,
                scale, programs, y_place, q_mul_place, arena.memory(), arena.bytes(), scores_place);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
