// pcm_planes: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o pcm_planes.so pcm_planes.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, max, at_least, at_most, too_large,
// max_of_floats, lanes, enough, aligned, at_once, load_lanes, load_all_lanes, store_lanes,
// store_all_lanes, over_lanes, divisor, layout, allow_shared.

extern "C" __global__ void pcm_planes_1(
    const int16_t *__restrict SAMPLES, float *__restrict Y, int64_t N, int64_t C, double step,
    int64_t programs, int64_t y_clamp_place)
{
    constexpr int64_t T = 256;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t i = program;
        float *const y_clamp = reinterpret_cast<float *>(block_memory + y_clamp_place);
        for (int64_t row = thread / 32; row < std::min<int64_t>(T, N - i * T); row += threads /
            32) {
            // load(SAMPLES[i*T:(i+1)*T, 0:C] -> sample)
            // cast(sample, y)
            // mul(y, step, y)
            // clamp(y, y, low=-1, high=1)
            const int16_t *const SAMPLES_row = SAMPLES + (i * T + row) * C;
            float *const y_clamp_row = y_clamp + row * C;
            sketch::over_lanes<4, 4>(thread % 32 * 4, 32 * 4, C, sketch::aligned<4>(SAMPLES_row,
                y_clamp_row), [&](int64_t first, auto left) {
                sketch::lanes<float, 4> y_clamp_row_lanes;
                const auto SAMPLES_row_lanes = sketch::load_lanes<4>(SAMPLES_row + first, left);
                #pragma unroll
                for (int part = 0; part < 4; ++part) {
                    const int16_t sample = SAMPLES_row_lanes[part];
                    const float y = static_cast<float>(sample);
                    const float y_mul = y * static_cast<float>(step);
                    const float y_clamp_value = sketch::at_most(sketch::at_least(y_mul, -1.0f),
                        1.0f);
                    y_clamp_row_lanes[part] = y_clamp_value;
                }
                sketch::store_lanes(y_clamp_row + first, left, y_clamp_row_lanes);
            });
        }
        __syncthreads();
        for (int64_t row = thread / 32; row < C; row += threads / 32) {
            // transpose(y, plane)
            // store(plane -> Y[0:C, i*T:(i+1)*T])
            float *const Y_row = Y + (row * N + i * T);
            for (int64_t lane = thread % 32; lane < std::min<int64_t>(T, N - i * T); lane += 32) {
                const float y_clamp_value = y_clamp[lane * C + row];
                const float plane = y_clamp_value;
                Y_row[lane] = plane;
            }
        }
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  N >= 0 and C >= 0
//   2  C <= 8
//   3  fewer than 2**48 elements in each tensor
extern "C" int64_t pcm_planes(
    const int16_t *__restrict SAMPLES, float *__restrict Y, int64_t N, int64_t C, double gain)
{
    constexpr int64_t T = 256;

    // gain is of type f32.
    gain = static_cast<float>(gain);
    if (N < 0 || C < 0) {
        return 1;
    }
    if (C > 8) {
        return 2;
    }
    [[maybe_unused]] const double step = static_cast<double>(gain / 32768.0);
    if (sketch::too_large({N, C})) {
        return 3;
    }
    {
        const int64_t programs = sketch::ceil_div(N, T);
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        sketch::layout shared{256};
        const int64_t y_clamp_place = shared.add(sizeof(float), {T, C});
        sketch::allow_shared(pcm_planes_1, 82176);
        if (blocks > 0) {
            pcm_planes_1<<<static_cast<unsigned>(blocks), 128,
                static_cast<unsigned>(shared.bytes())>>>(SAMPLES, Y, N, C, step, programs,
                y_clamp_place);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
