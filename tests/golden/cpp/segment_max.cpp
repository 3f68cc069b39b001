// segment_max: a C++ kernel for cpu, made from a sketch.

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

// The library: least_shared_work, threads_for, floor_div, ceil_div, max, atomic_update,
// atomic_max.

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  N >= 0 and S >= 0
extern "C" int64_t segment_max(
    const float *__restrict X, const int32_t *__restrict SEGMENT, const float *__restrict WEIGHT,
    float *__restrict Y, int64_t N, int64_t S)
{
    constexpr int64_t T = 1024;

    if (N < 0 || S < 0) {
        return 1;
    }
    // Y starts as -inf.
    #pragma omp parallel for simd num_threads(sketch::threads_for(S * 4)) schedule(static)
    for (int64_t element = 0; element < S; ++element) {
        Y[element] = -std::numeric_limits<float>::infinity();
    }
    const int threads = sketch::threads_for(N * 22);
    #pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < sketch::ceil_div(N, T); ++i) {
        // load(X[i*T:(i+1)*T] -> x)
        // load(SEGMENT[i*T:(i+1)*T] -> segment)
        // load(WEIGHT[segment] -> weight)
        // mul(x, weight, x)
        // atomic_max(x -> Y[segment])
        for (int64_t lane = 0; lane < std::min<int64_t>(T, N - i * T); ++lane) {
            const float x = X[i * T + lane];
            const int32_t segment = SEGMENT[i * T + lane];
            const int64_t segment_index = static_cast<int64_t>(segment);
            const float weight = (0 <= segment_index && segment_index < S) ? WEIGHT[segment_index] :
                0.0f;
            const float x_mul = x * weight;
            if (0 <= segment_index && segment_index < S) {
                sketch::atomic_max(&Y[segment_index], x_mul);
            }
        }
    }
    return 0;
}
