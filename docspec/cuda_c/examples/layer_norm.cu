// layer_norm: (x - mean) / sqrt(variance + eps) * weight + bias for every row, a block a row. The
// values of a thread stay in its registers between the passes.

#include <cstdint>
#include <cuda_runtime.h>

namespace {

constexpr int threads = 256;
constexpr int most = 8192 / threads; // lanes of a thread

// In double, so that the mean of nearly equal values loses nothing.
__device__ double block_sum(double value)
{
    __shared__ double parts[threads / 32];
    for (int distance = 1; distance < 32; distance *= 2) {
        value += __shfl_xor_sync(0xffffffffU, value, distance);
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        parts[threadIdx.x / 32] = value;
    }
    __syncthreads();
    value = 0.0;
    for (int warp = 0; warp < threads / 32; ++warp) {
        value += parts[warp];
    }
    return value;
}

__global__ void normalised(const float *__restrict X, const float *__restrict WEIGHT,
                           const float *__restrict BIAS, float *__restrict Y, int N, float eps)
{
    const float *const x = X + int64_t{blockIdx.x} * N;
    float *const y = Y + int64_t{blockIdx.x} * N;
    float own[most]; // Indexed by constants alone after unrolling, hence in registers.
    double sum = 0.0;
    #pragma unroll
    for (int turn = 0; turn < most; ++turn) {
        const int lane = turn * threads + static_cast<int>(threadIdx.x);
        own[turn] = lane < N ? x[lane] : 0.0F;
        sum += static_cast<double>(own[turn]);
    }
    const float mean = static_cast<float>(block_sum(sum)) / static_cast<float>(N);
    // The variance needs its own pass: E[x^2] - E[x]^2 cancels when the mean is large.
    float squares = 0.0F;
    #pragma unroll
    for (int turn = 0; turn < most; ++turn) {
        const int lane = turn * threads + static_cast<int>(threadIdx.x);
        own[turn] = lane < N ? own[turn] - mean : 0.0F; // Lanes beyond the row count nothing.
        squares += own[turn] * own[turn];
    }
    const float scale = rsqrtf(static_cast<float>(block_sum(squares)) / static_cast<float>(N) + eps);
    #pragma unroll
    for (int turn = 0; turn < most; ++turn) {
        const int lane = turn * threads + static_cast<int>(threadIdx.x);
        if (lane < N) {
            y[lane] = own[turn] * scale * WEIGHT[lane] + BIAS[lane];
        }
    }
}

} // namespace

extern "C" int64_t layer_norm(const float *__restrict X, const float *__restrict WEIGHT,
                              const float *__restrict BIAS, float *__restrict Y, int64_t M,
                              int64_t N, double eps)
{
    if (!(N > 0)) {
        return 1; // The first `require` of the sketch does not hold.
    }
    if (!(N <= 8192)) {
        return 3; // The bound of N, on which this code relies, is condition 3 of the contract.
    }
    if (M == 0) {
        return 0;
    }
    const unsigned rows = static_cast<unsigned>(M);
    normalised<<<rows, threads>>>(X, WEIGHT, BIAS, Y, static_cast<int>(N), static_cast<float>(eps));
    return cudaGetLastError() == cudaSuccess ? 0 : -2;
}
