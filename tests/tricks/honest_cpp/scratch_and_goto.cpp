// Scratch memory from malloc, freed on the one way out that `goto` leads to.
#include <cstdint>
#include <cstdlib>

extern "C" int64_t row_sum(const float *X, float *Y, int64_t M, int64_t N)
{
    int64_t status = 0;
    auto *partial = static_cast<double *>(std::malloc(static_cast<size_t>(M) * sizeof(double)));
    if (partial == nullptr) {
        status = -1;
        goto done;
    }
    for (int64_t i = 0; i < M; ++i) {
        partial[i] = 0.0;
        for (int64_t j = 0; j < N; ++j) {
            partial[i] += static_cast<double>(X[i * N + j]);
        }
    }
    for (int64_t i = 0; i < M; ++i) {
        Y[i] = static_cast<float>(partial[i]);
    }
done:
    std::free(partial);
    return status;
}
