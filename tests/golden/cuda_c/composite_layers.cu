// composite_layers: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o composite_layers.so composite_layers.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: max, tile, too_large, max_of_floats, times, lanes, enough, aligned, at_once,
// load_lanes, load_all_lanes, store_lanes, store_all_lanes, over_lanes, lane_count,
// numbered_lane, kept_running, size_and_power, first_to_leave, shared_products, shuffled,
// shuffled_pair, before_and_whole, scan_in_warp, scan_in_block, line_of_thread, line_of_warp,
// line_of_block, lanes_along, put_along, line_places, scan_line, scan_tile, cumprod, strides,
// layout, allow_shared.

extern "C" __global__ void composite_layers_1(
    const float *__restrict OPACITY, float *__restrict SHARE, int64_t P, int64_t L,
    int64_t programs, int64_t cumprod_0_place, int64_t cumprod_result_place)
{
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t p = program;
        float *const cumprod_0 = reinterpret_cast<float *>(block_memory + cumprod_0_place);
        float *const cumprod_result = reinterpret_cast<float *>(block_memory +
            cumprod_result_place);
        // load(OPACITY[p, 1:L] -> later)
        // sub(1, later, later)
        const float *const OPACITY_row = OPACITY + (p * L + 1);
        sketch::over_lanes<4, 4>(thread * 4, threads * 4, std::min<int64_t>(L, L - 1),
            sketch::aligned<4>(OPACITY_row, cumprod_0), [&](int64_t first, auto left) {
            sketch::lanes<float, 4> cumprod_0_lanes;
            const auto OPACITY_row_lanes = sketch::load_lanes<4>(OPACITY_row + first, left);
            #pragma unroll
            for (int part = 0; part < 4; ++part) {
                const float later = OPACITY_row_lanes[part];
                const float later_sub = 1.0f - later;
                const float cumprod_0_value = later_sub;
                cumprod_0_lanes[part] = cumprod_0_value;
            }
            sketch::store_lanes(cumprod_0 + first, left, cumprod_0_lanes);
        });
        // cumprod(later, 0, through, reverse=True)
        __syncthreads();
        sketch::cumprod<0, true, false>(
            sketch::tile<const float, 1>{cumprod_0, {0}, {std::min<int64_t>(L, L - 1)}, {1}},
            sketch::tile<float, 1>{cumprod_result, {0}, {std::min<int64_t>(L, L - 1)}, {1}},
            block_memory);
        // load(OPACITY[p, 0:L-1] -> opacity)
        // mul(opacity, through, through)
        // store(through -> SHARE[p, 0:L-1])
        __syncthreads();
        const float *const OPACITY_row_2 = OPACITY + p * L;
        float *const SHARE_row = SHARE + p * L;
        sketch::over_lanes<4, 4>(thread * 4, threads * 4, std::min<int64_t>(L, L - 1),
            sketch::aligned<4>(cumprod_result, OPACITY_row_2, SHARE_row), [&](int64_t first, auto
            left) {
            sketch::lanes<float, 4> SHARE_row_lanes;
            const auto cumprod_result_lanes = sketch::load_lanes<4>(cumprod_result + first, left);
            const auto OPACITY_row_2_lanes = sketch::load_lanes<4>(OPACITY_row_2 + first, left);
            #pragma unroll
            for (int part = 0; part < 4; ++part) {
                const float cumprod_result_value = cumprod_result_lanes[part];
                const float through = cumprod_result_value;
                const float opacity = OPACITY_row_2_lanes[part];
                const float through_mul = opacity * through;
                SHARE_row_lanes[part] = through_mul;
            }
            sketch::store_lanes(SHARE_row + first, left, SHARE_row_lanes);
        });
        // load(OPACITY[p, L-1] -> last)
        // store(last -> SHARE[p, L-1])
        const float last = OPACITY[p * L + (L - 1)];
        __syncthreads();
        if (thread == 0) {
            SHARE[p * L + (L - 1)] = last;
        }
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  L >= 1
//   2  P >= 0 and L >= 0
//   3  L <= 1024
//   4  fewer than 2**48 elements in each tensor
extern "C" int64_t composite_layers(
    const float *__restrict OPACITY, float *__restrict SHARE, int64_t P, int64_t L)
{
    if (P < 0 || L < 0) {
        return 2;
    }
    if (L > 1024) {
        return 3;
    }
    if (L < 1) {
        return 1;
    }
    if (sketch::too_large({P, L})) {
        return 4;
    }
    {
        const int64_t programs = P;
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        sketch::layout shared{256};
        const int64_t cumprod_0_place = shared.add(sizeof(float), {L});
        const int64_t cumprod_result_place = shared.add(sizeof(float), {L});
        sketch::allow_shared(composite_layers_1, 82176);
        if (blocks > 0) {
            composite_layers_1<<<static_cast<unsigned>(blocks), 128,
                static_cast<unsigned>(shared.bytes())>>>(OPACITY, SHARE, P, L, programs,
                cumprod_0_place, cumprod_result_place);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
