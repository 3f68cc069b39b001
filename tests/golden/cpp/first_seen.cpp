// first_seen: a C++ kernel for cpu, made from a sketch.

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

// The library: least_shared_work, threads_for, floor_div, ceil_div, min, atomic_update,
// atomic_min.

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  N >= 0 and U >= 0
extern "C" int64_t first_seen(
    const int32_t *__restrict TIME, const int32_t *__restrict USER, int32_t *__restrict FIRST,
    int64_t N, int64_t U)
{
    constexpr int64_t T = 1024;

    if (N < 0 || U < 0) {
        return 1;
    }
    const int threads = sketch::threads_for(N * 17);
    #pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < sketch::ceil_div(N, T); ++i) {
        // load(TIME[i*T:(i+1)*T] -> time)
        // load(USER[i*T:(i+1)*T] -> user)
        // atomic_min(time -> FIRST[user])
        for (int64_t lane = 0; lane < std::min<int64_t>(T, N - i * T); ++lane) {
            const int32_t time = TIME[i * T + lane];
            const int32_t user = USER[i * T + lane];
            const int64_t user_index = static_cast<int64_t>(user);
            if (0 <= user_index && user_index < U) {
                sketch::atomic_min(&FIRST[user_index], time);
            }
        }
    }
    return 0;
}
