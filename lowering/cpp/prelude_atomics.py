"""C++ helpers for memory that threads share, and for tiles handed to functions as a whole."""

from __future__ import annotations

_NARROW = """
inline void atomic_add(KIND *place, KIND value)
{
    atomic_update(place, [value](KIND old) { return to_KIND(to_float(old) + to_float(value)); });
}
inline void atomic_max(KIND *place, KIND value)
{
    atomic_update(place,
                  [value](KIND old) { return to_KIND(max(to_float(old), to_float(value))); });
}
inline void atomic_min(KIND *place, KIND value)
{
    atomic_update(place,
                  [value](KIND old) { return to_KIND(min(to_float(old), to_float(value))); });
}
"""

ATOMICS: dict[str, str] = {
    "atomic_update": """
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
""",
    "atomic_add": """
template <class T> inline void atomic_add(T *place, T value)
{
    if constexpr (std::is_integral_v<T>) {
        __atomic_fetch_add(place, value, __ATOMIC_RELAXED);
    } else {
        atomic_update(place, [value](T old) { return old + value; });
    }
}
""",
    "atomic_max": """
template <class T> inline void atomic_max(T *place, T value)
{
    atomic_update(place, [value](T old) { return max(old, value); });
}
""",
    "atomic_min": """
template <class T> inline void atomic_min(T *place, T value)
{
    atomic_update(place, [value](T old) { return min(old, value); });
}
""",
    "atomic_half": _NARROW.replace("KIND", "half"),
    "atomic_bfloat16": _NARROW.replace("KIND", "bfloat16"),
    "tile": """
// The valid rectangle of a tile: per axis its first lane, the one after its last, and the distance
// from one lane to the next.
template <class T, int rank> struct tile {
    T *data;
    int64_t lower[rank];
    int64_t upper[rank];
    int64_t strides[rank];
};
""",
}
