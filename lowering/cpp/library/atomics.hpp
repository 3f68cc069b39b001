// Updates of elements that threads share.
#pragma once

#include <cstdint>
#include <type_traits>

#include "functions.hpp"
#include "numbers.hpp"

namespace sketch {

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

template <class T> inline void atomic_max(T *place, T value)
{
    atomic_update(place, [value](T old) { return max(old, value); });
}

template <class T> inline void atomic_min(T *place, T value)
{
    atomic_update(place, [value](T old) { return min(old, value); });
}

//# atomic_half (with to_half, atomic_update)
inline void atomic_add(half *place, half value)
{
    atomic_update(place, [value](half old) { return to_half(to_float(old) + to_float(value)); });
}
inline void atomic_max(half *place, half value)
{
    atomic_update(place,
                  [value](half old) { return to_half(max(to_float(old), to_float(value))); });
}
inline void atomic_min(half *place, half value)
{
    atomic_update(place,
                  [value](half old) { return to_half(min(to_float(old), to_float(value))); });
}

//# atomic_bfloat16 (with to_bfloat16, atomic_update)
inline void atomic_add(bfloat16 *place, bfloat16 value)
{
    atomic_update(place, [value](bfloat16 old) { return to_bfloat16(to_float(old) + to_float(value)); });
}
inline void atomic_max(bfloat16 *place, bfloat16 value)
{
    atomic_update(place,
                  [value](bfloat16 old) { return to_bfloat16(max(to_float(old), to_float(value))); });
}
inline void atomic_min(bfloat16 *place, bfloat16 value)
{
    atomic_update(place,
                  [value](bfloat16 old) { return to_bfloat16(min(to_float(old), to_float(value))); });
}

} // namespace sketch
