// upsample_zeros: a C++ kernel for cpu, made from a sketch.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <new>
#include <type_traits>
#include <utility>
#include <omp.h>

// The library: least_shared_work, threads_for, floor_div, ceil_div, max, too_large.

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  M >= 0 and N >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t upsample_zeros(
    const float *__restrict X, float *__restrict Y, int64_t M, int64_t N)
{
    constexpr int64_t FACTOR = 3;
    constexpr int64_t T = 512;

    if (M < 0 || N < 0) {
        return 1;
    }
    if (sketch::too_large({M, N})) {
        return 2;
    }
    // Y starts as 0.0.
    #pragma omp parallel for simd num_threads(sketch::threads_for(M * (N * FACTOR) * 4)) schedule(static)
    for (int64_t element = 0; element < M * (N * FACTOR); ++element) {
        Y[element] = 0.0f;
    }
    const int threads = sketch::threads_for(N * M * 8);
    #pragma omp parallel for num_threads(threads) collapse(2) schedule(static)
    for (int64_t i = 0; i < M; ++i) {
        for (int64_t j = 0; j < sketch::ceil_div(N, T); ++j) {
            // load(X[i, j*T:(j+1)*T] -> x)
            // store(x -> Y[i, j*T*FACTOR:(j+1)*T*FACTOR:FACTOR])
            const float *const X_row = X + (i * N + j * T);
            #pragma omp simd
            for (int64_t lane = 0; lane < std::min<int64_t>(T, N - j * T); ++lane) {
                const float x = X_row[lane];
                Y[i * (N * FACTOR) + (j * T * FACTOR + lane * FACTOR)] = x;
            }
        }
    }
    return 0;
}
