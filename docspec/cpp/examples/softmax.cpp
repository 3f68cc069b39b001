// softmax of every row: the largest, then exponentials and their sum, then one scaling. The row of
// Y holds the exponentials in between; it is in the first-level cache when they are read again.

#include <cstdint>
#include <limits>

#if defined(__x86_64__) && defined(__GLIBC__)
#define VECTOR_VERSIONS __attribute__((simd("notinbranch"), const))
#else
#define VECTOR_VERSIONS
#endif
extern "C" VECTOR_VERSIONS float expf(float x) noexcept;

extern "C" int64_t softmax(const float *__restrict X, float *__restrict Y, int64_t M, int64_t N)
{
    #pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < M; ++i) {
        const float *const x = X + i * N;
        float *const y = Y + i * N;
        // This maximum may skip NaN: the sum below meets every NaN of the row.
        float largest = -std::numeric_limits<float>::infinity();
        #pragma omp simd reduction(max : largest)
        for (int64_t lane = 0; lane < N; ++lane) {
            largest = x[lane] > largest ? x[lane] : largest;
        }
        float total = 0.0F;
        #pragma omp simd reduction(+ : total)
        for (int64_t lane = 0; lane < N; ++lane) {
            const float power = expf(x[lane] - largest);
            y[lane] = power;
            total += power;
        }
        const float scale = 1.0F / total;
        #pragma omp simd
        for (int64_t lane = 0; lane < N; ++lane) {
            y[lane] *= scale;
        }
    }
    return 0;
}
