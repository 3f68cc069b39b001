// first_seen: a C++ kernel for cpu, made from a sketch.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <omp.h>

namespace sketch {

// Floor division; a divisor of 0 gives 0, so that lanes nobody reads cannot trap.
template <class T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
constexpr T floor_div(T a, T b)
{
    if constexpr (std::is_unsigned_v<T>) {
        return b == 0 ? T{0} : static_cast<T>(a / b);
    } else {
        if (b == 0 || b == -1) {
            return b == 0 ? T{0} : static_cast<T>(T{0} - a);
        }
        const T quotient = static_cast<T>(a / b);
        return static_cast<T>(quotient - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0));
    }
}
constexpr int64_t floor_div(int64_t a, int b) { return floor_div(a, int64_t{b}); }
constexpr int64_t floor_div(int a, int64_t b) { return floor_div(int64_t{a}, b); }

constexpr int64_t ceil_div(int64_t a, int64_t b) { return -floor_div(-a, b); }

// The smaller; NaN wins. Only `smaller` waits for `a`, the accumulator of a loop.
template <class T> inline T min(T a, T b)
{
    const T smaller = b < a ? b : a;
    return b != b ? b : smaller;
}
inline bool min(bool a, bool b) { return a && b; }

// Replaces an element by what `combine` makes of it; no update of another thread is lost.
template <class T, class F> inline void atomic_update(T *place, F combine)
{
    T old;
    __atomic_load(place, &old, __ATOMIC_RELAXED);
    T next = combine(old);
    while (!__atomic_compare_exchange(place, &old, &next, true, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED)) {
        next = combine(old);
    }
}

template <class T> inline void atomic_min(T *place, T value)
{
    atomic_update(place, [value](T old) { return min(old, value); });
}

} // namespace sketch

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
    #pragma omp parallel for schedule(static)
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
