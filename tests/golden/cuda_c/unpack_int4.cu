// unpack_int4: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o unpack_int4.so unpack_int4.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, max, shr, too_large, max_of_floats,
// divisor.

extern "C" __global__ void unpack_int4_1(
    const uint8_t *__restrict PACKED, const float *__restrict SCALE, float *__restrict Y,
    int64_t M, int64_t N, int64_t programs)
{
    constexpr int64_t T = 512;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t i = program;
        float *const y_mul_2 = reinterpret_cast<float *>(block_memory + 256);
        // for j in range(ceil(N, T)):
        for (int64_t j = 0; j < sketch::ceil_div(N, T); ++j) {
            // load(PACKED[i, j*T:(j+1)*T] -> packed)
            // bitwise_and(packed, 15, nibble)
            // cast(nibble, y)
            // sub(y, 8, y)
            // load(SCALE[i] -> scale)
            // mul(y, scale, y)
            // store(y -> Y[i, 2*j*T:2*(j+1)*T:2])
            // shr(packed, 4, nibble)
            const float scale = SCALE[i];
            __syncthreads();
            const uint8_t *const PACKED_row = PACKED + (i * N + j * T);
            for (int64_t lane = thread; lane < std::min<int64_t>(T, N - j * T); lane += threads) {
                const uint8_t packed = PACKED_row[lane];
                const uint8_t nibble = static_cast<uint8_t>(packed & uint8_t{15});
                const float y = static_cast<float>(nibble);
                const float y_sub = y - 8.0f;
                const float y_mul = y_sub * scale;
                Y[i * (2 * N) + (2 * j * T + lane * 2)] = y_mul;
                const uint8_t nibble_shr = static_cast<uint8_t>(sketch::shr(packed, uint8_t{4}));
                const float y_cast = static_cast<float>(nibble_shr);
                const float y_sub_2 = y_cast - 8.0f;
                const float y_mul_2_value = y_sub_2 * scale;
                y_mul_2[lane] = y_mul_2_value;
            }
            // store(y -> Y[i, 2*j*T+1:2*(j+1)*T+1:2])
            __syncthreads();
            for (int64_t lane = thread; lane < std::min<int64_t>(T, N - j * T); lane += threads) {
                const float y_mul_2_value = y_mul_2[lane];
                Y[i * (2 * N) + (2 * j * T + 1 + lane * 2)] = y_mul_2_value;
            }
        }
        __syncthreads();
    }
}

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  M >= 0 and N >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t unpack_int4(
    const uint8_t *__restrict PACKED, const float *__restrict SCALE, float *__restrict Y, int64_t
    M, int64_t N)
{
    if (M < 0 || N < 0) {
        return 1;
    }
    if (sketch::too_large({M, N})) {
        return 2;
    }
    {
        const int64_t programs = M;
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        if (blocks > 0) {
            unpack_int4_1<<<static_cast<unsigned>(blocks), 128, 2304>>>(PACKED, SCALE, Y, M, N,
                programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
