// pointwise_conv: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o pointwise_conv.so pointwise_conv.cu

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

extern "C" __global__ void pointwise_conv_1(
    const float *__restrict X, const float *__restrict WEIGHT, float *__restrict Y, int64_t B,
    int64_t C, int64_t O, int64_t H, int64_t W, int64_t programs)
{
    constexpr int64_t TP = 128;
    constexpr int64_t TO = 64;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t j = program % sketch::ceil_div(O, TO);
        const int64_t i = program / sketch::ceil_div(O, TO) % sketch::ceil_div(H * W, TP);
        const int64_t b = program / sketch::ceil_div(O, TO) / sketch::ceil_div(H * W, TP);
        // load(XV[b, 0:C, i*TP:(i+1)*TP] -> x)
        // load(WV[j*TO:(j+1)*TO, 0:C] -> w)
        // dot(x, w, y, trans_a=True, trans_b=True, precision="tf32x3")
        sketch::multiply_along<sketch::by_warps<4, 2, 4, 2, 32, 3, false, true, sketch::in_tf32>,
            false>(
            1,
            [&](int64_t) {
                return sketch::factors<float, float>{
                    std::min<int64_t>(TP, H * W - i * TP), std::min<int64_t>(TO, O - j * TO), C,
                    sketch::matrix<const float>{X + C * H * W * b + TP * i, 1, H * W},
                    sketch::matrix<const float>{WEIGHT + C * TO * j, 1, C}};
            },
            sketch::sums_for<float, 4>(sketch::aligned<4>(Y + ((b * (H * W) + (i * TP + 0)) * O + j
                * TO), Y + ((b * (H * W) + (i * TP + 1)) * O + j * TO)),
                [&]([[maybe_unused]] int64_t row, int64_t first, auto left, auto y_row_2_lanes) {
                    // store(y -> YV[b, i*TP:(i+1)*TP, j*TO:(j+1)*TO])
                    float *const Y_row = Y + ((b * (H * W) + (i * TP + row)) * O + j * TO);
                    sketch::lanes<float, y_row_2_lanes.size> Y_row_lanes;
                    #pragma unroll
                    for (int part = 0; part < y_row_2_lanes.size; ++part) {
                        const float y_value = y_row_2_lanes[part];
                        Y_row_lanes[part] = y_value;
                    }
                    sketch::store_lanes(Y_row + first, left, Y_row_lanes);
            }), block_memory + 256);
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  B >= 0 and C >= 0 and O >= 0 and H >= 0 and W >= 0
//   2  C <= 64
//   3  fewer than 2**48 elements in each tensor
extern "C" int64_t pointwise_conv(
    const float *__restrict X, const float *__restrict WEIGHT, float *__restrict Y, int64_t B,
    int64_t C, int64_t O, int64_t H, int64_t W)
{
    constexpr int64_t TP = 128;
    constexpr int64_t TO = 64;

    if (B < 0 || C < 0 || O < 0 || H < 0 || W < 0) {
        return 1;
    }
    if (C > 64) {
        return 2;
    }
    if (sketch::too_large({B, C, H, W}) || sketch::too_large({O, C}) || sketch::too_large({B, H, W,
        O})) {
        return 3;
    }
    {
        const int64_t programs = B * sketch::ceil_div(H * W, TP) * sketch::ceil_div(O, TO);
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        sketch::allow_shared(pointwise_conv_1, 73984);
        if (blocks > 0) {
            pointwise_conv_1<<<static_cast<unsigned>(blocks), 128, 73984>>>(X, WEIGHT, Y, B, C, O,
                H, W, programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
