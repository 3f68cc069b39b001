// rounding: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o rounding.so rounding.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, sign, floor, ceil, round, trunc, lanes,
// enough, aligned, at_once, load_lanes, load_all_lanes, store_lanes, store_all_lanes, over_lanes,
// divisor.

extern "C" __global__ void rounding_1(
    const float *__restrict X, float *__restrict FLOOR, float *__restrict CEIL,
    float *__restrict ROUND, float *__restrict TRUNC, float *__restrict FRACTION,
    float *__restrict SIGN, int64_t N, int64_t programs)
{
    constexpr int64_t T = 1024;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t i = program;
        // load(X[i*T:(i+1)*T] -> x)
        // floor(x, y)
        // store(y -> FLOOR[i*T:(i+1)*T])
        // ceil(x, y)
        // store(y -> CEIL[i*T:(i+1)*T])
        // round(x, y)
        // store(y -> ROUND[i*T:(i+1)*T])
        // trunc(x, y)
        // store(y -> TRUNC[i*T:(i+1)*T])
        // sub(x, y, y)
        // store(y -> FRACTION[i*T:(i+1)*T])
        // sign(x, y)
        // store(y -> SIGN[i*T:(i+1)*T])
        const float *const X_row = X + i * T;
        float *const FLOOR_row = FLOOR + i * T;
        float *const CEIL_row = CEIL + i * T;
        float *const ROUND_row = ROUND + i * T;
        float *const TRUNC_row = TRUNC + i * T;
        float *const FRACTION_row = FRACTION + i * T;
        float *const SIGN_row = SIGN + i * T;
        sketch::over_lanes<4, 2>(thread * 4, threads * 4, std::min<int64_t>(T, N - i * T),
            sketch::aligned<4>(X_row, FLOOR_row, CEIL_row, ROUND_row, TRUNC_row, FRACTION_row,
            SIGN_row), [&](int64_t first, auto left) {
            sketch::lanes<float, 4> FLOOR_row_lanes;
            sketch::lanes<float, 4> CEIL_row_lanes;
            sketch::lanes<float, 4> ROUND_row_lanes;
            sketch::lanes<float, 4> TRUNC_row_lanes;
            sketch::lanes<float, 4> FRACTION_row_lanes;
            sketch::lanes<float, 4> SIGN_row_lanes;
            const auto X_row_lanes = sketch::load_lanes<4>(X_row + first, left);
            #pragma unroll
            for (int part = 0; part < 4; ++part) {
                const float x = X_row_lanes[part];
                const float y = sketch::floor(x);
                FLOOR_row_lanes[part] = y;
                const float y_ceil = sketch::ceil(x);
                CEIL_row_lanes[part] = y_ceil;
                const float y_round = sketch::round(x);
                ROUND_row_lanes[part] = y_round;
                const float y_trunc = sketch::trunc(x);
                TRUNC_row_lanes[part] = y_trunc;
                const float y_sub = x - y_trunc;
                FRACTION_row_lanes[part] = y_sub;
                const float y_sign = sketch::sign(x);
                SIGN_row_lanes[part] = y_sign;
            }
            sketch::store_lanes(FLOOR_row + first, left, FLOOR_row_lanes);
            sketch::store_lanes(CEIL_row + first, left, CEIL_row_lanes);
            sketch::store_lanes(ROUND_row + first, left, ROUND_row_lanes);
            sketch::store_lanes(TRUNC_row + first, left, TRUNC_row_lanes);
            sketch::store_lanes(FRACTION_row + first, left, FRACTION_row_lanes);
            sketch::store_lanes(SIGN_row + first, left, SIGN_row_lanes);
        });
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  N >= 0
extern "C" int64_t rounding(
    const float *__restrict X, float *__restrict FLOOR, float *__restrict CEIL, float *__restrict
    ROUND, float *__restrict TRUNC, float *__restrict FRACTION, float *__restrict SIGN, int64_t N)
{
    constexpr int64_t T = 1024;

    if (N < 0) {
        return 1;
    }
    {
        const int64_t programs = sketch::ceil_div(N, T);
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        if (blocks > 0) {
            rounding_1<<<static_cast<unsigned>(blocks), 128, 256>>>(X, FLOOR, CEIL, ROUND, TRUNC,
                FRACTION, SIGN, N, programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
