// rope: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o rope.so rope.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: max, too_large, max_of_floats, lanes, enough, aligned, at_once, load_lanes,
// load_all_lanes, store_lanes, store_all_lanes, over_lanes, layout, arena, allow_shared.

extern "C" __global__ void rope_1(
    const float *__restrict X, const float *__restrict COS, const float *__restrict SIN,
    float *__restrict Y, int64_t B, int64_t S, int64_t H, int64_t HALF, int64_t programs,
    int64_t right_fma_place, char *scratch_memory, int64_t scratch_bytes, int64_t y_place)
{
    extern __shared__ __align__(128) char block_memory[];
    char *const scratch = scratch_memory + blockIdx.x * scratch_bytes;
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t s = program % S;
        const int64_t b = program / S;
        float *const right_fma = reinterpret_cast<float *>(block_memory + right_fma_place);
        float *const y = reinterpret_cast<float *>(scratch + y_place);
        // for h in range(H):
        for (int64_t h = 0; h < H; ++h) {
            // load(X[b, s, h, HALF:2*HALF] -> second)
            // load(SIN[s, 0:HALF] -> sin)
            // mul(second, sin, left)
            // neg(left, left)
            // load(X[b, s, h, 0:HALF] -> first)
            // load(COS[s, 0:HALF] -> cos)
            // fma(first, cos, left, left)
            // mul(first, sin, right)
            // fma(second, cos, right, right)
            // concat(left, right, 0, y)
            __syncthreads();
            const float *const X_row = X + (((b * S + s) * H + h) * (2 * HALF) + HALF);
            const float *const SIN_row = SIN + s * HALF;
            const float *const X_row_2 = X + ((b * S + s) * H + h) * (2 * HALF);
            const float *const COS_row = COS + s * HALF;
            sketch::over_lanes<4, 2>(thread * 4, threads * 4, HALF, sketch::aligned<4>(X_row,
                SIN_row, X_row_2, COS_row, right_fma, y), [&](int64_t first, auto left) {
                sketch::lanes<float, 4> right_fma_lanes;
                sketch::lanes<float, 4> y_lanes;
                const auto X_row_lanes = sketch::load_lanes<4>(X_row + first, left);
                const auto SIN_row_lanes = sketch::load_lanes<4>(SIN_row + first, left);
                const auto X_row_2_lanes = sketch::load_lanes<4>(X_row_2 + first, left);
                const auto COS_row_lanes = sketch::load_lanes<4>(COS_row + first, left);
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    const float second = X_row_lanes[part];
                    const float sin = SIN_row_lanes[part];
                    const float left = second * sin;
                    const float left_neg = -left;
                    const float first_ = X_row_2_lanes[part];
                    const float cos = COS_row_lanes[part];
                    const float left_fma = first_ * cos + left_neg;
                    const float right = first_ * sin;
                    const float right_fma_value = second * cos + right;
                    right_fma_lanes[part] = right_fma_value;
                    const float y_value = left_fma;
                    y_lanes[part] = y_value;
                }
                sketch::store_lanes(right_fma + first, left, right_fma_lanes);
                sketch::store_lanes(y + first, left, y_lanes);
            });
            __syncthreads();
            float *const y_row = y + HALF;
            sketch::over_lanes<4, 4>(thread * 4, threads * 4, HALF, sketch::aligned<4>(right_fma,
                y_row), [&](int64_t first, auto left) {
                sketch::lanes<float, 4> y_row_lanes;
                const auto right_fma_lanes = sketch::load_lanes<4>(right_fma + first, left);
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    const float right_fma_value = right_fma_lanes[part];
                    y_row_lanes[part] = right_fma_value;
                }
                sketch::store_lanes(y_row + first, left, y_row_lanes);
            });
            // store(y -> Y[b, s, h, 0:2*HALF])
            __syncthreads();
            float *const Y_row = Y + ((b * S + s) * H + h) * (2 * HALF);
            sketch::over_lanes<4, 4>(thread * 4, threads * 4, 2 * HALF, sketch::aligned<4>(y,
                Y_row), [&](int64_t first, auto left) {
                sketch::lanes<float, 4> Y_row_lanes;
                const auto y_lanes = sketch::load_lanes<4>(y + first, left);
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    const float y_value = y_lanes[part];
                    Y_row_lanes[part] = y_value;
                }
                sketch::store_lanes(Y_row + first, left, Y_row_lanes);
            });
        }
        __syncthreads();
    }
}

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  B >= 0 and S >= 0 and H >= 0 and HALF >= 0
//   2  HALF <= 256
//   3  fewer than 2**48 elements in each tensor
extern "C" int64_t rope(
    const float *__restrict X, const float *__restrict COS, const float *__restrict SIN, float
    *__restrict Y, int64_t B, int64_t S, int64_t H, int64_t HALF)
{
    if (B < 0 || S < 0 || H < 0 || HALF < 0) {
        return 1;
    }
    if (HALF > 256) {
        return 2;
    }
    if (sketch::too_large({B, S, H, HALF})) {
        return 3;
    }
    {
        const int64_t programs = B * S;
        const int64_t blocks = std::min<int64_t>(programs, 1024);
        sketch::layout shared{256};
        const int64_t right_fma_place = shared.add(sizeof(float), {HALF});
        // Scratch memory of each block.
        sketch::arena arena;
        const int64_t y_place = arena.add(sizeof(float), {2 * HALF});
        if (!arena.allocate(blocks)) {
            return -1;
        }
        sketch::allow_shared(rope_1, 82176);
        if (blocks > 0) {
            rope_1<<<static_cast<unsigned>(blocks), 128, static_cast<unsigned>(shared.bytes())>>>(X,
                COS, SIN, Y, B, S, H, HALF, programs, right_fma_place, arena.memory(),
                arena.bytes(), y_place);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
