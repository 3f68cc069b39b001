// noise: Philox4x32-10, a lane a thread.

#include <algorithm>
#include <cstdint>
#include <cuda_runtime.h>

namespace {

// Uniform in [0, 1), a multiple of 2^-24, bit for bit as every target makes it.
__device__ float uniform(uint64_t seed, uint64_t offset)
{
    uint32_t c[4] = {static_cast<uint32_t>(offset), static_cast<uint32_t>(offset >> 32), 0, 0};
    uint32_t low = static_cast<uint32_t>(seed);
    uint32_t high = static_cast<uint32_t>(seed >> 32);
    #pragma unroll
    for (int round = 0; round < 10; ++round) {
        const uint64_t a = uint64_t{0xD2511F53U} * c[0];
        const uint64_t b = uint64_t{0xCD9E8D57U} * c[2];
        c[0] = static_cast<uint32_t>(b >> 32) ^ c[1] ^ low;
        c[1] = static_cast<uint32_t>(b);
        c[2] = static_cast<uint32_t>(a >> 32) ^ c[3] ^ high;
        c[3] = static_cast<uint32_t>(a);
        low += 0x9E3779B9U;
        high += 0xBB67AE85U;
    }
    return static_cast<float>(c[0] >> 8) * 0x1p-24F;
}

__global__ void noisy(const float *__restrict X, float *__restrict Y, int64_t N, uint64_t seed,
                      float factor)
{
    const int64_t step = int64_t{gridDim.x} * blockDim.x;
    for (int64_t n = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; n < N; n += step) {
        Y[n] = X[n] + factor * uniform(seed, static_cast<uint64_t>(n));
    }
}

} // namespace

extern "C" int64_t noise(const float *__restrict X, float *__restrict Y, int64_t N, int64_t seed,
                         double scale)
{
    if (N > 0) {
        const unsigned blocks = static_cast<unsigned>(std::min<int64_t>((N + 255) / 256, 4096));
        const float factor = static_cast<float>(scale);
        noisy<<<blocks, 256>>>(X, Y, N, static_cast<uint64_t>(seed), factor);
    }
    return cudaGetLastError() == cudaSuccess ? 0 : -2;
}
