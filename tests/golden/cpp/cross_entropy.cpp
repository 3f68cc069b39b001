// cross_entropy: a C++ kernel for cpu, made from a sketch.

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

// The library: arena, least_shared_work, threads_for, floor_div, ceil_div, bits_of, float_of,
// max, log, exp, too_large, propagating_max.

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  M >= 1 and N >= 1
//   2  M >= 0 and N >= 0
//   3  fewer than 2**48 elements in each tensor
extern "C" int64_t cross_entropy(
    const float *__restrict LOGITS, const int64_t *__restrict TARGET, float *__restrict LOSS,
    int64_t M, int64_t N)
{
    constexpr int64_t T = 2048;

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
        const int threads = sketch::threads_for(M * (N * 8 + (sketch::ceil_div(N, T) * 5 + 19)));
        #pragma omp parallel for num_threads(threads) schedule(static)
        for (int64_t i = 0; i < M; ++i) {
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
                #pragma omp simd reduction(propagating_max : block_max)
                for (int64_t lane = 0; lane < std::min<int64_t>(T, N - j * T); ++lane) {
                    const float x = LOGITS_row[lane];
                    block_max = sketch::max(block_max, x);
                }
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
                #pragma omp simd reduction(+ : block_sum)
                for (int64_t lane = 0; lane < std::min<int64_t>(T, N - j * T); ++lane) {
                    const float x = LOGITS_row_2[lane];
                    const float x_sub = x - new_max;
                    const float x_exp = sketch::exp(x_sub);
                    block_sum += x_exp;
                }
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
            ROWS[i] = loss_sub;
        }
    }
    // Phase 2 of 2.
    {
        // total = alloc([1], init=0.0)
        float total = 0.0f;
        // for j in range(ceil(M, T)):
        for (int64_t j_2 = 0; j_2 < sketch::ceil_div(M, T); ++j_2) {
            float part_ = 0.0f;
            // load(ROWS[j*T:(j+1)*T] -> rows)
            // reduce_sum(rows, 0, part)
            const float *const ROWS_row = ROWS + j_2 * T;
            #pragma omp simd reduction(+ : part_)
            for (int64_t lane = 0; lane < std::min<int64_t>(T, M - j_2 * T); ++lane) {
                const float rows = ROWS_row[lane];
                part_ += rows;
            }
            // add(total, part, total)
            total = total + part_;
        }
        // div(total, M, total)
        total = total / static_cast<float>(M);
        // store(total -> LOSS[])
        LOSS[0] = total;
    }
    return 0;
}
