// One pass for maximum and sum together: no pass that only looks for the maximum.
#include <cmath>
#include <cstdint>
#include <limits>

extern "C" int64_t softmax(const float *X, float *Y, int64_t M, int64_t N)
{
    for (int64_t i = 0; i < M; ++i) {
        const float *x = X + i * N;
        float top = -std::numeric_limits<float>::infinity(), total = 0.0f;
        for (int64_t j = 0; j < N; ++j) {
            const float now = std::fmax(top, x[j]);
            total = total * std::exp(top - now) + std::exp(x[j] - now);
            top = now;
        }
        for (int64_t j = 0; j < N; ++j) {
            Y[i * N + j] = std::exp(x[j] - top) / total;
        }
    }
    return 0;
}
