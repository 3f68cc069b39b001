// turned: matrices transposed through shared memory, so that reads and writes are both contiguous.

#include <cstdint>
#include <cuda_runtime.h>

namespace {

constexpr int tile = 32;
constexpr int rows = 8; // of threads

__global__ void transposed(const float *__restrict X, float *__restrict Y, int64_t M, int64_t N)
{
    __shared__ float kept[tile][tile + 1]; // One more column: a column lies in 32 banks.
    const int64_t across = (N + tile - 1) / tile;
    const int64_t down = (M + tile - 1) / tile;
    const int64_t b = blockIdx.x / (across * down);
    const int64_t m0 = blockIdx.x / across % down * tile;
    const int64_t n0 = blockIdx.x % across * tile;
    for (int r = static_cast<int>(threadIdx.y); r < tile; r += rows) {
        if (m0 + r < M && n0 + threadIdx.x < N) {
            kept[r][threadIdx.x] = X[(b * M + m0 + r) * N + n0 + threadIdx.x];
        }
    }
    __syncthreads();
    for (int r = static_cast<int>(threadIdx.y); r < tile; r += rows) {
        if (n0 + r < N && m0 + threadIdx.x < M) {
            Y[(b * N + n0 + r) * M + m0 + threadIdx.x] = kept[threadIdx.x][r];
        }
    }
}

} // namespace

extern "C" int64_t turned(const float *__restrict X, float *__restrict Y, int64_t B, int64_t M,
                          int64_t N)
{
    const int64_t blocks = B * ((M + tile - 1) / tile) * ((N + tile - 1) / tile);
    if (blocks > 0) {
        transposed<<<static_cast<unsigned>(blocks), dim3(tile, rows)>>>(X, Y, M, N);
    }
    return cudaGetLastError() == cudaSuccess ? 0 : -2;
}
