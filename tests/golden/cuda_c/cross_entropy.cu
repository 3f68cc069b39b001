// cross_entropy: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o cross_entropy.so cross_entropy.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, max, log, exp, too_large, max_of_floats,
// plus, largest, lanes, enough, aligned, at_once, load_lanes, load_all_lanes, over_lanes,
// divisor, combined_in_warp, combined, layout, arena.

extern "C" __global__ void cross_entropy_1(
    const float *__restrict LOGITS, const int64_t *__restrict TARGET, float *__restrict ROWS,
    int64_t M, int64_t N, int64_t programs)
{
    constexpr int64_t T = 2048;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t i = program;
        // running_sum = alloc([1], init=0.0)
        float running_sum = 0.0f;
        // running_max = alloc([1], init=-inf)
        float running_max = -std::numeric_limits<float>::infinity();
        // for j in range(ceil(N, T)):
        for (int64_t j = 0; j < sketch::ceil_div(N, T); ++j) {
            float block_sum = 0.0f;
            float block_max = -std::numeric_limits<float>::infinity();
            // load(LOGITS[i, j*T:(j+1)*T] -> x)
            // reduce_max(x, 0, block_max)
            const float *const LOGITS_row = LOGITS + (i * N + j * T);
            float block_max_of_thread = sketch::largest<float>::start;
            sketch::over_lanes<4, 4>(thread * 4, threads * 4, std::min<int64_t>(T, N - j * T),
                sketch::aligned<4>(LOGITS_row), [&](int64_t first, auto left) {
                const auto LOGITS_row_lanes = sketch::load_lanes<4>(LOGITS_row + first, left);
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    const float x = LOGITS_row_lanes[part];
                    block_max_of_thread = sketch::largest<float>::combine(block_max_of_thread, part
                        < left ? x : sketch::largest<float>::start);
                }
            });
            block_max = sketch::largest<float>::combine(block_max,
                sketch::combined<sketch::largest<float>>(block_max_of_thread, block_memory));
            // max(running_max, block_max, new_max)
            const float new_max = sketch::max(running_max, block_max);
            // sub(running_max, new_max, correction)
            const float correction = running_max - new_max;
            // exp(correction, correction)
            const float correction_exp = sketch::exp(correction);
            // load(LOGITS[i, j*T:(j+1)*T] -> x)
            // sub(x, new_max, x)
            // exp(x, x)
            // reduce_sum(x, 0, block_sum)
            const float *const LOGITS_row_2 = LOGITS + (i * N + j * T);
            float block_sum_of_thread = sketch::plus<float>::start;
            sketch::over_lanes<4, 4>(thread * 4, threads * 4, std::min<int64_t>(T, N - j * T),
                sketch::aligned<4>(LOGITS_row_2), [&](int64_t first, auto left) {
                const auto LOGITS_row_2_lanes = sketch::load_lanes<4>(LOGITS_row_2 + first, left);
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    const float x = LOGITS_row_2_lanes[part];
                    const float x_sub = x - new_max;
                    const float x_exp = sketch::exp(x_sub);
                    block_sum_of_thread = sketch::plus<float>::combine(block_sum_of_thread, part <
                        left ? x_exp : sketch::plus<float>::start);
                }
            });
            block_sum = sketch::plus<float>::combine(block_sum,
                sketch::combined<sketch::plus<float>>(block_sum_of_thread, block_memory));
            // fma(running_sum, correction, block_sum, running_sum)
            running_sum = running_sum * correction_exp + block_sum;
            // copy(new_max, running_max)
            running_max = new_max;
        }
        // target = fetch(TARGET[i])
        const int64_t target = TARGET[i];
        // log(running_sum, loss)
        const float loss = sketch::log(running_sum);
        // add(loss, running_max, loss)
        const float loss_add = loss + running_max;
        // load(LOGITS[i, target] -> picked)
        // sub(loss, picked, loss)
        const float picked = (0 <= target && target < N) ? LOGITS[i * N + target] : 0.0f;
        const float loss_sub = loss_add - picked;
        // store(loss -> ROWS[i])
        if (thread == 0) {
            ROWS[i] = loss_sub;
        }
        __syncthreads();
    }
}

extern "C" __global__ void cross_entropy_2(
    float *__restrict LOSS, float *__restrict ROWS, int64_t M, int64_t programs)
{
    constexpr int64_t T = 2048;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        // total = alloc([1], init=0.0)
        float total = 0.0f;
        // for j in range(ceil(M, T)):
        for (int64_t j_2 = 0; j_2 < sketch::ceil_div(M, T); ++j_2) {
            float part_ = 0.0f;
            // load(ROWS[j*T:(j+1)*T] -> rows)
            // reduce_sum(rows, 0, part)
            const float *const ROWS_row = ROWS + j_2 * T;
            float part__of_thread = sketch::plus<float>::start;
            sketch::over_lanes<4, 4>(thread * 4, threads * 4, std::min<int64_t>(T, M - j_2 * T),
                sketch::aligned<4>(ROWS_row), [&](int64_t first, auto left) {
                const auto ROWS_row_lanes = sketch::load_lanes<4>(ROWS_row + first, left);
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    const float rows = ROWS_row_lanes[part];
                    part__of_thread = sketch::plus<float>::combine(part__of_thread, part < left ?
                        rows : sketch::plus<float>::start);
                }
            });
            part_ = sketch::plus<float>::combine(part_,
                sketch::combined<sketch::plus<float>>(part__of_thread, block_memory));
            // add(total, part, total)
            total = total + part_;
        }
        // div(total, M, total)
        total = total / static_cast<float>(M);
        // store(total -> LOSS[])
        if (thread == 0) {
            LOSS[0] = total;
        }
        __syncthreads();
    }
}

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  M >= 1 and N >= 1
//   2  M >= 0 and N >= 0
//   3  fewer than 2**48 elements in each tensor
extern "C" int64_t cross_entropy(
    const float *__restrict LOGITS, const int64_t *__restrict TARGET, float *__restrict LOSS,
    int64_t M, int64_t N)
{
    if (M < 0 || N < 0) {
        return 2;
    }
    if (M < 1 || N < 1) {
        return 1;
    }
    if (sketch::too_large({M, N})) {
        return 3;
    }
    // Memory shared by the phases.
    sketch::arena workspace;
    const int64_t ROWS_place = workspace.add(sizeof(float), {M});
    if (!workspace.allocate(1)) {
        return -1;
    }
    float *const ROWS = workspace.at<float>(ROWS_place, 0);
    // Phase 1 of 2.
    {
        const int64_t programs = M;
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        if (blocks > 0) {
            cross_entropy_1<<<static_cast<unsigned>(blocks), 128, 256>>>(LOGITS, TARGET, ROWS, M, N,
                programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    // Phase 2 of 2.
    {
        const int64_t programs = 1;
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        if (blocks > 0) {
            cross_entropy_2<<<static_cast<unsigned>(blocks), 128, 256>>>(LOSS, ROWS, M, programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
