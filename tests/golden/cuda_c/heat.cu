// heat: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o heat.so heat.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, max, too_large, max_of_floats, lanes,
// enough, aligned, at_once, load_lanes, load_all_lanes, store_lanes, store_all_lanes, over_lanes,
// divisor, layout, arena.

extern "C" __global__ void heat_1(
    float *__restrict U, float *__restrict NEXT, int64_t M, int64_t N, double rate,
    int64_t programs)
{
    constexpr int64_t TM = 8;
    constexpr int64_t TN = 128;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t j = program % sketch::ceil_div(N, TN);
        const int64_t i = program / sketch::ceil_div(N, TN);
        for (int64_t row = thread / 32; row < std::min<int64_t>(TM, M - i * TM); row += threads /
            32) {
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
            for (int64_t lane = thread % 32; lane < std::min<int64_t>(TN, N - j * TN); lane += 32) {
                const float here = U_row[lane];
                const float around = here * -4.0f;
                const float side = (1 - TM * i <= row && row < M - (i * TM - 1) && lane < N - j *
                    TN) ? U_row_2[lane] : 0.0f;
                const float around_add = around + side;
                const float side_next = (row < M - (i * TM + 1) && lane < N - j * TN) ?
                    U_row_3[lane] : 0.0f;
                const float around_add_2 = around_add + side_next;
                const float side_next_2 = (row < M - i * TM && 1 - TN * j <= lane && lane < N - (j *
                    TN - 1)) ? U_row_4[lane] : 0.0f;
                const float around_add_3 = around_add_2 + side_next_2;
                const float side_next_3 = (row < M - i * TM && lane < N - (j * TN + 1)) ?
                    U_row_5[lane] : 0.0f;
                const float around_add_4 = around_add_3 + side_next_3;
                const float here_fma = around_add_4 * static_cast<float>(rate) + here;
                NEXT_row[lane] = here_fma;
            }
        }
        __syncthreads();
    }
}

extern "C" __global__ void heat_2(
    float *__restrict U, float *__restrict NEXT, int64_t M, int64_t N, int64_t programs)
{
    constexpr int64_t TM = 8;
    constexpr int64_t TN = 128;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t j_2 = program % sketch::ceil_div(N, TN);
        const int64_t i_2 = program / sketch::ceil_div(N, TN);
        for (int64_t row = thread / 32; row < std::min<int64_t>(TM, M - i_2 * TM); row += threads /
            32) {
            // load(NEXT[i*TM:(i+1)*TM, j*TN:(j+1)*TN] -> next)
            // store(next -> U[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
            const float *const NEXT_row = NEXT + ((i_2 * TM + row) * N + j_2 * TN);
            float *const U_row = U + ((i_2 * TM + row) * N + j_2 * TN);
            sketch::over_lanes<4, 1>(thread % 32 * 4, 32 * 4, std::min<int64_t>(TN, N - j_2 * TN),
                sketch::aligned<4>(NEXT_row, U_row), [&](int64_t first, auto left) {
                sketch::lanes<float, 4> U_row_lanes;
                const auto NEXT_row_lanes = sketch::load_lanes<4>(NEXT_row + first, left);
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    const float next = NEXT_row_lanes[part];
                    U_row_lanes[part] = next;
                }
                sketch::store_lanes(U_row + first, left, U_row_lanes);
            });
        }
        __syncthreads();
    }
}

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  M >= 0 and N >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t heat(float *__restrict U, int64_t M, int64_t N, int64_t steps, double rate)
{
    constexpr int64_t TM = 8;
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
            const int64_t programs = sketch::ceil_div(M, TM) * sketch::ceil_div(N, TN);
            const int64_t blocks = std::min<int64_t>(programs, 65536);
            if (blocks > 0) {
                heat_1<<<static_cast<unsigned>(blocks), 128, 256>>>(U, NEXT, M, N, rate, programs);
            }
            if (cudaGetLastError() != cudaSuccess) {
                return -2;
            }
        }
        // Phase 2 of 2.
        {
            const int64_t programs = sketch::ceil_div(M, TM) * sketch::ceil_div(N, TN);
            const int64_t blocks = std::min<int64_t>(programs, 65536);
            if (blocks > 0) {
                heat_2<<<static_cast<unsigned>(blocks), 128, 256>>>(U, NEXT, M, N, programs);
            }
            if (cudaGetLastError() != cudaSuccess) {
                return -2;
            }
        }
    }
    return 0;
}
