// power_iteration: a C++ kernel for cpu, made from a sketch.

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

// The library: arena, least_shared_work, threads_for, floor_div, ceil_div, absolute, max,
// too_large, propagating_max.

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  N >= 1
//   2  N >= 0
//   3  fewer than 2**48 elements in each tensor
extern "C" int64_t power_iteration(
    const float *__restrict A, float *__restrict V, const int64_t *__restrict STEPS, int64_t N)
{
    constexpr int64_t TM = 16;
    constexpr int64_t TN = 256;
    constexpr int64_t T = 512;

    if (N < 0) {
        return 2;
    }
    if (N < 1) {
        return 1;
    }
    if (sketch::too_large({N, N})) {
        return 3;
    }
    // Memory shared by the phases.
    sketch::arena workspace;
    const int64_t PRODUCT_place = workspace.add(sizeof(float), {N});
    const int64_t LARGEST_place = workspace.add(sizeof(float), {});
    if (!workspace.allocate(1)) {
        return -1;
    }
    float *const PRODUCT = workspace.at<float>(PRODUCT_place, 0);
    float *const LARGEST = workspace.at<float>(LARGEST_place, 0);
    // steps = fetch(STEPS[])
    [[maybe_unused]] const int64_t steps = STEPS[0];
    // for step in range(steps):
    for (int64_t step = 0; step < steps; ++step) {
        // Phase 1 of 3.
        {
            const int threads = sketch::threads_for(N * (N * 6 + (sketch::ceil_div(N, TM) * 4 +
                (sketch::ceil_div(N, TN) + 4))));
            #pragma omp parallel for num_threads(threads) schedule(static)
            for (int64_t i = 0; i < sketch::ceil_div(N, TM); ++i) {
                alignas(64) float sum_[TM];
                // sum_ = alloc([TM], init=0.0)
                #pragma omp simd
                for (int64_t lane = 0; lane < std::min<int64_t>(TM, N - i * TM); ++lane) {
                    sum_[lane] = 0.0f;
                }
                // for j in range(ceil(N, TN)):
                for (int64_t j = 0; j < sketch::ceil_div(N, TN); ++j) {
                    for (int64_t row = 0; row < std::min<int64_t>(TM, N - i * TM); ++row) {
                        float part_ = 0.0f;
                        // load(A[i*TM:(i+1)*TM, j*TN:(j+1)*TN] -> a)
                        // load(V[j*TN:(j+1)*TN] -> v)
                        // mul(a, v, a)
                        // reduce_sum(a, 1, part)
                        const float *const A_row = A + ((i * TM + row) * N + j * TN);
                        const float *const V_row = V + j * TN;
                        #pragma omp simd reduction(+ : part_)
                        for (int64_t lane = 0; lane < std::min<int64_t>(TN, N - j * TN); ++lane) {
                            const float a = A_row[lane];
                            const float v = V_row[lane];
                            const float a_mul = a * v;
                            part_ += a_mul;
                        }
                        // add(sum, part, sum)
                        const float sum__value = sum_[row];
                        const float sum__value_2 = sum__value + part_;
                        sum_[row] = sum__value_2;
                    }
                }
                // store(sum -> PRODUCT[i*TM:(i+1)*TM])
                float *const PRODUCT_row = PRODUCT + i * TM;
                #pragma omp simd
                for (int64_t lane = 0; lane < std::min<int64_t>(TM, N - i * TM); ++lane) {
                    const float sum__value = sum_[lane];
                    PRODUCT_row[lane] = sum__value;
                }
            }
        }
        // Phase 2 of 3.
        {
            // largest = alloc([1], init=0.0)
            float largest = 0.0f;
            // for j in range(ceil(N, T)):
            for (int64_t j_2 = 0; j_2 < sketch::ceil_div(N, T); ++j_2) {
                float block = -std::numeric_limits<float>::infinity();
                // load(PRODUCT[j*T:(j+1)*T] -> x)
                // abs(x, x)
                // reduce_max(x, 0, block)
                const float *const PRODUCT_row = PRODUCT + j_2 * T;
                #pragma omp simd reduction(propagating_max : block)
                for (int64_t lane = 0; lane < std::min<int64_t>(T, N - j_2 * T); ++lane) {
                    const float x = PRODUCT_row[lane];
                    const float x_abs = sketch::absolute(x);
                    block = sketch::max(block, x_abs);
                }
                // max(largest, block, largest)
                largest = sketch::max(largest, block);
            }
            // max(largest, 1e-30, largest)
            largest = sketch::max(largest, 1e-30f);
            // store(largest -> LARGEST[])
            LARGEST[0] = largest;
        }
        // Phase 3 of 3.
        {
            const int threads = sketch::threads_for(N * 9 + sketch::ceil_div(N, T) * 4);
            #pragma omp parallel for num_threads(threads) schedule(static)
            for (int64_t j_3 = 0; j_3 < sketch::ceil_div(N, T); ++j_3) {
                // load(PRODUCT[j*T:(j+1)*T] -> x)
                // load(LARGEST[] -> scale)
                // div(x, scale, x)
                // store(x -> V[j*T:(j+1)*T])
                const float scale = LARGEST[0];
                const float *const PRODUCT_row = PRODUCT + j_3 * T;
                float *const V_row = V + j_3 * T;
                #pragma omp simd
                for (int64_t lane = 0; lane < std::min<int64_t>(T, N - j_3 * T); ++lane) {
                    const float x_2 = PRODUCT_row[lane];
                    const float x_2_div = x_2 / scale;
                    V_row[lane] = x_2_div;
                }
            }
        }
    }
    return 0;
}
