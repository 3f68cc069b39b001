// softmax: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o softmax.so softmax.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: bits_of, float_of, max, exp, too_large, max_of_floats, plus, largest, lanes,
// enough, aligned, at_once, load_lanes, load_all_lanes, store_lanes, store_all_lanes, over_lanes,
// divisor, combined_in_warp, combined, layout, allow_shared.

extern "C" __global__ void softmax_1(
    const float *__restrict X, float *__restrict Y, int64_t M, int64_t N, int64_t programs,
    int64_t x_exp_place)
{
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t i = program;
        float *const x_exp = reinterpret_cast<float *>(block_memory + x_exp_place);
        float total = 0.0f;
        float largest = -std::numeric_limits<float>::infinity();
        // load(X[i, 0:N] -> x)
        // reduce_max(x, 0, largest)
        const float *const X_row = X + i * N;
        float largest_of_thread = sketch::largest<float>::start;
        sketch::over_lanes<4, 4>(thread * 4, threads * 4, N, sketch::aligned<4>(X_row, x_exp),
            [&](int64_t first, auto left) {
            sketch::lanes<float, 4> x_exp_lanes;
            const auto X_row_lanes = sketch::load_lanes<4>(X_row + first, left);
            #pragma unroll
            for (int part = 0; part < 4; ++part) {
                const float x = X_row_lanes[part];
                largest_of_thread = sketch::largest<float>::combine(largest_of_thread, part < left ?
                    x : sketch::largest<float>::start);
                x_exp_lanes[part] = x;
            }
            sketch::store_lanes(x_exp + first, left, x_exp_lanes);
        });
        largest = sketch::largest<float>::combine(largest,
            sketch::combined<sketch::largest<float>>(largest_of_thread, block_memory));
        // load(X[i, 0:N] -> x)
        // sub(x, largest, x)
        // exp(x, x)
        // reduce_sum(x, 0, total)
        float total_of_thread = sketch::plus<float>::start;
        sketch::over_lanes<4, 4>(thread * 4, threads * 4, N, sketch::aligned<4>(x_exp), [&](int64_t
            first, auto left) {
            auto x_exp_lanes = sketch::load_lanes<4>(x_exp + first, left);
            #pragma unroll
            for (int part = 0; part < 4; ++part) {
                const float x = x_exp_lanes[part];
                const float x_sub = x - largest;
                const float x_exp_value = sketch::exp(x_sub);
                x_exp_lanes[part] = x_exp_value;
                total_of_thread = sketch::plus<float>::combine(total_of_thread, part < left ?
                    x_exp_value : sketch::plus<float>::start);
            }
            sketch::store_lanes(x_exp + first, left, x_exp_lanes);
        });
        total = sketch::plus<float>::combine(total,
            sketch::combined<sketch::plus<float>>(total_of_thread, block_memory));
        // div(x, total, x)
        // store(x -> Y[i, 0:N])
        float *const Y_row = Y + i * N;
        sketch::over_lanes<4, 4>(thread * 4, threads * 4, N, sketch::aligned<4>(x_exp, Y_row), [&,
            divisor = sketch::divisor(total)](int64_t first, auto left) {
            sketch::lanes<float, 4> Y_row_lanes;
            const auto x_exp_lanes = sketch::load_lanes<4>(x_exp + first, left);
            #pragma unroll
            for (int part = 0; part < 4; ++part) {
                const float x_exp_value = x_exp_lanes[part];
                const float x_div = x_exp_value / divisor;
                Y_row_lanes[part] = x_div;
            }
            sketch::store_lanes(Y_row + first, left, Y_row_lanes);
        });
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  M >= 0 and N >= 0
//   2  N <= 8192
//   3  fewer than 2**48 elements in each tensor
extern "C" int64_t softmax(const float *__restrict X, float *__restrict Y, int64_t M, int64_t N)
{
    if (M < 0 || N < 0) {
        return 1;
    }
    if (N > 8192) {
        return 2;
    }
    if (sketch::too_large({M, N})) {
        return 3;
    }
    {
        const int64_t programs = M;
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        sketch::layout shared{256};
        const int64_t x_exp_place = shared.add(sizeof(float), {N});
        sketch::allow_shared(softmax_1, 82176);
        if (blocks > 0) {
            softmax_1<<<static_cast<unsigned>(blocks), 128,
                static_cast<unsigned>(shared.bytes())>>>(X, Y, M, N, programs, x_exp_place);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
