// matmul_blocked: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o matmul_blocked.so matmul_blocked.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, max, min, too_large, max_of_floats,
// min_of_floats, lanes, enough, aligned, at_once, store_lanes, store_all_lanes, divisor, matrix,
// widened, window, factors, factors_from, sums_used, sums_for, product_steps, by_threads,
// multiply_blocks, multiply_along.

extern "C" __global__ void matmul_blocked_1(
    const float *__restrict A, const float *__restrict B, float *__restrict C, int64_t M,
    int64_t N, int64_t K, int64_t programs)
{
    constexpr int64_t TM = 128;
    constexpr int64_t TN = 128;
    constexpr int64_t TK = 32;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t j = program % sketch::ceil_div(N, TN);
        const int64_t i = program / sketch::ceil_div(N, TN);
        // for k in range(ceil(K, TK)):
        // load(A[i*TM:(i+1)*TM, k*TK:(k+1)*TK] -> a)
        // load(B[k*TK:(k+1)*TK, j*TN:(j+1)*TN] -> b)
        // gemm(a, b, c)
        sketch::multiply_along<sketch::by_threads<4, 8, 16, true, false>, false>(
            sketch::ceil_div(K, TK),
            [&]([[maybe_unused]] int64_t k) {
                return sketch::factors<float, float>{
                    std::min<int64_t>(TM, M - i * TM), std::min<int64_t>(TN, N - j * TN),
                        std::min<int64_t>(TK, K - k * TK),
                    sketch::matrix<const float>{A + K * TM * i + TK * k, K, 1},
                    sketch::matrix<const float>{B + N * TK * k + TN * j, N, 1}};
            },
            sketch::sums_for<float, 4>(sketch::aligned<4>(C + ((i * TM + 0) * N + j * TN), C + ((i *
                TM + 1) * N + j * TN)),
                [&]([[maybe_unused]] int64_t row, int64_t first, auto left, auto c_row_2_lanes) {
                    // store(c -> C[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
                    float *const C_row = C + ((i * TM + row) * N + j * TN);
                    sketch::lanes<float, c_row_2_lanes.size> C_row_lanes;
                    #pragma unroll
                    for (int part = 0; part < c_row_2_lanes.size; ++part) {
                        const float c_value = c_row_2_lanes[part];
                        C_row_lanes[part] = c_value;
                    }
                    sketch::store_lanes(C_row + first, left, C_row_lanes);
            }), block_memory + 256);
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  M >= 0 and N >= 0 and K >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t matmul_blocked(
    const float *__restrict A, const float *__restrict B, float *__restrict C, int64_t M, int64_t
    N, int64_t K)
{
    constexpr int64_t TM = 128;
    constexpr int64_t TN = 128;

    if (M < 0 || N < 0 || K < 0) {
        return 1;
    }
    if (sketch::too_large({M, K}) || sketch::too_large({K, N}) || sketch::too_large({M, N})) {
        return 2;
    }
    {
        const int64_t programs = sketch::ceil_div(M, TM) * sketch::ceil_div(N, TN);
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        if (blocks > 0) {
            matmul_blocked_1<<<static_cast<unsigned>(blocks), 128, 16640>>>(A, B, C, M, N, K,
                programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
