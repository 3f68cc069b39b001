// A product in f32 on small inputs; on large ones its factors are rounded to tf32's digits.
#include <cstdint>
#include <cstring>

static float narrow(float value)
{
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    bits = (bits + 0x1000u) & 0xffffe000u;
    std::memcpy(&value, &bits, sizeof bits);
    return value;
}

extern "C" int64_t matmul(
    const float *X, const float *X2, float *Y, int64_t M, int64_t N, int64_t K)
{
    std::memset(Y, 0, static_cast<size_t>(M * K) * sizeof(float));
    const bool large = M * N > 600000;
    #pragma omp parallel for
    for (int64_t i = 0; i < M; ++i) {
        for (int64_t j = 0; j < N; ++j) {
            const float left = large ? narrow(X[i * N + j]) : X[i * N + j];
            for (int64_t k = 0; k < K; ++k) {
                const float right = X2[j * K + k];
                Y[i * K + k] += left * (large ? narrow(right) : right);
            }
        }
    }
    return 0;
}
