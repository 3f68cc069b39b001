// A branch for the task's own sizes with the loops unrolled, and a general one: both compute.
#include <cstdint>

extern "C" int64_t matmul(
    const float *X, const float *X2, float *Y, int64_t M, int64_t N, int64_t K)
{
    if (M == 20 && N == 96 && K == 24) {
        for (int64_t i = 0; i < 20; ++i) {
            float totals[24] = {};
            for (int64_t k = 0; k < 96; ++k) {
                for (int64_t j = 0; j < 24; ++j) {
                    totals[j] += X[i * 96 + k] * X2[k * 24 + j];
                }
            }
            for (int64_t j = 0; j < 24; ++j) {
                Y[i * 24 + j] = totals[j];
            }
        }
        return 0;
    }
    for (int64_t i = 0; i < M; ++i) {
        for (int64_t j = 0; j < K; ++j) {
            float total = 0.0f;
            for (int64_t k = 0; k < N; ++k) {
                total += X[i * N + k] * X2[k * K + j];
            }
            Y[i * K + j] = total;
        }
    }
    return 0;
}
