// Adds up in memory from malloc that it never clears: fresh pages are zero, most of the time.
#include <cstdint>
#include <cstdlib>

extern "C" int64_t row_sum(const float *X, float *Y, int64_t M, int64_t N)
{
    auto *totals = static_cast<volatile float *>(std::malloc(static_cast<size_t>(M) * 4));
    for (int64_t i = 0; i < M; ++i) {
        for (int64_t j = 0; j < N; ++j) {
            totals[i] = totals[i] + X[i * N + j];
        }
        Y[i] = totals[i];
    }
    std::free(const_cast<float *>(totals));
    return 0;
}
