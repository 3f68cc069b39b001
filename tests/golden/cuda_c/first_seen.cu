// first_seen: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o first_seen.so first_seen.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, min, min_of_floats, divisor,
// atomic_replace, smaller_of, atomic_min.

extern "C" __global__ void first_seen_1(
    const int32_t *__restrict TIME, const int32_t *__restrict USER, int32_t *__restrict FIRST,
    int64_t N, int64_t U, int64_t programs)
{
    constexpr int64_t T = 1024;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t i = program;
        // load(TIME[i*T:(i+1)*T] -> time)
        // load(USER[i*T:(i+1)*T] -> user)
        // atomic_min(time -> FIRST[user])
        for (int64_t lane = thread; lane < std::min<int64_t>(T, N - i * T); lane += threads) {
            const int32_t time = TIME[i * T + lane];
            const int32_t user = USER[i * T + lane];
            const int64_t user_index = static_cast<int64_t>(user);
            if (0 <= user_index && user_index < U) {
                sketch::atomic_min(&FIRST[user_index], time);
            }
        }
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  N >= 0 and U >= 0
extern "C" int64_t first_seen(
    const int32_t *__restrict TIME, const int32_t *__restrict USER, int32_t *__restrict FIRST,
    int64_t N, int64_t U)
{
    constexpr int64_t T = 1024;

    if (N < 0 || U < 0) {
        return 1;
    }
    {
        const int64_t programs = sketch::ceil_div(N, T);
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        if (blocks > 0) {
            first_seen_1<<<static_cast<unsigned>(blocks), 128, 256>>>(TIME, USER, FIRST, N, U,
                programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
