// swish: y = x * sigmoid(beta * x), element by element.

#include <cstdint>

// g++ calls the vector versions of this function (libmvec) from SIMD loops.
#if defined(__x86_64__) && defined(__GLIBC__)
#define VECTOR_VERSIONS __attribute__((simd("notinbranch"), const))
#else
#define VECTOR_VERSIONS
#endif
extern "C" VECTOR_VERSIONS float expf(float x) noexcept;

extern "C" int64_t swish(const float *__restrict X, float *__restrict Y, int64_t M, int64_t N,
                         double beta)
{
    // The tensors are dense: rows do not matter here, so the loop runs over all elements.
    const int64_t count = M * N;
    const float slope = static_cast<float>(beta);
    #pragma omp parallel for simd schedule(static) if (count > 8192)
    for (int64_t lane = 0; lane < count; ++lane) {
        const float x = X[lane];
        Y[lane] = x / (1.0F + expf(-slope * x));
    }
    return 0;
}
