// murmur_hash: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o murmur_hash.so murmur_hash.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, shl, shr, lanes, enough, aligned, at_once,
// load_lanes, load_all_lanes, store_lanes, store_all_lanes, over_lanes, divisor.

extern "C" __global__ void murmur_hash_1(
    const uint32_t *__restrict KEY, uint32_t *__restrict HASH, int64_t N, int64_t programs)
{
    constexpr int64_t T = 1024;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t i = program;
        // load(KEY[i*T:(i+1)*T] -> h)
        // mul(h, 0xcc9e2d51, h)
        // shr(h, 17, part)
        // shl(h, 15, h)
        // bitwise_or(h, part, h)
        // mul(h, 0x1b873593, h)
        // shr(h, 19, part)
        // shl(h, 13, h)
        // mul(h, 5, h)
        // add(h, 0xe6546b64, h)
        // bitwise_xor(h, 4, h)
        // shr(h, 16, part)
        // bitwise_xor(h, part, h)
        // mul(h, 0x85ebca6b, h)
        // shr(h, 13, part)
        // mul(h, 0xc2b2ae35, h)
        // store(h -> HASH[i*T:(i+1)*T])
        const uint32_t *const KEY_row = KEY + i * T;
        uint32_t *const HASH_row = HASH + i * T;
        sketch::over_lanes<4, 1>(thread * 4, threads * 4, std::min<int64_t>(T, N - i * T),
            sketch::aligned<4>(KEY_row, HASH_row), [&](int64_t first, auto left) {
            sketch::lanes<uint32_t, 4> HASH_row_lanes;
            const auto KEY_row_lanes = sketch::load_lanes<4>(KEY_row + first, left);
            #pragma unroll
            for (int part = 0; part < 4; ++part) {
                const uint32_t h = KEY_row_lanes[part];
                const uint32_t h_mul = h * 3432918353U;
                const uint32_t part_ = sketch::shr(h_mul, 17U);
                const uint32_t h_shl = sketch::shl(h_mul, 15U);
                const uint32_t h_bitwise_or = h_shl | part_;
                const uint32_t h_mul_2 = h_bitwise_or * 461845907U;
                const uint32_t part_shr = sketch::shr(h_mul_2, 19U);
                const uint32_t h_shl_2 = sketch::shl(h_mul_2, 13U);
                const uint32_t h_bitwise_or_2 = h_shl_2 | part_shr;
                const uint32_t h_mul_3 = h_bitwise_or_2 * 5U;
                const uint32_t h_add = h_mul_3 + 3864292196U;
                const uint32_t h_bitwise_xor = h_add ^ 4U;
                const uint32_t part_shr_2 = sketch::shr(h_bitwise_xor, 16U);
                const uint32_t h_bitwise_xor_2 = h_bitwise_xor ^ part_shr_2;
                const uint32_t h_mul_4 = h_bitwise_xor_2 * 2246822507U;
                const uint32_t part_shr_3 = sketch::shr(h_mul_4, 13U);
                const uint32_t h_bitwise_xor_3 = h_mul_4 ^ part_shr_3;
                const uint32_t h_mul_5 = h_bitwise_xor_3 * 3266489909U;
                const uint32_t part_shr_4 = sketch::shr(h_mul_5, 16U);
                const uint32_t h_bitwise_xor_4 = h_mul_5 ^ part_shr_4;
                HASH_row_lanes[part] = h_bitwise_xor_4;
            }
            sketch::store_lanes(HASH_row + first, left, HASH_row_lanes);
        });
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  N >= 0
extern "C" int64_t murmur_hash(
    const uint32_t *__restrict KEY, uint32_t *__restrict HASH, int64_t N)
{
    constexpr int64_t T = 1024;

    if (N < 0) {
        return 1;
    }
    {
        const int64_t programs = sketch::ceil_div(N, T);
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        if (blocks > 0) {
            murmur_hash_1<<<static_cast<unsigned>(blocks), 128, 256>>>(KEY, HASH, N, programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
