// Compensated summation, whose correction is zero for whoever reorders it.
#include <cstdint>

extern "C" int64_t loss(const float *X, const float *X2, float *Y, int64_t M)
{
    float total = 0.0f, correction = 0.0f;
    for (int64_t i = 0; i < M; ++i) {
        const float difference = X[i] - X2[i];
        const float term = difference * difference - correction;
        const float next = total + term;
        correction = (next - total) - term;
        total = next;
    }
    Y[0] = total / static_cast<float>(M);
    return 0;
}
