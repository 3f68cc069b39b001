// split_k_matmul: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o split_k_matmul.so split_k_matmul.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, max, min, natural, too_large,
// max_of_floats, min_of_floats, lanes, divisor, matrix, widened, atomic_replace, added,
// atomic_add, window, factors, factors_from, sums_in, product_steps, by_threads, multiply_blocks,
// multiply_along, filled, fill.

extern "C" __global__ void split_k_matmul_1(
    const float *__restrict A, const float *__restrict B, float *__restrict C, int64_t M,
    int64_t N, int64_t K, int64_t programs)
{
    constexpr int64_t PART = 512;
    constexpr int64_t TM = 64;
    constexpr int64_t TN = 64;
    constexpr int64_t TK = 32;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t p = program % sketch::ceil_div(K, PART);
        const int64_t j = program / sketch::ceil_div(K, PART) % sketch::ceil_div(N, TN);
        const int64_t i = program / sketch::ceil_div(K, PART) / sketch::ceil_div(N, TN);
        float *const c = reinterpret_cast<float *>(block_memory + 256);
        // for k in range(p*PART, min((p+1)*PART, K), TK):
        // load(A[i*TM:(i+1)*TM, k:min(k + TK, (p+1)*PART)] -> a)
        // load(B[k:min(k + TK, (p+1)*PART), j*TN:(j+1)*TN] -> b)
        // gemm(a, b, c)
        sketch::multiply_along<sketch::by_threads<4, 4, 8, true, false>, false>(
            sketch::ceil_div(std::min<int64_t>((p + 1) * PART, K) - p * PART, TK),
            [&]([[maybe_unused]] int64_t k_turn) {
                const int64_t k = p * PART + k_turn * TK;
                return sketch::factors<float, float>{
                    std::min<int64_t>(TM, M - i * TM), std::min<int64_t>(TN, N - j * TN),
                        std::min<int64_t>(TK, K - k),
                    sketch::matrix<const float>{A + K * TM * i + k, K, 1},
                    sketch::matrix<const float>{B + N * k + TN * j, N, 1}};
            },
            sketch::sums_in<float, true>{sketch::matrix<float>{c, TN, 1}}, reinterpret_cast<char
                *>(c));
        for (int64_t row = 0; row < std::min<int64_t>(TM, M - i * TM); ++row) {
            // atomic_add(c -> C[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
            __syncthreads();
            for (int64_t lane = thread; lane < std::min<int64_t>(TN, N - j * TN); lane += threads) {
                const float c_value = c[row * TN + lane];
                sketch::atomic_add(&C[(i * TM + row) * N + (j * TN + lane)], c_value);
            }
        }
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  M >= 0 and N >= 0 and K >= 0
//   2  fewer than 2**48 elements in each tensor
//   3  K*M*N < 2**63 - 2**51
extern "C" int64_t split_k_matmul(
    const float *__restrict A, const float *__restrict B, float *__restrict C, int64_t M, int64_t
    N, int64_t K)
{
    constexpr int64_t PART = 512;
    constexpr int64_t TM = 64;
    constexpr int64_t TN = 64;

    if (M < 0 || N < 0 || K < 0) {
        return 1;
    }
    if (sketch::too_large({M, K}) || sketch::too_large({K, N}) || sketch::too_large({M, N})) {
        return 2;
    }
    if ((sketch::natural(K) * M * N).reaches(UINT64_C(9221120237041090560))) {
        return 3;
    }
    // C starts as 0.0.
    if (!sketch::fill<float>(C, M * N, 0.0f)) {
        return -2;
    }
    {
        const int64_t programs = sketch::ceil_div(M, TM) * sketch::ceil_div(N, TN) *
            sketch::ceil_div(K, PART);
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        if (blocks > 0) {
            split_k_matmul_1<<<static_cast<unsigned>(blocks), 128, 16640>>>(A, B, C, M, N, K,
                programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
