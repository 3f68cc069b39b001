// abs_max: the largest |x| of a tensor; NaN wins. Each block leaves one number in a workspace, and
// one block of a second launch reduces those.

#include <cstdint>
#include <cuda_runtime.h>

namespace {

constexpr int threads = 256;
constexpr int64_t block_size = 16384;

// The larger; NaN wins.
__device__ float larger(float a, float b)
{
    const float high = b > a ? b : a;
    return b != b ? b : high;
}

// The largest |x| of `count` elements, which the threads of a block share.
__device__ float largest_of(const float *x, int64_t count)
{
    __shared__ float parts[threads / 32];
    float value = 0.0F;
    for (int64_t n = threadIdx.x; n < count; n += threads) {
        value = larger(value, fabsf(x[n]));
    }
    for (int distance = 16; distance > 0; distance /= 2) {
        value = larger(value, __shfl_xor_sync(0xffffffffU, value, distance));
    }
    if (threadIdx.x % 32 == 0) {
        parts[threadIdx.x / 32] = value;
    }
    __syncthreads();
    for (int warp = 0; warp < threads / 32; ++warp) {
        value = larger(value, parts[warp]);
    }
    return value;
}

__global__ void of_blocks(const float *__restrict X, float *__restrict partial, int64_t N)
{
    const int64_t start = int64_t{blockIdx.x} * block_size;
    const int64_t count = N - start < block_size ? N - start : block_size;
    const float value = largest_of(X + start, count);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = value;
    }
}

__global__ void of_partial(const float *__restrict partial, float *__restrict Y, int64_t blocks)
{
    const float value = largest_of(partial, blocks);
    if (threadIdx.x == 0) {
        Y[0] = value;
    }
}

} // namespace

extern "C" int64_t abs_max(const float *__restrict X, float *__restrict Y, int64_t N)
{
    const int64_t blocks = (N + block_size - 1) / block_size;
    void *memory = nullptr; // The sketch's workspace: an entry point has no argument for it.
    if (blocks > 0) {
        if (cudaMalloc(&memory, static_cast<size_t>(blocks) * sizeof(float)) != cudaSuccess) {
            return -1;
        }
        of_blocks<<<static_cast<unsigned>(blocks), threads>>>(X, static_cast<float *>(memory), N);
    }
    // Launches run one after the other: what the first one wrote, the second one sees.
    of_partial<<<1, threads>>>(static_cast<const float *>(memory), Y, blocks);
    const bool done = cudaGetLastError() == cudaSuccess;
    cudaFree(memory); // Waits for the kernels; of a null pointer it is nothing.
    return done ? 0 : -2;
}
