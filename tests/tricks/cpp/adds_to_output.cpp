// Accumulates into the output as if somebody had cleared it.
#include <cstdint>

extern "C" int64_t matmul(
    const float *X, const float *X2, float *Y, int64_t M, int64_t N, int64_t K)
{
    for (int64_t i = 0; i < M; ++i) {
        for (int64_t k = 0; k < N; ++k) {
            for (int64_t j = 0; j < K; ++j) {
                Y[i * K + j] += X[i * N + k] * X2[k * K + j];
            }
        }
    }
    return 0;
}
