// scatter_add: a C++ kernel for cpu, made from a sketch.

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
// atomic_add, too_large.

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  R >= 0 and N >= 0 and D >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t scatter_add(
    float *__restrict TOTAL, const int64_t *__restrict INDEX, const float *__restrict SRC, int64_t
    R, int64_t N, int64_t D)
{
    constexpr int64_t TN = 32;
    constexpr int64_t TD = 128;

    if (R < 0 || N < 0 || D < 0) {
        return 1;
    }
    if (sketch::too_large({R, D}) || sketch::too_large({N, D})) {
        return 2;
    }
    const int threads = sketch::threads_for(N * (sketch::ceil_div(D, TD) * 8 + D * 13));
    #pragma omp parallel for num_threads(threads) collapse(2) schedule(static)
    for (int64_t i = 0; i < sketch::ceil_div(N, TN); ++i) {
        for (int64_t j = 0; j < sketch::ceil_div(D, TD); ++j) {
            for (int64_t row = 0; row < std::min<int64_t>(TN, N - i * TN); ++row) {
                // load(SRC[i*TN:(i+1)*TN, j*TD:(j+1)*TD] -> x)
                // load(INDEX[i*TN:(i+1)*TN] -> index)
                // atomic_add(x -> TOTAL[index, j*TD:(j+1)*TD])
                const int64_t index = INDEX[i * TN + row];
                for (int64_t lane = 0; lane < std::min<int64_t>(TD, D - j * TD); ++lane) {
                    const float x = SRC[(i * TN + row) * D + (j * TD + lane)];
                    if (0 <= index && index < R) {
                        sketch::atomic_add(&TOTAL[index * D + (j * TD + lane)], x);
                    }
                }
            }
        }
    }
    return 0;
}
