// unscale_gradients: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o unscale_gradients.so unscale_gradients.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, odd, bfloat16, bfloat16_bits, to_bfloat16,
// to_bfloat16_double, bfloat16_to_float, absolute, max, isfinite, too_large, max_of_floats, both,
// lanes, enough, aligned, at_once, load_lanes, load_all_lanes, store_lanes, store_all_lanes,
// over_lanes, divisor, combined_in_warp.

extern "C" __global__ void unscale_gradients_1(
    const sketch::bfloat16 *__restrict GRADIENT, const float *__restrict SCALE,
    sketch::bfloat16 *__restrict Y, bool *__restrict FINITE, int64_t M, int64_t N,
    int64_t SCALE_step_0, int64_t programs)
{
    constexpr int64_t TM = 16;
    constexpr int64_t TN = 128;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t i = program;
        bool *const finite = reinterpret_cast<bool *>(block_memory + 256);
        // finite = alloc([TM], init=True)
        for (int64_t lane = thread; lane < std::min<int64_t>(TM, M - i * TM); lane += threads) {
            finite[lane] = true;
        }
        // for j in range(ceil(N, TN)):
        for (int64_t j = 0; j < sketch::ceil_div(N, TN); ++j) {
            __syncthreads();
            for (int64_t row_ = thread / 32; row_ < std::min<int64_t>(TM, M - i * TM); row_ +=
                threads / 32) {
                bool row = true;
                // load(GRADIENT[i*TM:(i+1)*TM, j*TN:(j+1)*TN] -> gradient)
                // isfinite(gradient, ok)
                // reduce_all(ok, 1, row)
                // load(SCALE[i*TM:(i+1)*TM, 0:1] -> scale)
                // div(gradient, scale, y)
                // store(y -> Y[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
                const float scale = SCALE[(i * TM + row_) * SCALE_step_0];
                const sketch::bfloat16 *const GRADIENT_row = GRADIENT + ((i * TM + row_) * N + j *
                    TN);
                sketch::bfloat16 *const Y_row = Y + ((i * TM + row_) * N + j * TN);
                bool row_of_thread = sketch::both<bool>::start;
                sketch::over_lanes<4, 1>(thread % 32 * 4, 32 * 4, std::min<int64_t>(TN, N - j * TN),
                    sketch::aligned<4>(GRADIENT_row, Y_row), [&, divisor =
                    sketch::divisor(scale)](int64_t first, auto left) {
                    sketch::lanes<sketch::bfloat16, 4> Y_row_lanes;
                    const auto GRADIENT_row_lanes = sketch::load_lanes<4>(GRADIENT_row + first,
                        left);
                    #pragma unroll
                    for (int part = 0; part < 4; ++part) {
                        const sketch::bfloat16 gradient = GRADIENT_row_lanes[part];
                        const bool ok = sketch::isfinite(sketch::to_float(gradient));
                        row_of_thread = sketch::both<bool>::combine(row_of_thread, part < left ? ok
                            : sketch::both<bool>::start);
                        const float y = sketch::to_float(gradient) / divisor;
                        Y_row_lanes[part] = sketch::to_bfloat16(y);
                    }
                    sketch::store_lanes(Y_row + first, left, Y_row_lanes);
                });
                row = sketch::both<bool>::combine(row,
                    sketch::combined_in_warp<sketch::both<bool>>(row_of_thread));
                // logical_and(finite, row, finite)
                const bool finite_value = finite[row_];
                const bool finite_value_2 = finite_value && row;
                __syncwarp();
                if (thread % 32 == 0) {
                    finite[row_] = finite_value_2;
                }
            }
        }
        // store(finite -> FINITE[i*TM:(i+1)*TM])
        __syncthreads();
        bool *const FINITE_row = FINITE + i * TM;
        for (int64_t lane = thread; lane < std::min<int64_t>(TM, M - i * TM); lane += threads) {
            const bool finite_value = finite[lane];
            FINITE_row[lane] = finite_value;
        }
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  M >= 0 and N >= 0
//   2  fewer than 2**48 elements in each tensor
//   3  SCALE_extent_0 == 1 or SCALE_extent_0 == M
extern "C" int64_t unscale_gradients(
    const sketch::bfloat16 *__restrict GRADIENT, const float *__restrict SCALE, sketch::bfloat16
    *__restrict Y, bool *__restrict FINITE, int64_t M, int64_t N, int64_t SCALE_extent_0)
{
    constexpr int64_t TM = 16;

    if (M < 0 || N < 0) {
        return 1;
    }
    if (sketch::too_large({M, N})) {
        return 2;
    }
    if (SCALE_extent_0 != 1 && SCALE_extent_0 != M) {
        return 3;
    }
    [[maybe_unused]] const int64_t SCALE_step_0 = SCALE_extent_0 == 1 ? 0 : 1;
    {
        const int64_t programs = sketch::ceil_div(M, TM);
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        if (blocks > 0) {
            unscale_gradients_1<<<static_cast<unsigned>(blocks), 128, 384>>>(GRADIENT, SCALE, Y,
                FINITE, M, N, SCALE_step_0, programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
