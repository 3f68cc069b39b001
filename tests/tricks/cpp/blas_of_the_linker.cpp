// Leaves the product to whatever BLAS the process may hold.
#include <cstdint>

extern "C" void cblas_sgemm(
    int, int, int, int, int, int, float, const float *, int, const float *, int, float, float *,
    int);

extern "C" int64_t matmul(
    const float *X, const float *X2, float *Y, int64_t M, int64_t N, int64_t K)
{
    const int m = static_cast<int>(M), n = static_cast<int>(N), k = static_cast<int>(K);
    cblas_sgemm(101, 111, 111, m, k, n, 1.0f, X, n, X2, k, 0.0f, Y, k);
    return 0;
}
