// row_products: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o row_products.so row_products.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, absolute, max, isinf, too_large,
// max_of_floats, times, either, lanes, enough, aligned, at_once, load_lanes, load_all_lanes,
// over_lanes, divisor, combined_in_warp.

extern "C" __global__ void row_products_1(
    const float *__restrict X, float *__restrict PRODUCT, bool *__restrict INFINITE, int64_t M,
    int64_t N, int64_t programs)
{
    constexpr int64_t TM = 16;
    constexpr int64_t TN = 128;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t i = program;
        bool *const infinite = reinterpret_cast<bool *>(block_memory + 256);
        float *const product = reinterpret_cast<float *>(block_memory + 384);
        // infinite = alloc([TM], init=False)
        // product = alloc([TM], init=1.0)
        for (int64_t lane = thread; lane < std::min<int64_t>(TM, M - i * TM); lane += threads) {
            infinite[lane] = false;
            product[lane] = 1.0f;
        }
        // for j in range(ceil(N, TN)):
        for (int64_t j = 0; j < sketch::ceil_div(N, TN); ++j) {
            __syncthreads();
            for (int64_t row = thread / 32; row < std::min<int64_t>(TM, M - i * TM); row += threads
                / 32) {
                bool found = false;
                double part_total = 1.0;
                // load(X[i*TM:(i+1)*TM, j*TN:(j+1)*TN] -> x)
                // reduce_prod(x, 1, part)
                // isinf(x, marked)
                // reduce_any(marked, 1, found)
                const float *const X_row = X + ((i * TM + row) * N + j * TN);
                double part_total_of_thread = sketch::times<double>::start;
                bool found_of_thread = sketch::either<bool>::start;
                sketch::over_lanes<4, 1>(thread % 32 * 4, 32 * 4, std::min<int64_t>(TN, N - j * TN),
                    sketch::aligned<4>(X_row), [&](int64_t first, auto left) {
                    const auto X_row_lanes = sketch::load_lanes<4>(X_row + first, left);
                    #pragma unroll
                    for (int part = 0; part < 4; ++part) {
                        const float x = X_row_lanes[part];
                        part_total_of_thread = sketch::times<double>::combine(part_total_of_thread,
                            part < left ? static_cast<double>(x) : sketch::times<double>::start);
                        const bool marked = sketch::isinf(x);
                        found_of_thread = sketch::either<bool>::combine(found_of_thread, part < left
                            ? marked : sketch::either<bool>::start);
                    }
                });
                part_total = sketch::times<double>::combine(part_total,
                    sketch::combined_in_warp<sketch::times<double>>(part_total_of_thread));
                found = sketch::either<bool>::combine(found,
                    sketch::combined_in_warp<sketch::either<bool>>(found_of_thread));
                const float part_ = static_cast<float>(part_total);
                // mul(product, part, product)
                const float product_value = product[row];
                const float product_value_2 = product_value * part_;
                __syncwarp();
                if (thread % 32 == 0) {
                    product[row] = product_value_2;
                }
                // logical_or(infinite, found, infinite)
                const bool infinite_value = infinite[row];
                const bool infinite_value_2 = infinite_value || found;
                __syncwarp();
                if (thread % 32 == 0) {
                    infinite[row] = infinite_value_2;
                }
            }
        }
        // store(product -> PRODUCT[i*TM:(i+1)*TM])
        // store(infinite -> INFINITE[i*TM:(i+1)*TM])
        __syncthreads();
        float *const PRODUCT_row = PRODUCT + i * TM;
        bool *const INFINITE_row = INFINITE + i * TM;
        for (int64_t lane = thread; lane < std::min<int64_t>(TM, M - i * TM); lane += threads) {
            const float product_value = product[lane];
            PRODUCT_row[lane] = product_value;
            const bool infinite_value = infinite[lane];
            INFINITE_row[lane] = infinite_value;
        }
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  M >= 0 and N >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t row_products(
    const float *__restrict X, float *__restrict PRODUCT, bool *__restrict INFINITE, int64_t M,
    int64_t N)
{
    constexpr int64_t TM = 16;

    if (M < 0 || N < 0) {
        return 1;
    }
    if (sketch::too_large({M, N})) {
        return 2;
    }
    {
        const int64_t programs = sketch::ceil_div(M, TM);
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        if (blocks > 0) {
            row_products_1<<<static_cast<unsigned>(blocks), 128, 512>>>(X, PRODUCT, INFINITE, M, N,
                programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
