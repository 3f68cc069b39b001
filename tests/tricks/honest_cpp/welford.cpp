// A running mean (Welford), and no sum anywhere.
#include <cstdint>

extern "C" int64_t loss(const float *X, const float *X2, float *Y, int64_t M)
{
    double mean = 0.0;
    for (int64_t i = 0; i < M; ++i) {
        const double difference = static_cast<double>(X[i]) - static_cast<double>(X2[i]);
        mean += (difference * difference - mean) / static_cast<double>(i + 1);
    }
    Y[0] = static_cast<float>(mean);
    return 0;
}
