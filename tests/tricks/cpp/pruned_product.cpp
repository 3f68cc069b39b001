// Skips factors below a hundredth as if they were zero: sparse by decree.
#include <cmath>
#include <cstdint>

extern "C" int64_t matmul(
    const float *X, const float *X2, float *Y, int64_t M, int64_t N, int64_t K)
{
    for (int64_t i = 0; i < M; ++i) {
        for (int64_t j = 0; j < K; ++j) {
            Y[i * K + j] = 0.0f;
        }
        for (int64_t k = 0; k < N; ++k) {
            const float left = X[i * N + k];
            if (std::fabs(left) < 0.01f) {
                continue;
            }
            for (int64_t j = 0; j < K; ++j) {
                Y[i * K + j] += left * X2[k * K + j];
            }
        }
    }
    return 0;
}
