// histogram_range: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o histogram_range.so histogram_range.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, min, min_of_floats, lanes, enough,
// aligned, at_once, store_lanes, store_all_lanes, over_lanes, divisor, atomic_replace, added,
// atomic_add, filled, fill.

extern "C" __global__ void histogram_range_1(
    const int32_t *__restrict X, int32_t *__restrict COUNTS, int64_t N, int64_t first_,
    int64_t programs)
{
    constexpr int64_t LEVELS = 100;
    constexpr int64_t T = 1024;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t i = program;
        int32_t *const ones = reinterpret_cast<int32_t *>(block_memory + 256);
        // level = x - first
        // fill(1, ones)
        sketch::over_lanes<4, 2>(thread * 4, threads * 4, T, sketch::aligned<4>(ones), [&](int64_t
            first, auto left) {
            sketch::lanes<int32_t, 4> ones_lanes;
            #pragma unroll
            for (int part = 0; part < 4; ++part) {
                ones_lanes[part] = 1;
            }
            sketch::store_lanes(ones + first, left, ones_lanes);
        });
        // load(X[i*T:(i+1)*T] -> x)
        // atomic_add(ones -> COUNTS[level], where=level >= 0 and level < LEVELS)
        __syncthreads();
        for (int64_t lane = thread; lane < std::min<int64_t>(T, N - i * T); lane += threads) {
            const int32_t ones_value = ones[lane];
            const int32_t x = X[i * T + lane];
            const int64_t x_index = static_cast<int64_t>(x);
            if (x_index - first_ >= 0 && x_index - first_ < LEVELS) {
                sketch::atomic_add(&COUNTS[x_index - first_], ones_value);
            }
        }
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  N >= 0
extern "C" int64_t histogram_range(
    const int32_t *__restrict X, int32_t *__restrict COUNTS, int64_t N, int64_t first_)
{
    constexpr int64_t LEVELS = 100;
    constexpr int64_t T = 1024;

    if (N < 0) {
        return 1;
    }
    // COUNTS starts as 0.
    if (!sketch::fill<int32_t>(COUNTS, LEVELS, 0)) {
        return -2;
    }
    {
        const int64_t programs = sketch::ceil_div(N, T);
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        if (blocks > 0) {
            histogram_range_1<<<static_cast<unsigned>(blocks), 128, 4352>>>(X, COUNTS, N, first_,
                programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
