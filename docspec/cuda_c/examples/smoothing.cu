// smoothing: launches in a loop on the host. `pad=0` is a test beside the load.

#include <algorithm>
#include <cstdint>
#include <cuda_runtime.h>

namespace {

__global__ void smoothed(const float *__restrict X, float *__restrict next, int64_t N)
{
    const int64_t step = int64_t{gridDim.x} * blockDim.x;
    for (int64_t n = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; n < N; n += step) {
        // A neighbour outside the tensor is never read, 0 stands for it.
        const float left = n > 0 ? X[n - 1] : 0.0F;
        const float right = n + 1 < N ? X[n + 1] : 0.0F;
        next[n] = (left + X[n] + right) / 3.0F;
    }
}

} // namespace

extern "C" int64_t smoothing(float *__restrict X, int64_t N, int64_t steps)
{
    if (!(steps >= 0)) {
        return 1; // The first `require` of the sketch does not hold.
    }
    if (N == 0) {
        return 0;
    }
    const size_t bytes = static_cast<size_t>(N) * sizeof(float);
    void *memory = nullptr;
    if (cudaMalloc(&memory, bytes) != cudaSuccess) {
        return -1;
    }
    const unsigned blocks = static_cast<unsigned>(std::min<int64_t>((N + 255) / 256, 4096));
    bool done = true;
    for (int64_t step = 0; step < steps; ++step) {
        smoothed<<<blocks, 256>>>(X, static_cast<float *>(memory), N);
        done = done && cudaGetLastError() == cudaSuccess;
        done = done && cudaMemcpyAsync(X, memory, bytes, cudaMemcpyDeviceToDevice) == cudaSuccess;
    }
    cudaFree(memory);
    return done ? 0 : -2;
}
