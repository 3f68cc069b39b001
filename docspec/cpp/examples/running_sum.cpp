// running_sum: running sums of every row. A scan is a chain of additions: one plain loop with the
// carry in a register, rows side by side on the threads.

#include <cstdint>

extern "C" int64_t running_sum(const float *__restrict X, float *__restrict Y, int64_t M, int64_t N)
{
    #pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < M; ++i) {
        const float *const x = X + i * N;
        float *const y = Y + i * N;
        double total = 0.0; // Wide, so that long rows lose nothing.
        for (int64_t lane = 0; lane < N; ++lane) {
            total += static_cast<double>(x[lane]);
            y[lane] = static_cast<float>(total);
        }
    }
    return 0;
}
