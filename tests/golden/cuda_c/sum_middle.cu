// sum_middle: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o sum_middle.so sum_middle.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, max, too_large, max_of_floats, plus,
// lanes, enough, aligned, at_once, load_lanes, load_all_lanes, store_lanes, store_all_lanes,
// over_lanes, divisor.

extern "C" __global__ void sum_middle_1(
    const float *__restrict X, float *__restrict Y, int64_t B, int64_t M, int64_t N,
    int64_t programs)
{
    constexpr int64_t TM = 16;
    constexpr int64_t TN = 128;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t j = program % sketch::ceil_div(N, TN);
        const int64_t b = program / sketch::ceil_div(N, TN);
        float *const lanes = reinterpret_cast<float *>(block_memory + 256);
        float *const total = reinterpret_cast<float *>(block_memory + 8448);
        for (int64_t row = thread / 32; row < std::min<int64_t>(TM, M); row += threads / 32) {
            // lanes = alloc([TM, TN], init=0.0)
            float *const lanes_row = lanes + row * TN;
            sketch::over_lanes<4, 1>(thread % 32 * 4, 32 * 4, std::min<int64_t>(TN, N - j * TN),
                sketch::aligned<4>(lanes_row), [&](int64_t first, auto left) {
                sketch::lanes<float, 4> lanes_row_lanes;
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    lanes_row_lanes[part] = 0.0f;
                }
                sketch::store_lanes(lanes_row + first, left, lanes_row_lanes);
            });
        }
        // for m in range(ceil(M, TM)):
        for (int64_t m = 0; m < sketch::ceil_div(M, TM); ++m) {
            __syncthreads();
            for (int64_t row = thread / 32; row < std::min<int64_t>(TM, M - m * TM); row += threads
                / 32) {
                // load(X[b, m*TM:(m+1)*TM, j*TN:(j+1)*TN] -> x)
                // add(lanes, x, lanes)
                float *const lanes_row_2 = lanes + row * TN;
                const float *const X_row = X + ((b * M + (m * TM + row)) * N + j * TN);
                sketch::over_lanes<4, 1>(thread % 32 * 4, 32 * 4, std::min<int64_t>(TN, N - j * TN),
                    sketch::aligned<4>(lanes_row_2, X_row), [&](int64_t first, auto left) {
                    auto lanes_row_2_lanes = sketch::load_lanes<4>(lanes_row_2 + first, left);
                    const auto X_row_lanes = sketch::load_lanes<4>(X_row + first, left);
                    #pragma unroll
                    for (int part = 0; part < 4; ++part) {
                        const float lanes_value = lanes_row_2_lanes[part];
                        const float x = X_row_lanes[part];
                        const float lanes_value_2 = lanes_value + x;
                        lanes_row_2_lanes[part] = lanes_value_2;
                    }
                    sketch::store_lanes(lanes_row_2 + first, left, lanes_row_2_lanes);
                });
            }
        }
        for (int64_t lane = thread; lane < std::min<int64_t>(TN, N - j * TN); lane += threads) {
            total[lane] = 0.0f;
        }
        for (int64_t row = 0; row < std::min<int64_t>(TM, M); ++row) {
            // reduce_sum(lanes, 0, total)
            __syncthreads();
            const float *const lanes_row_3 = lanes + row * TN;
            for (int64_t lane = thread; lane < std::min<int64_t>(TN, N - j * TN); lane += threads) {
                const float lanes_value = lanes_row_3[lane];
                total[lane] = sketch::plus<float>::combine(total[lane], lanes_value);
            }
        }
        // store(total -> Y[b, j*TN:(j+1)*TN])
        __syncthreads();
        float *const Y_row = Y + (b * N + j * TN);
        for (int64_t lane = thread; lane < std::min<int64_t>(TN, N - j * TN); lane += threads) {
            const float total_value = total[lane];
            Y_row[lane] = total_value;
        }
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  B >= 0 and M >= 0 and N >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t sum_middle(
    const float *__restrict X, float *__restrict Y, int64_t B, int64_t M, int64_t N)
{
    constexpr int64_t TN = 128;

    if (B < 0 || M < 0 || N < 0) {
        return 1;
    }
    if (sketch::too_large({B, M, N})) {
        return 2;
    }
    {
        const int64_t programs = B * sketch::ceil_div(N, TN);
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        if (blocks > 0) {
            sum_middle_1<<<static_cast<unsigned>(blocks), 128, 8960>>>(X, Y, B, M, N, programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
