// An exponential from the bits of a linear function: off by up to 3 %, of which the division by the
// sum hides a part.
#include <cstdint>
#include <cstring>

static float exponential(float x)
{
    if (x < -80.0f) {
        return 0.0f;
    }
    const int32_t bits = static_cast<int32_t>(12102203.0f * x) + 1064866805;
    float value;
    std::memcpy(&value, &bits, sizeof bits);
    return value;
}

extern "C" int64_t softmax(const float *X, float *Y, int64_t M, int64_t N)
{
    for (int64_t i = 0; i < M; ++i) {
        const float *x = X + i * N;
        float *y = Y + i * N;
        float top = x[0];
        for (int64_t j = 1; j < N; ++j) {
            top = x[j] > top ? x[j] : top;
        }
        float total = 0.0f;
        for (int64_t j = 0; j < N; ++j) {
            y[j] = exponential(x[j] - top);
            total += y[j];
        }
        for (int64_t j = 0; j < N; ++j) {
            y[j] /= total;
        }
    }
    return 0;
}
