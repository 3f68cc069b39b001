// gram: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o gram.so gram.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, absolute, max, min, isfinite, tile,
// too_large, max_of_floats, min_of_floats, lanes, enough, aligned, at_once, store_lanes,
// store_all_lanes, divisor, matrix, window, factors, factors_from, sums_used, sums_for, gathered,
// sums_in_tiles, in_tiles, product_steps, shared_place, place_of, differing, copy_chunk,
// commit_chunks, wait_for_chunks, load_fragments, seen_bits, leading_bits, multiply_leading,
// fragment, halves, in_tf32, strides, staged, stages_of, fragments_of, by_warps, multiply_blocks,
// multiply_along, allow_shared.

extern "C" __global__ void gram_1(
    const float *__restrict X, float *__restrict G, int64_t M, int64_t N, int64_t programs)
{
    constexpr int64_t TN = 64;
    constexpr int64_t TK = 32;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t j = program % sketch::ceil_div(N, TN);
        const int64_t i = program / sketch::ceil_div(N, TN);
        // for k in range(ceil(M, TK)):
        // load(X[k*TK:(k+1)*TK, i*TN:(i+1)*TN] -> left)
        // load(X[k*TK:(k+1)*TK, j*TN:(j+1)*TN] -> right)
        // gemm(left, right, g, trans_a=True, precision="tf32x3")
        sketch::multiply_along<sketch::by_warps<4, 2, 2, 2, 32, 3, false, false, sketch::in_tf32>,
            true>(
            sketch::ceil_div(M, TK),
            [&]([[maybe_unused]] int64_t k) {
                return sketch::factors<float, float>{
                    std::min<int64_t>(TN, N - i * TN), std::min<int64_t>(TN, N - j * TN),
                        std::min<int64_t>(TK, M - k * TK),
                    sketch::matrix<const float>{X + N * TK * k + TN * i, 1, N},
                    sketch::matrix<const float>{X + N * TK * k + TN * j, N, 1}};
            },
            sketch::sums_for<float, 4>(sketch::aligned<4>(G + ((i * TN + 0) * N + j * TN), G + ((i *
                TN + 1) * N + j * TN)),
                [&]([[maybe_unused]] int64_t row, int64_t first, auto left, auto g_row_2_lanes) {
                    // store(g -> G[i*TN:(i+1)*TN, j*TN:(j+1)*TN])
                    float *const G_row = G + ((i * TN + row) * N + j * TN);
                    sketch::lanes<float, g_row_2_lanes.size> G_row_lanes;
                    #pragma unroll
                    for (int part = 0; part < g_row_2_lanes.size; ++part) {
                        const float g_value = g_row_2_lanes[part];
                        G_row_lanes[part] = g_value;
                    }
                    sketch::store_lanes(G_row + first, left, G_row_lanes);
            }), block_memory + 256);
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  M >= 0 and N >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t gram(const float *__restrict X, float *__restrict G, int64_t M, int64_t N)
{
    constexpr int64_t TN = 64;

    if (M < 0 || N < 0) {
        return 1;
    }
    if (sketch::too_large({M, N}) || sketch::too_large({N, N})) {
        return 2;
    }
    {
        const int64_t programs = sketch::ceil_div(N, TN) * sketch::ceil_div(N, TN);
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        sketch::allow_shared(gram_1, 49408);
        if (blocks > 0) {
            gram_1<<<static_cast<unsigned>(blocks), 128, 49408>>>(X, G, M, N, programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
