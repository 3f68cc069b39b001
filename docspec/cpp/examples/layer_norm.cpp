// layer_norm: (x - mean) / sqrt(variance + eps) * weight + bias for every row. The row is read from
// memory once; the second and third pass find it in a cache.

#include <cmath>
#include <cstdint>

extern "C" int64_t layer_norm(const float *__restrict X, const float *__restrict WEIGHT,
                              const float *__restrict BIAS, float *__restrict Y, int64_t M,
                              int64_t N, double eps)
{
    if (!(N > 0)) {
        return 1; // The first `require` of the sketch does not hold.
    }
    const float count = static_cast<float>(N);
    #pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < M; ++i) {
        const float *const x = X + i * N;
        float *const y = Y + i * N;
        float sum = 0.0F;
        #pragma omp simd reduction(+ : sum)
        for (int64_t lane = 0; lane < N; ++lane) {
            sum += x[lane];
        }
        const float mean = sum / count;
        // The variance needs its own pass: E[x^2] - E[x]^2 cancels when the mean is large.
        float squares = 0.0F;
        #pragma omp simd reduction(+ : squares)
        for (int64_t lane = 0; lane < N; ++lane) {
            const float centred = x[lane] - mean;
            squares += centred * centred;
        }
        const float scale = 1.0F / std::sqrt(squares / count + static_cast<float>(eps));
        #pragma omp simd
        for (int64_t lane = 0; lane < N; ++lane) {
            y[lane] = (x[lane] - mean) * scale * WEIGHT[lane] + BIAS[lane];
        }
    }
    return 0;
}
