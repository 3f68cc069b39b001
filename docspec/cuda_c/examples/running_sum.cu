// running_sum: running sums of every row. A block takes a row, 256 lanes at a time; the warps scan
// their lanes with shuffles, and what stands before a warp is added afterwards.

#include <cstdint>
#include <cuda_runtime.h>

namespace {

constexpr int threads = 256;

__global__ void scanned(const float *__restrict X, float *__restrict Y, int64_t N)
{
    __shared__ float totals[threads / 32];
    const float *const x = X + int64_t{blockIdx.x} * N;
    float *const y = Y + int64_t{blockIdx.x} * N;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    float carry = 0.0F; // The sum of all lanes before this turn, the same in every thread.
    for (int64_t start = 0; start < N; start += threads) {
        const int64_t n = start + threadIdx.x;
        float sum = n < N ? x[n] : 0.0F; // No thread leaves: shuffles and barriers need them all.
        for (int distance = 1; distance < 32; distance *= 2) {
            const float before = __shfl_up_sync(0xffffffffU, sum, distance);
            sum += lane >= distance ? before : 0.0F;
        }
        if (lane == 31) {
            totals[warp] = sum;
        }
        __syncthreads();
        float before = carry;
        for (int each = 0; each < threads / 32; ++each) {
            before += each < warp ? totals[each] : 0.0F;
            carry += totals[each];
        }
        __syncthreads();
        if (n < N) {
            y[n] = before + sum;
        }
    }
}

} // namespace

extern "C" int64_t running_sum(const float *__restrict X, float *__restrict Y, int64_t M, int64_t N)
{
    if (M > 0 && N > 0) {
        scanned<<<static_cast<unsigned>(M), threads>>>(X, Y, N);
    }
    return cudaGetLastError() == cudaSuccess ? 0 : -2;
}
