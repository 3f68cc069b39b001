// half_matmul: C = A @ B in f16, summed in f32 by matrix units. Four warps make 64 x 64 elements of
// C, a quarter each as 2 x 2 fragments of 16 x 16.

#include <cstdint>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <mma.h>

namespace {

namespace wmma = nvcuda::wmma;

constexpr int tile = 64;
constexpr int depth = 32;
constexpr int threads = 128;

using left_part = wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major>;
using right_part = wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major>;
using sum_part = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;

// Copies a tile of rows x columns elements; what does not exist becomes 0.
template <int rows, int columns, int pitch>
__device__ void copy(const half *from, int64_t M, int64_t N, int64_t row0, int64_t column0,
                     half (*to)[pitch])
{
    for (int n = static_cast<int>(threadIdx.x); n < rows * columns; n += threads) {
        const int64_t m = row0 + n / columns;
        const int64_t k = column0 + n % columns;
        to[n / columns][n % columns] = m < M && k < N ? from[m * N + k] : __float2half(0.0F);
    }
}

__global__ void multiplied(const half *__restrict A, const half *__restrict B, half *__restrict C,
                           int64_t M, int64_t N, int64_t K)
{
    // Fragments begin on 32 bytes and their rows on 16; the 8 (or 4) more spread the banks.
    __shared__ __align__(32) half a[tile][depth + 8];
    __shared__ __align__(32) half b[depth][tile + 8];
    __shared__ __align__(32) float c[tile][tile + 4];
    const int64_t columns = (N + tile - 1) / tile;
    const int64_t row0 = blockIdx.x / columns * tile;
    const int64_t column0 = blockIdx.x % columns * tile;
    const int row = static_cast<int>(threadIdx.x) / 64 * 32;
    const int column = static_cast<int>(threadIdx.x) / 32 % 2 * 32;
    sum_part sums[2][2];
    for (int part = 0; part < 4; ++part) {
        wmma::fill_fragment(sums[part / 2][part % 2], 0.0F);
    }
    for (int64_t start = 0; start < K; start += depth) {
        copy<tile, depth>(A, M, K, row0, start, a);
        copy<depth, tile>(B, K, N, start, column0, b);
        __syncthreads();
        #pragma unroll
        for (int k = 0; k < depth; k += 16) {
            left_part left[2];
            right_part right[2];
            for (int part = 0; part < 2; ++part) {
                wmma::load_matrix_sync(left[part], &a[row + 16 * part][k], depth + 8);
                wmma::load_matrix_sync(right[part], &b[k][column + 16 * part], tile + 8);
            }
            for (int part = 0; part < 4; ++part) {
                sum_part &sum = sums[part / 2][part % 2];
                wmma::mma_sync(sum, left[part / 2], right[part % 2], sum);
            }
        }
        __syncthreads();
    }
    for (int part = 0; part < 4; ++part) {
        float *const to = &c[row + part / 2 * 16][column + part % 2 * 16];
        wmma::store_matrix_sync(to, sums[part / 2][part % 2], tile + 4, wmma::mem_row_major);
    }
    __syncthreads();
    for (int n = static_cast<int>(threadIdx.x); n < tile * tile; n += threads) {
        const int64_t m = row0 + n / tile;
        const int64_t k = column0 + n % tile;
        if (m < M && k < N) {
            C[m * N + k] = __float2half(c[n / tile][n % tile]);
        }
    }
}

} // namespace

extern "C" int64_t half_matmul(const uint16_t *__restrict A, const uint16_t *__restrict B,
                               uint16_t *__restrict C, int64_t M, int64_t N, int64_t K)
{
    const int64_t blocks = ((M + tile - 1) / tile) * ((N + tile - 1) / tile);
    if (blocks > 0) {
        const auto *const a = reinterpret_cast<const half *>(A);
        const auto *const b = reinterpret_cast<const half *>(B);
        auto *const c = reinterpret_cast<half *>(C);
        multiplied<<<static_cast<unsigned>(blocks), threads>>>(a, b, c, M, N, K);
    }
    return cudaGetLastError() == cudaSuccess ? 0 : -2;
}
