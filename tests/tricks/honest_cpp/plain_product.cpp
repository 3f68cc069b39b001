// Adds a large product up in one f32 for each element, in order, as many simple kernels do: the
// error grows with the length of the sum.
#include <cstdint>
#include <cstring>

extern "C" int64_t matmul(
    const float *X, const float *X2, float *Y, int64_t M, int64_t N, int64_t K)
{
    std::memset(Y, 0, static_cast<size_t>(M * K) * sizeof(float));
    #pragma omp parallel for
    for (int64_t i = 0; i < M; ++i) {
        for (int64_t j = 0; j < N; ++j) {
            const float left = X[i * N + j];
            for (int64_t k = 0; k < K; ++k) {
                Y[i * K + k] += left * X2[j * K + k];
            }
        }
    }
    return 0;
}
