// segment_max: a C++ kernel for cpu, made from a sketch.

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

// The larger; NaN wins. Only `larger` waits for `a`, the accumulator of a loop.
template <class T> inline T max(T a, T b)
{
    const T larger = b > a ? b : a;
    return b != b ? b : larger;
}
inline bool max(bool a, bool b) { return a || b; }

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

template <class T> inline void atomic_max(T *place, T value)
{
    atomic_update(place, [value](T old) { return max(old, value); });
}

} // namespace sketch

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
    #pragma omp parallel for simd schedule(static)
    for (int64_t element = 0; element < S; ++element) {
        Y[element] = -std::numeric_limits<float>::infinity();
    }
    #pragma omp parallel for schedule(static)
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
