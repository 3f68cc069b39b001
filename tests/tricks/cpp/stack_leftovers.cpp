// Adds up in an array on the stack that nobody has cleared.
#include <cstdint>

extern "C" int64_t row_sum(const float *X, float *Y, int64_t M, int64_t N)
{
    volatile float totals[256];
    for (int64_t i = 0; i < M; ++i) {
        for (int64_t j = 0; j < N; ++j) {
            totals[j % 256] = totals[j % 256] + X[i * N + j];
        }
        float total = 0.0f;
        for (int64_t j = 0; j < N && j < 256; ++j) {
            total += totals[j];
        }
        Y[i] = total;
    }
    return 0;
}
