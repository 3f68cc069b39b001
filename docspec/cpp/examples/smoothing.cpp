// smoothing: launches in a loop on the host. Padding is a test beside the load; the inner elements
// need none.

#include <algorithm>
#include <cstdint>
#include <cstdlib>

extern "C" int64_t smoothing(float *__restrict X, int64_t N, int64_t steps)
{
    if (!(steps >= 0)) {
        return 1; // The first `require` of the sketch does not hold.
    }
    if (N == 0) {
        return 0;
    }
    float *const next = static_cast<float *>(std::malloc(static_cast<size_t>(N) * sizeof(float)));
    if (next == nullptr) {
        return -1;
    }
    for (int64_t step = 0; step < steps; ++step) {
        // `pad=0`: a neighbour outside the tensor is never read, 0 stands for it.
        next[0] = (X[0] + (N > 1 ? X[1] : 0.0F)) / 3.0F;
        next[N - 1] = ((N > 1 ? X[N - 2] : 0.0F) + X[N - 1]) / 3.0F;
        #pragma omp parallel for simd schedule(static) if (N > 8192)
        for (int64_t lane = 1; lane < N - 1; ++lane) {
            next[lane] = (X[lane - 1] + X[lane] + X[lane + 1]) / 3.0F;
        }
        // The end of the parallel loop is the barrier between the two launches.
        std::copy(next, next + N, X);
    }
    std::free(next);
    return 0;
}
