// triplet_loss: a C++ kernel for cpu, made from a sketch.

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

// The library: least_shared_work, threads_for, floor_div, ceil_div, max, relu, sqrt,
// atomic_update, atomic_add, too_large.

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
    constexpr int64_t TN = 256;

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
    #pragma omp parallel for simd num_threads(sketch::threads_for(1 * 4)) schedule(static)
    for (int64_t element = 0; element < 1; ++element) {
        LOSS[element] = 0.0f;
    }
    const int threads = sketch::threads_for(M * (N * 19 + (sketch::ceil_div(N, TN) * 2 + 7)) +
        sketch::ceil_div(M, TM) * 9);
    #pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < sketch::ceil_div(M, TM); ++i) {
        alignas(64) float far[TM];
        alignas(64) float near[TM];
        // far = alloc([TM, 1], init=0.0)
        // near = alloc([TM, 1], init=0.0)
        #pragma omp simd
        for (int64_t lane = 0; lane < std::min<int64_t>(TM, M - i * TM); ++lane) {
            far[lane] = 0.0f;
            near[lane] = 0.0f;
        }
        // for j in range(ceil(N, TN)):
        for (int64_t j = 0; j < sketch::ceil_div(N, TN); ++j) {
            for (int64_t row = 0; row < std::min<int64_t>(TM, M - i * TM); ++row) {
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
                #pragma omp simd reduction(+ : sum_, sum__reduce_sum)
                for (int64_t lane = 0; lane < std::min<int64_t>(TN, N - j * TN); ++lane) {
                    const float anchor = ANCHOR_row[lane];
                    const float anchor_add = anchor + static_cast<float>(eps);
                    const float other = POSITIVE_row[lane];
                    const float other_sub = anchor_add - other;
                    const float other_mul = other_sub * other_sub;
                    sum_ += other_mul;
                    const float other_next = NEGATIVE_row[lane];
                    const float other_sub_2 = anchor_add - other_next;
                    const float other_mul_2 = other_sub_2 * other_sub_2;
                    sum__reduce_sum += other_mul_2;
                }
                // add(near, sum, near)
                const float near_value = near[row];
                const float near_value_2 = near_value + sum_;
                near[row] = near_value_2;
                // add(far, sum, far)
                const float far_value = far[row];
                const float far_value_2 = far_value + sum__reduce_sum;
                far[row] = far_value_2;
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
        #pragma omp simd reduction(+ : total)
        for (int64_t lane = 0; lane < std::min<int64_t>(TM, M - i * TM); ++lane) {
            const float near_value = near[lane];
            const float near_value_2 = sketch::sqrt(near_value);
            const float far_value = far[lane];
            const float far_value_2 = sketch::sqrt(far_value);
            const float loss = near_value_2 - far_value_2;
            const float loss_add = loss + static_cast<float>(margin);
            const float loss_relu = sketch::relu(loss_add);
            const float loss_div = loss_relu / static_cast<float>(M);
            total += loss_div;
        }
        // atomic_add(total -> LOSS[])
        sketch::atomic_add(&LOSS[0], total);
    }
    return 0;
}
