// long_softmax: rows of any length. One pass keeps a running maximum and a running sum, which is
// corrected whenever the maximum grows; the second pass normalises.

#include <cstdint>
#include <cuda_runtime.h>

namespace {

constexpr int threads = 256;

// The largest of some values, and the sum of the exponentials of their distances from it.
struct running {
    float top;
    float total;
};

// `top` is -inf where there was no value; -inf - -inf would be NaN.
__device__ float correction(float top, float new_top)
{
    return top == new_top ? 1.0F : expf(top - new_top);
}

__device__ running joined(running a, running b)
{
    const float top = fmaxf(a.top, b.top);
    return {top, a.total * correction(a.top, top) + b.total * correction(b.top, top)};
}

__global__ void softmax_rows(const float *__restrict X, float *__restrict Y, int64_t N)
{
    __shared__ running parts[threads / 32];
    const float *const x = X + int64_t{blockIdx.x} * N;
    float *const y = Y + int64_t{blockIdx.x} * N;
    running own{-INFINITY, 0.0F};
    for (int64_t lane = threadIdx.x; lane < N; lane += threads) {
        own = joined(own, {x[lane], 1.0F});
    }
    for (int distance = 16; distance > 0; distance /= 2) {
        running other;
        other.top = __shfl_xor_sync(0xffffffffU, own.top, distance);
        other.total = __shfl_xor_sync(0xffffffffU, own.total, distance);
        own = joined(own, other);
    }
    if (threadIdx.x % 32 == 0) {
        parts[threadIdx.x / 32] = own;
    }
    __syncthreads();
    own = parts[0];
    for (int warp = 1; warp < threads / 32; ++warp) {
        own = joined(own, parts[warp]);
    }
    for (int64_t lane = threadIdx.x; lane < N; lane += threads) {
        y[lane] = expf(x[lane] - own.top) / own.total;
    }
}

} // namespace

extern "C" int64_t long_softmax(const float *__restrict X, float *__restrict Y, int64_t M,
                                int64_t N)
{
    if (M > 0 && N > 0) {
        softmax_rows<<<static_cast<unsigned>(M), threads>>>(X, Y, N);
    }
    return cudaGetLastError() == cudaSuccess ? 0 : -2;
}
