// integers: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o integers.so integers.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, floor_mod, ceil_div, bits_of, float_of, min, min_of_floats, lanes,
// enough, aligned, at_once, load_lanes, load_all_lanes, store_lanes, store_all_lanes, over_lanes,
// divisor.

extern "C" __global__ void integers_1(
    const int32_t *__restrict A, const int32_t *__restrict B, int32_t *__restrict QUOTIENT,
    int32_t *__restrict REMAINDER, int32_t *__restrict SMALLER, int32_t *__restrict FLIPPED,
    bool *__restrict EQUAL, bool *__restrict DIFFERENT, bool *__restrict BELOW,
    bool *__restrict NOT_ABOVE, int64_t N, int64_t step, int64_t programs)
{
    constexpr int64_t T = 1024;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t i = program;
        // load(A[i*T:(i+1)*T] -> a)
        // floordiv(a, step, number)
        // store(number -> QUOTIENT[i*T:(i+1)*T])
        // mod(a, step, number)
        // store(number -> REMAINDER[i*T:(i+1)*T])
        // load(B[i*T:(i+1)*T] -> b)
        // min(a, b, number)
        // store(number -> SMALLER[i*T:(i+1)*T])
        // bitwise_not(number, number)
        // store(number -> FLIPPED[i*T:(i+1)*T])
        // eq(a, b, truth)
        // store(truth -> EQUAL[i*T:(i+1)*T])
        // ne(a, b, truth)
        // store(truth -> DIFFERENT[i*T:(i+1)*T])
        // lt(a, b, truth)
        // store(truth -> BELOW[i*T:(i+1)*T])
        // le(a, b, truth)
        // store(truth -> NOT_ABOVE[i*T:(i+1)*T])
        const int32_t *const A_row = A + i * T;
        int32_t *const QUOTIENT_row = QUOTIENT + i * T;
        int32_t *const REMAINDER_row = REMAINDER + i * T;
        const int32_t *const B_row = B + i * T;
        int32_t *const SMALLER_row = SMALLER + i * T;
        int32_t *const FLIPPED_row = FLIPPED + i * T;
        bool *const EQUAL_row = EQUAL + i * T;
        bool *const DIFFERENT_row = DIFFERENT + i * T;
        bool *const BELOW_row = BELOW + i * T;
        bool *const NOT_ABOVE_row = NOT_ABOVE + i * T;
        sketch::over_lanes<4, 2>(thread * 4, threads * 4, std::min<int64_t>(T, N - i * T),
            sketch::aligned<4>(A_row, B_row, QUOTIENT_row, REMAINDER_row, SMALLER_row, FLIPPED_row,
            EQUAL_row, DIFFERENT_row, BELOW_row, NOT_ABOVE_row), [&](int64_t first, auto left) {
            sketch::lanes<int32_t, 4> QUOTIENT_row_lanes;
            sketch::lanes<int32_t, 4> REMAINDER_row_lanes;
            sketch::lanes<int32_t, 4> SMALLER_row_lanes;
            sketch::lanes<int32_t, 4> FLIPPED_row_lanes;
            sketch::lanes<bool, 4> EQUAL_row_lanes;
            sketch::lanes<bool, 4> DIFFERENT_row_lanes;
            sketch::lanes<bool, 4> BELOW_row_lanes;
            sketch::lanes<bool, 4> NOT_ABOVE_row_lanes;
            const auto A_row_lanes = sketch::load_lanes<4>(A_row + first, left);
            const auto B_row_lanes = sketch::load_lanes<4>(B_row + first, left);
            #pragma unroll
            for (int part = 0; part < 4; ++part) {
                const int32_t a = A_row_lanes[part];
                const int32_t number = sketch::floor_div(a, static_cast<int32_t>(step));
                QUOTIENT_row_lanes[part] = number;
                const int32_t number_mod = sketch::floor_mod(a, static_cast<int32_t>(step));
                REMAINDER_row_lanes[part] = number_mod;
                const int32_t b = B_row_lanes[part];
                const int32_t number_min = sketch::min(a, b);
                SMALLER_row_lanes[part] = number_min;
                const int32_t number_bitwise_not = ~number_min;
                FLIPPED_row_lanes[part] = number_bitwise_not;
                const bool truth = a == b;
                EQUAL_row_lanes[part] = truth;
                const bool truth_ne = a != b;
                DIFFERENT_row_lanes[part] = truth_ne;
                const bool truth_lt = a < b;
                BELOW_row_lanes[part] = truth_lt;
                const bool truth_le = a <= b;
                NOT_ABOVE_row_lanes[part] = truth_le;
            }
            sketch::store_lanes(QUOTIENT_row + first, left, QUOTIENT_row_lanes);
            sketch::store_lanes(REMAINDER_row + first, left, REMAINDER_row_lanes);
            sketch::store_lanes(SMALLER_row + first, left, SMALLER_row_lanes);
            sketch::store_lanes(FLIPPED_row + first, left, FLIPPED_row_lanes);
            sketch::store_lanes(EQUAL_row + first, left, EQUAL_row_lanes);
            sketch::store_lanes(DIFFERENT_row + first, left, DIFFERENT_row_lanes);
            sketch::store_lanes(BELOW_row + first, left, BELOW_row_lanes);
            sketch::store_lanes(NOT_ABOVE_row + first, left, NOT_ABOVE_row_lanes);
        });
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   3  step >= 1
//   4  N >= 0
//   5  -2147483648 <= step and step <= 2147483647
extern "C" int64_t integers(
    const int32_t *__restrict A, const int32_t *__restrict B, int32_t *__restrict QUOTIENT,
    int32_t *__restrict REMAINDER, int32_t *__restrict SMALLER, int32_t *__restrict FLIPPED, bool
    *__restrict EQUAL, bool *__restrict DIFFERENT, bool *__restrict BELOW, bool *__restrict
    NOT_ABOVE, int64_t N, int64_t step)
{
    constexpr int64_t T = 1024;

    if (N < 0) {
        return 4;
    }
    if (-INT64_C(2147483648) > step || step > 2147483647) {
        return 5;
    }
    if (step < 1) {
        return 3;
    }
    {
        const int64_t programs = sketch::ceil_div(N, T);
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        if (blocks > 0) {
            integers_1<<<static_cast<unsigned>(blocks), 128, 256>>>(A, B, QUOTIENT, REMAINDER,
                SMALLER, FLIPPED, EQUAL, DIFFERENT, BELOW, NOT_ABOVE, N, step, programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
