// concat_columns: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o concat_columns.so concat_columns.cu

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
// divisor.

extern "C" __global__ void concat_columns_1(
    const float *__restrict A, const float *__restrict B, float *__restrict Y, int64_t M,
    int64_t N, int64_t K, int64_t programs)
{
    constexpr int64_t T = 1024;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t i = program;
        // for j in range(ceil(N, T)):
        for (int64_t j = 0; j < sketch::ceil_div(N, T); ++j) {
            // load(A[i, j*T:(j+1)*T] -> a)
            // store(a -> Y[i, j*T:min((j+1)*T, N)])
            __syncthreads();
            const float *const A_row = A + (i * N + j * T);
            float *const Y_row = Y + (i * (N + K) + j * T);
            sketch::over_lanes<4, 2>(thread * 4, threads * 4, std::min<int64_t>(T, N - j * T),
                sketch::aligned<4>(A_row, Y_row), [&](int64_t first, auto left) {
                sketch::lanes<float, 4> Y_row_lanes;
                const auto A_row_lanes = sketch::load_lanes<4>(A_row + first, left);
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    const float a = A_row_lanes[part];
                    Y_row_lanes[part] = a;
                }
                sketch::store_lanes(Y_row + first, left, Y_row_lanes);
            });
        }
        // for j in range(ceil(K, T)):
        for (int64_t j_2 = 0; j_2 < sketch::ceil_div(K, T); ++j_2) {
            // load(B[i, j*T:(j+1)*T] -> b)
            // store(b -> Y[i, N+j*T:N+(j+1)*T])
            __syncthreads();
            const float *const B_row = B + (i * K + j_2 * T);
            float *const Y_row_2 = Y + (i * (N + K) + N + j_2 * T);
            sketch::over_lanes<4, 2>(thread * 4, threads * 4, std::min<int64_t>(T, K - j_2 * T),
                sketch::aligned<4>(B_row, Y_row_2), [&](int64_t first, auto left) {
                sketch::lanes<float, 4> Y_row_2_lanes;
                const auto B_row_lanes = sketch::load_lanes<4>(B_row + first, left);
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    const float b = B_row_lanes[part];
                    Y_row_2_lanes[part] = b;
                }
                sketch::store_lanes(Y_row_2 + first, left, Y_row_2_lanes);
            });
        }
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  M >= 0 and N >= 0 and K >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t concat_columns(
    const float *__restrict A, const float *__restrict B, float *__restrict Y, int64_t M, int64_t
    N, int64_t K)
{
    if (M < 0 || N < 0 || K < 0) {
        return 1;
    }
    if (sketch::too_large({M, N}) || sketch::too_large({M, K})) {
        return 2;
    }
    {
        const int64_t programs = M;
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        if (blocks > 0) {
            concat_columns_1<<<static_cast<unsigned>(blocks), 128, 256>>>(A, B, Y, M, N, K,
                programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
