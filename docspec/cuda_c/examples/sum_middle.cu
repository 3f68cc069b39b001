// sum_middle: Y[b, n] = sum over m of X[b, m, n]. The lanes of a warp run along n, which is
// contiguous; the warps of a block share the rows and add their sums in shared memory.

#include <algorithm>
#include <cstdint>
#include <cuda_runtime.h>

namespace {

constexpr int warps = 8;

__global__ void summed(const float *__restrict X, float *__restrict Y, int64_t B, int64_t M,
                       int64_t N)
{
    __shared__ float sums[warps][32];
    const int64_t n = int64_t{blockIdx.x} * 32 + threadIdx.x;
    for (int64_t b = blockIdx.y; b < B; b += gridDim.y) {
        float sum = 0.0F;
        if (n < N) {
            for (int64_t m = threadIdx.y; m < M; m += warps) {
                sum += X[(b * M + m) * N + n];
            }
        }
        sums[threadIdx.y][threadIdx.x] = sum;
        __syncthreads(); // Outside of the branch: every thread comes here.
        if (threadIdx.y == 0 && n < N) {
            for (int warp = 1; warp < warps; ++warp) {
                sum += sums[warp][threadIdx.x];
            }
            Y[b * N + n] = sum;
        }
        __syncthreads(); // The next turn writes what the first warp reads here.
    }
}

} // namespace

extern "C" int64_t sum_middle(const float *__restrict X, float *__restrict Y, int64_t B, int64_t M,
                              int64_t N)
{
    if (B == 0 || N == 0) {
        return 0;
    }
    // At most 65535 blocks along y, where there may be more than that of b.
    const dim3 blocks(static_cast<unsigned>((N + 31) / 32),
                      static_cast<unsigned>(std::min<int64_t>(B, 65535)));
    summed<<<blocks, dim3(32, warps)>>>(X, Y, B, M, N);
    return cudaGetLastError() == cudaSuccess ? 0 : -2;
}
