// triplet_loss: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o triplet_loss.so triplet_loss.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, max, min, relu, sqrt, too_large,
// max_of_floats, min_of_floats, plus, lanes, enough, aligned, at_once, load_lanes,
// load_all_lanes, over_lanes, divisor, combined_in_warp, combined, atomic_replace, added,
// atomic_add, filled, fill.

extern "C" __global__ void triplet_loss_1(
    const float *__restrict ANCHOR, const float *__restrict POSITIVE,
    const float *__restrict NEGATIVE, float *__restrict LOSS, int64_t M, int64_t N, double margin,
    double eps, int64_t programs)
{
    constexpr int64_t TM = 16;
    constexpr int64_t TN = 128;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t i = program;
        float *const far = reinterpret_cast<float *>(block_memory + 256);
        float *const near = reinterpret_cast<float *>(block_memory + 384);
        // far = alloc([TM, 1], init=0.0)
        // near = alloc([TM, 1], init=0.0)
        for (int64_t lane = thread; lane < std::min<int64_t>(TM, M - i * TM); lane += threads) {
            far[lane] = 0.0f;
            near[lane] = 0.0f;
        }
        // for j in range(ceil(N, TN)):
        for (int64_t j = 0; j < sketch::ceil_div(N, TN); ++j) {
            __syncthreads();
            for (int64_t row = thread / 32; row < std::min<int64_t>(TM, M - i * TM); row += threads
                / 32) {
                float sum__reduce_sum = 0.0f;
                float sum_ = 0.0f;
                // load(ANCHOR[i*TM:(i+1)*TM, j*TN:(j+1)*TN] -> anchor)
                // add(anchor, eps, anchor)
                // load(POSITIVE[i*TM:(i+1)*TM, j*TN:(j+1)*TN] -> other)
                // sub(anchor, other, other)
                // mul(other, other, other)
                // reduce_sum(other, 1, sum)
                // load(NEGATIVE[i*TM:(i+1)*TM, j*TN:(j+1)*TN] -> other)
                const float *const ANCHOR_row = ANCHOR + ((i * TM + row) * N + j * TN);
                const float *const POSITIVE_row = POSITIVE + ((i * TM + row) * N + j * TN);
                const float *const NEGATIVE_row = NEGATIVE + ((i * TM + row) * N + j * TN);
                float sum__of_thread = sketch::plus<float>::start;
                float sum__reduce_sum_of_thread = sketch::plus<float>::start;
                sketch::over_lanes<4, 1>(thread % 32 * 4, 32 * 4, std::min<int64_t>(TN, N - j * TN),
                    sketch::aligned<4>(ANCHOR_row, POSITIVE_row, NEGATIVE_row), [&](int64_t first,
                    auto left) {
                    const auto ANCHOR_row_lanes = sketch::load_lanes<4>(ANCHOR_row + first, left);
                    const auto POSITIVE_row_lanes = sketch::load_lanes<4>(POSITIVE_row + first,
                        left);
                    const auto NEGATIVE_row_lanes = sketch::load_lanes<4>(NEGATIVE_row + first,
                        left);
                    #pragma unroll
                    for (int part = 0; part < 4; ++part) {
                        const float anchor = ANCHOR_row_lanes[part];
                        const float anchor_add = anchor + static_cast<float>(eps);
                        const float other = POSITIVE_row_lanes[part];
                        const float other_sub = anchor_add - other;
                        const float other_mul = other_sub * other_sub;
                        sum__of_thread = sketch::plus<float>::combine(sum__of_thread, part < left ?
                            other_mul : sketch::plus<float>::start);
                        const float other_next = NEGATIVE_row_lanes[part];
                        const float other_sub_2 = anchor_add - other_next;
                        const float other_mul_2 = other_sub_2 * other_sub_2;
                        sum__reduce_sum_of_thread =
                            sketch::plus<float>::combine(sum__reduce_sum_of_thread, part < left ?
                            other_mul_2 : sketch::plus<float>::start);
                    }
                });
                sum_ = sketch::plus<float>::combine(sum_,
                    sketch::combined_in_warp<sketch::plus<float>>(sum__of_thread));
                sum__reduce_sum = sketch::plus<float>::combine(sum__reduce_sum,
                    sketch::combined_in_warp<sketch::plus<float>>(sum__reduce_sum_of_thread));
                // add(near, sum, near)
                const float near_value = near[row];
                const float near_value_2 = near_value + sum_;
                __syncwarp();
                if (thread % 32 == 0) {
                    near[row] = near_value_2;
                }
                // add(far, sum, far)
                const float far_value = far[row];
                const float far_value_2 = far_value + sum__reduce_sum;
                __syncwarp();
                if (thread % 32 == 0) {
                    far[row] = far_value_2;
                }
            }
        }
        float total = 0.0f;
        // sqrt(near, near)
        // sqrt(far, far)
        // sub(near, far, loss)
        // add(loss, margin, loss)
        // relu(loss, loss)
        // div(loss, M, loss)
        // reduce_sum(loss, [0, 1], total)
        __syncthreads();
        float total_of_thread = sketch::plus<float>::start;
        for (int64_t lane = thread; lane < std::min<int64_t>(TM, M - i * TM); lane += threads) {
            const float near_value = near[lane];
            const float near_value_2 = sketch::sqrt(near_value);
            const float far_value = far[lane];
            const float far_value_2 = sketch::sqrt(far_value);
            const float loss = near_value_2 - far_value_2;
            const float loss_add = loss + static_cast<float>(margin);
            const float loss_relu = sketch::relu(loss_add);
            const float loss_div = loss_relu / static_cast<float>(M);
            total_of_thread = sketch::plus<float>::combine(total_of_thread, loss_div);
        }
        total = sketch::plus<float>::combine(total,
            sketch::combined<sketch::plus<float>>(total_of_thread, block_memory));
        // atomic_add(total -> LOSS[])
        if (thread == 0) {
            sketch::atomic_add(&LOSS[0], total);
        }
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  M >= 1
//   2  M >= 0 and N >= 0
//   3  fewer than 2**48 elements in each tensor
extern "C" int64_t triplet_loss(
    const float *__restrict ANCHOR, const float *__restrict POSITIVE, const float *__restrict
    NEGATIVE, float *__restrict LOSS, int64_t M, int64_t N, double margin, double eps)
{
    constexpr int64_t TM = 16;

    if (M < 0 || N < 0) {
        return 2;
    }
    if (M < 1) {
        return 1;
    }
    if (sketch::too_large({M, N})) {
        return 3;
    }
    // LOSS starts as 0.0.
    if (!sketch::fill<float>(LOSS, 1, 0.0f)) {
        return -2;
    }
    {
        const int64_t programs = sketch::ceil_div(M, TM);
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        if (blocks > 0) {
            triplet_loss_1<<<static_cast<unsigned>(blocks), 128, 512>>>(ANCHOR, POSITIVE, NEGATIVE,
                LOSS, M, N, margin, eps, programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
