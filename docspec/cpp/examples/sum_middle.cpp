// sum_middle: Y[b, n] = sum over m of X[b, m, n]. Lanes run along n, which is contiguous, so that
// nothing crosses lanes; four rows are added before the accumulators are written back.

#include <algorithm>
#include <cstdint>

namespace {

// Columns per task: their accumulators (8 KiB) and four rows of X stay in the first-level cache.
constexpr int64_t width = 2048;

} // namespace

extern "C" int64_t sum_middle(const float *__restrict X, float *__restrict Y, int64_t B, int64_t M,
                              int64_t N)
{
    #pragma omp parallel for collapse(2) schedule(static)
    for (int64_t b = 0; b < B; ++b) {
        for (int64_t start = 0; start < N; start += width) {
            const int64_t size = std::min(width, N - start);
            const float *const x = X + b * M * N + start;
            alignas(64) float sums[width];
            std::fill_n(sums, size, 0.0F);
            int64_t m = 0;
            for (; m + 4 <= M; m += 4) {
                const float *const row = x + m * N;
                #pragma omp simd
                for (int64_t lane = 0; lane < size; ++lane) {
                    sums[lane] += (row[lane] + row[N + lane])
                                  + (row[2 * N + lane] + row[3 * N + lane]);
                }
            }
            for (; m < M; ++m) {
                const float *const row = x + m * N;
                #pragma omp simd
                for (int64_t lane = 0; lane < size; ++lane) {
                    sums[lane] += row[lane];
                }
            }
            std::copy_n(sums, size, Y + b * N + start);
        }
    }
    return 0;
}
