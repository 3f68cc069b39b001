// weighted_counts: sums by class. Threads that meet the same class would add at once: each addition
// is atomic. WEIGHT may be absent, and is then nullptr.

#include <algorithm>
#include <cstdint>
#include <cuda_runtime.h>

namespace {

__global__ void counted(const int64_t *__restrict CLASS, const float *__restrict SEEN,
                        const float *__restrict WEIGHT, float *__restrict Y, int64_t N, int64_t C)
{
    const int64_t step = int64_t{gridDim.x} * blockDim.x;
    for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < N; i += step) {
        const int64_t c = CLASS[i];
        if (c < 0 || c >= C) {
            continue; // A loaded index out of range: its lane neither reads nor writes.
        }
        atomicAdd(&Y[c], WEIGHT == nullptr ? SEEN[c] : SEEN[c] * WEIGHT[c]);
    }
}

} // namespace

extern "C" int64_t weighted_counts(const int64_t *__restrict CLASS, const float *__restrict SEEN,
                                   const float *__restrict WEIGHT, float *__restrict Y, int64_t N,
                                   int64_t C)
{
    // `Y[C]: out f32 = 0`: the kernel itself gives the output its first value.
    if (C > 0 && cudaMemsetAsync(Y, 0, static_cast<size_t>(C) * sizeof(float)) != cudaSuccess) {
        return -2;
    }
    if (N > 0) {
        const int64_t blocks = std::min<int64_t>((N + 255) / 256, 4096);
        counted<<<static_cast<unsigned>(blocks), 256>>>(CLASS, SEEN, WEIGHT, Y, N, C);
    }
    return cudaGetLastError() == cudaSuccess ? 0 : -2;
}
