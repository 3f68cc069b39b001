// power_iteration: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o power_iteration.so power_iteration.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, absolute, max, too_large, max_of_floats,
// plus, largest, lanes, enough, aligned, at_once, load_lanes, load_all_lanes, store_lanes,
// store_all_lanes, over_lanes, divisor, combined_in_warp, combined, layout, arena, fetched.

extern "C" __global__ void power_iteration_1(
    const float *__restrict A, float *__restrict V, float *__restrict PRODUCT, int64_t N,
    int64_t programs)
{
    constexpr int64_t TM = 16;
    constexpr int64_t TN = 128;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t i = program;
        float *const sum_ = reinterpret_cast<float *>(block_memory + 256);
        // sum_ = alloc([TM], init=0.0)
        for (int64_t lane = thread; lane < std::min<int64_t>(TM, N - i * TM); lane += threads) {
            sum_[lane] = 0.0f;
        }
        // for j in range(ceil(N, TN)):
        for (int64_t j = 0; j < sketch::ceil_div(N, TN); ++j) {
            __syncthreads();
            for (int64_t row = thread / 32; row < std::min<int64_t>(TM, N - i * TM); row += threads
                / 32) {
                float part_ = 0.0f;
                // load(A[i*TM:(i+1)*TM, j*TN:(j+1)*TN] -> a)
                // load(V[j*TN:(j+1)*TN] -> v)
                // mul(a, v, a)
                // reduce_sum(a, 1, part)
                const float *const A_row = A + ((i * TM + row) * N + j * TN);
                const float *const V_row = V + j * TN;
                float part__of_thread = sketch::plus<float>::start;
                sketch::over_lanes<4, 1>(thread % 32 * 4, 32 * 4, std::min<int64_t>(TN, N - j * TN),
                    sketch::aligned<4>(A_row, V_row), [&](int64_t first, auto left) {
                    const auto A_row_lanes = sketch::load_lanes<4>(A_row + first, left);
                    const auto V_row_lanes = sketch::load_lanes<4>(V_row + first, left);
                    #pragma unroll
                    for (int part = 0; part < 4; ++part) {
                        const float a = A_row_lanes[part];
                        const float v = V_row_lanes[part];
                        const float a_mul = a * v;
                        part__of_thread = sketch::plus<float>::combine(part__of_thread, part < left
                            ? a_mul : sketch::plus<float>::start);
                    }
                });
                part_ = sketch::plus<float>::combine(part_,
                    sketch::combined_in_warp<sketch::plus<float>>(part__of_thread));
                // add(sum, part, sum)
                const float sum__value = sum_[row];
                const float sum__value_2 = sum__value + part_;
                __syncwarp();
                if (thread % 32 == 0) {
                    sum_[row] = sum__value_2;
                }
            }
        }
        // store(sum -> PRODUCT[i*TM:(i+1)*TM])
        __syncthreads();
        float *const PRODUCT_row = PRODUCT + i * TM;
        for (int64_t lane = thread; lane < std::min<int64_t>(TM, N - i * TM); lane += threads) {
            const float sum__value = sum_[lane];
            PRODUCT_row[lane] = sum__value;
        }
        __syncthreads();
    }
}

extern "C" __global__ void power_iteration_2(
    float *__restrict PRODUCT, float *__restrict LARGEST, int64_t N, int64_t programs)
{
    constexpr int64_t T = 512;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        // largest = alloc([1], init=0.0)
        float largest = 0.0f;
        // for j in range(ceil(N, T)):
        for (int64_t j_2 = 0; j_2 < sketch::ceil_div(N, T); ++j_2) {
            float block = -std::numeric_limits<float>::infinity();
            // load(PRODUCT[j*T:(j+1)*T] -> x)
            // abs(x, x)
            // reduce_max(x, 0, block)
            const float *const PRODUCT_row = PRODUCT + j_2 * T;
            float block_of_thread = sketch::largest<float>::start;
            sketch::over_lanes<4, 1>(thread * 4, threads * 4, std::min<int64_t>(T, N - j_2 * T),
                sketch::aligned<4>(PRODUCT_row), [&](int64_t first, auto left) {
                const auto PRODUCT_row_lanes = sketch::load_lanes<4>(PRODUCT_row + first, left);
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    const float x = PRODUCT_row_lanes[part];
                    const float x_abs = sketch::absolute(x);
                    block_of_thread = sketch::largest<float>::combine(block_of_thread, part < left ?
                        x_abs : sketch::largest<float>::start);
                }
            });
            block = sketch::largest<float>::combine(block,
                sketch::combined<sketch::largest<float>>(block_of_thread, block_memory));
            // max(largest, block, largest)
            largest = sketch::max(largest, block);
        }
        // max(largest, 1e-30, largest)
        largest = sketch::max(largest, 1e-30f);
        // store(largest -> LARGEST[])
        if (thread == 0) {
            LARGEST[0] = largest;
        }
        __syncthreads();
    }
}

extern "C" __global__ void power_iteration_3(
    float *__restrict V, float *__restrict PRODUCT, float *__restrict LARGEST, int64_t N,
    int64_t programs)
{
    constexpr int64_t T = 512;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t j_3 = program;
        // load(PRODUCT[j*T:(j+1)*T] -> x)
        // load(LARGEST[] -> scale)
        // div(x, scale, x)
        // store(x -> V[j*T:(j+1)*T])
        const float scale = LARGEST[0];
        const float *const PRODUCT_row = PRODUCT + j_3 * T;
        float *const V_row = V + j_3 * T;
        sketch::over_lanes<4, 1>(thread * 4, threads * 4, std::min<int64_t>(T, N - j_3 * T),
            sketch::aligned<4>(PRODUCT_row, V_row), [&, divisor = sketch::divisor(scale)](int64_t
            first, auto left) {
            sketch::lanes<float, 4> V_row_lanes;
            const auto PRODUCT_row_lanes = sketch::load_lanes<4>(PRODUCT_row + first, left);
            #pragma unroll
            for (int part = 0; part < 4; ++part) {
                const float x_2 = PRODUCT_row_lanes[part];
                const float x_2_div = x_2 / divisor;
                V_row_lanes[part] = x_2_div;
            }
            sketch::store_lanes(V_row + first, left, V_row_lanes);
        });
        __syncthreads();
    }
}

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  N >= 1
//   2  N >= 0
//   3  fewer than 2**48 elements in each tensor
extern "C" int64_t power_iteration(
    const float *__restrict A, float *__restrict V, const int64_t *__restrict STEPS, int64_t N)
{
    constexpr int64_t TM = 16;
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
    [[maybe_unused]] const int64_t steps = sketch::fetched(STEPS + 0);
    // for step in range(steps):
    for (int64_t step = 0; step < steps; ++step) {
        // Phase 1 of 3.
        {
            const int64_t programs = sketch::ceil_div(N, TM);
            const int64_t blocks = std::min<int64_t>(programs, 65536);
            if (blocks > 0) {
                power_iteration_1<<<static_cast<unsigned>(blocks), 128, 384>>>(A, V, PRODUCT, N,
                    programs);
            }
            if (cudaGetLastError() != cudaSuccess) {
                return -2;
            }
        }
        // Phase 2 of 3.
        {
            const int64_t programs = 1;
            const int64_t blocks = std::min<int64_t>(programs, 65536);
            if (blocks > 0) {
                power_iteration_2<<<static_cast<unsigned>(blocks), 128, 256>>>(PRODUCT, LARGEST, N,
                    programs);
            }
            if (cudaGetLastError() != cudaSuccess) {
                return -2;
            }
        }
        // Phase 3 of 3.
        {
            const int64_t programs = sketch::ceil_div(N, T);
            const int64_t blocks = std::min<int64_t>(programs, 65536);
            if (blocks > 0) {
                power_iteration_3<<<static_cast<unsigned>(blocks), 128, 256>>>(V, PRODUCT, LARGEST,
                    N, programs);
            }
            if (cudaGetLastError() != cudaSuccess) {
                return -2;
            }
        }
    }
    return 0;
}
