// matmul_bias: Y = X @ W^T + BIAS for X [M, K] and W [N, K] in f32. A block makes a tile of Y; each
// of its threads keeps 4 x 4 sums in registers while the next tiles are copied to shared memory.

#include <cstdint>
#include <cuda_pipeline.h>
#include <cuda_runtime.h>

namespace {

constexpr int tile = 64;   // rows and columns of Y for a block
constexpr int depth = 16;  // steps of K in shared memory
constexpr int threads = 256;

// Element (k, line) of both operands, two tiles deep; 4 more columns spread the banks.
struct buffers {
    float x[2][depth][tile + 4];
    float w[2][depth][tile + 4];
};

// Starts the copy of `depth` elements of each line from `start` on; what does not exist becomes 0.
__device__ void fetch(const float *from, int64_t lines, int64_t K, int64_t line0, int64_t start,
                      float (*to)[tile + 4])
{
    for (int n = static_cast<int>(threadIdx.x); n < tile * depth; n += threads) {
        const int k = n % depth;
        const int line = n / depth;
        const bool inside = line0 + line < lines && start + k < K;
        const float *const place = from + (inside ? (line0 + line) * K + start + k : 0);
        __pipeline_memcpy_async(&to[k][line], place, 4, inside ? 0 : 4);
    }
}

__global__ void multiplied(const float *__restrict X, const float *__restrict W,
                           const float *__restrict BIAS, float *__restrict Y, int64_t M, int64_t N,
                           int64_t K)
{
    __shared__ buffers shared;
    const int64_t columns = (N + tile - 1) / tile;
    const int64_t row0 = blockIdx.x / columns * tile;
    const int64_t column0 = blockIdx.x % columns * tile;
    const int row = static_cast<int>(threadIdx.x) / 16 * 4;
    const int column = static_cast<int>(threadIdx.x) % 16 * 4;
    const int64_t steps = (K + depth - 1) / depth;
    float sums[4][4] = {};
    if (steps > 0) {
        fetch(X, M, K, row0, 0, shared.x[0]);
        fetch(W, N, K, column0, 0, shared.w[0]);
    }
    __pipeline_commit();
    for (int64_t step = 0; step < steps; ++step) {
        const int now = static_cast<int>(step % 2);
        if (step + 1 < steps) {
            fetch(X, M, K, row0, (step + 1) * depth, shared.x[1 - now]);
            fetch(W, N, K, column0, (step + 1) * depth, shared.w[1 - now]);
        }
        __pipeline_commit();
        __pipeline_wait_prior(1); // All groups of copies of this thread but the last are done,
        __syncthreads();          // and now those of all threads.
        #pragma unroll
        for (int k = 0; k < depth; ++k) {
            float x[4];
            float w[4];
            #pragma unroll
            for (int r = 0; r < 4; ++r) {
                x[r] = shared.x[now][k][row + r];
                w[r] = shared.w[now][k][column + r];
            }
            #pragma unroll
            for (int r = 0; r < 4; ++r) {
                #pragma unroll
                for (int c = 0; c < 4; ++c) {
                    sums[r][c] += x[r] * w[c];
                }
            }
        }
        __syncthreads(); // The next turn overwrites what was read here.
    }
    for (int r = 0; r < 4; ++r) {
        for (int c = 0; c < 4; ++c) {
            const int64_t m = row0 + row + r;
            const int64_t n = column0 + column + c;
            if (m < M && n < N) {
                Y[m * N + n] = sums[r][c] + BIAS[n];
            }
        }
    }
}

} // namespace

extern "C" int64_t matmul_bias(const float *__restrict X, const float *__restrict W,
                               const float *__restrict BIAS, float *__restrict Y, int64_t M,
                               int64_t N, int64_t K)
{
    const int64_t blocks = ((M + tile - 1) / tile) * ((N + tile - 1) / tile);
    if (blocks > 0) {
        multiplied<<<static_cast<unsigned>(blocks), threads>>>(X, W, BIAS, Y, M, N, K);
    }
    return cudaGetLastError() == cudaSuccess ? 0 : -2;
}
