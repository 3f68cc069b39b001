// scatter_add: a C++ kernel for cpu, made from a sketch.

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

template <class T> inline void atomic_add(T *place, T value)
{
    if constexpr (std::is_integral_v<T>) {
        __atomic_fetch_add(place, value, __ATOMIC_RELAXED);
    } else {
        atomic_update(place, [value](T old) { return old + value; });
    }
}

// Whether a tensor has more elements than memory, an extent of 0 counted as 1.
inline bool too_large(std::initializer_list<int64_t> extents)
{
    int64_t elements = 1;
    bool wraps = false;
    for (const int64_t extent : extents) {
        wraps |= __builtin_mul_overflow(elements, std::max<int64_t>(extent, 1), &elements);
    }
    return wraps || elements >= int64_t{1} << 48;
}

} // namespace sketch

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
    #pragma omp parallel for collapse(2) schedule(static)
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
