// Rounds at random, from the C library's generator: within tolerance on average, never the same.
#include <cstdint>
#include <cstdlib>

extern "C" int64_t row_sum(const float *X, float *Y, int64_t M, int64_t N)
{
    for (int64_t i = 0; i < M; ++i) {
        double total = 0.0;
        for (int64_t j = 0; j < N; ++j) {
            total += static_cast<double>(X[i * N + j]);
        }
        const double noise = static_cast<double>(std::rand() & 15) * 3e-8;
        Y[i] = static_cast<float>(total * (1.0 + noise));
    }
    return 0;
}
