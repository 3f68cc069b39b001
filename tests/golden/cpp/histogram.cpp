// histogram: a C++ kernel for cpu, made from a sketch.

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

// The library: least_shared_work, threads_for, floor_div, ceil_div, atomic_update, atomic_add.

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  N >= 0
extern "C" int64_t histogram(const uint8_t *__restrict X, int32_t *__restrict COUNTS, int64_t N)
{
    constexpr int64_t T = 2048;

    if (N < 0) {
        return 1;
    }
    // COUNTS starts as 0.
    #pragma omp parallel for simd num_threads(sketch::threads_for(256 * 4)) schedule(static)
    for (int64_t element = 0; element < 256; ++element) {
        COUNTS[element] = 0;
    }
    const int threads = sketch::threads_for(N * 11);
    #pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < sketch::ceil_div(N, T); ++i) {
        // fill(1, value_fill)
        // load(X[i*T:(i+1)*T] -> x)
        // atomic_add(1 -> COUNTS[x])
        for (int64_t lane = 0; lane < std::min<int64_t>(T, N - i * T); ++lane) {
            const int32_t value_fill = 1;
            const uint8_t x = X[i * T + lane];
            const int64_t x_index = static_cast<int64_t>(x);
            sketch::atomic_add(&COUNTS[x_index], value_fill);
        }
    }
    return 0;
}
