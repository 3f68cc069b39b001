// heat: a C++ kernel for cpu, made from a sketch.

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

// The library: arena, least_shared_work, threads_for, floor_div, ceil_div, max, too_large.

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  M >= 0 and N >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t heat(float *__restrict U, int64_t M, int64_t N, int64_t steps, double rate)
{
    constexpr int64_t TM = 32;
    constexpr int64_t TN = 128;

    if (M < 0 || N < 0) {
        return 1;
    }
    if (sketch::too_large({M, N})) {
        return 2;
    }
    // Memory shared by the phases.
    sketch::arena workspace;
    const int64_t NEXT_place = workspace.add(sizeof(float), {M, N});
    if (!workspace.allocate(1)) {
        return -1;
    }
    float *const NEXT = workspace.at<float>(NEXT_place, 0);
    // for step in range(steps):
    for (int64_t step = 0; step < steps; ++step) {
        // Phase 1 of 2.
        {
            const int threads = sketch::threads_for(N * M * 30);
            #pragma omp parallel for num_threads(threads) collapse(2) schedule(static)
            for (int64_t i = 0; i < sketch::ceil_div(M, TM); ++i) {
                for (int64_t j = 0; j < sketch::ceil_div(N, TN); ++j) {
                    for (int64_t row = 0; row < std::min<int64_t>(TM, M - i * TM); ++row) {
                        // load(U[i*TM:(i+1)*TM, j*TN:(j+1)*TN] -> here)
                        // mul(here, -4, around)
                        // load(U[i*TM-1:(i+1)*TM-1, j*TN:(j+1)*TN] -> side, pad=0)
                        // add(around, side, around)
                        // load(U[i*TM+1:(i+1)*TM+1, j*TN:(j+1)*TN] -> side, pad=0)
                        // load(U[i*TM:(i+1)*TM, j*TN-1:(j+1)*TN-1] -> side, pad=0)
                        // load(U[i*TM:(i+1)*TM, j*TN+1:(j+1)*TN+1] -> side, pad=0)
                        // fma(around, rate, here, here)
                        // store(here -> NEXT[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
                        const float *const U_row = U + ((i * TM + row) * N + j * TN);
                        const float *const U_row_2 = U + ((i * TM - 1 + row) * N + j * TN);
                        const float *const U_row_3 = U + ((i * TM + 1 + row) * N + j * TN);
                        const float *const U_row_4 = U + ((i * TM + row) * N + (j * TN - 1));
                        const float *const U_row_5 = U + ((i * TM + row) * N + j * TN + 1);
                        float *const NEXT_row = NEXT + ((i * TM + row) * N + j * TN);
                        #pragma omp simd
                        for (int64_t lane = 0; lane < std::min<int64_t>(TN, N - j * TN); ++lane) {
                            const float here = U_row[lane];
                            const float around = here * -4.0f;
                            const float side = (1 - TM * i <= row && row < M - (i * TM - 1) && lane
                                < N - j * TN) ? U_row_2[lane] : 0.0f;
                            const float around_add = around + side;
                            const float side_next = (row < M - (i * TM + 1) && lane < N - j * TN) ?
                                U_row_3[lane] : 0.0f;
                            const float around_add_2 = around_add + side_next;
                            const float side_next_2 = (row < M - i * TM && 1 - TN * j <= lane &&
                                lane < N - (j * TN - 1)) ? U_row_4[lane] : 0.0f;
                            const float around_add_3 = around_add_2 + side_next_2;
                            const float side_next_3 = (row < M - i * TM && lane < N - (j * TN + 1))
                                ? U_row_5[lane] : 0.0f;
                            const float around_add_4 = around_add_3 + side_next_3;
                            const float here_fma = around_add_4 * static_cast<float>(rate) + here;
                            NEXT_row[lane] = here_fma;
                        }
                    }
                }
            }
        }
        // Phase 2 of 2.
        {
            const int threads = sketch::threads_for(N * M * 8);
            #pragma omp parallel for num_threads(threads) collapse(2) schedule(static)
            for (int64_t i_2 = 0; i_2 < sketch::ceil_div(M, TM); ++i_2) {
                for (int64_t j_2 = 0; j_2 < sketch::ceil_div(N, TN); ++j_2) {
                    for (int64_t row = 0; row < std::min<int64_t>(TM, M - i_2 * TM); ++row) {
                        // load(NEXT[i*TM:(i+1)*TM, j*TN:(j+1)*TN] -> next)
                        // store(next -> U[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
                        const float *const NEXT_row = NEXT + ((i_2 * TM + row) * N + j_2 * TN);
                        float *const U_row = U + ((i_2 * TM + row) * N + j_2 * TN);
                        #pragma omp simd
                        for (int64_t lane = 0; lane < std::min<int64_t>(TN, N - j_2 * TN); ++lane) {
                            const float next = NEXT_row[lane];
                            U_row[lane] = next;
                        }
                    }
                }
            }
        }
    }
    return 0;
}
