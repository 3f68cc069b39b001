// Orders and counts of lanes, on lines along one axis of tiles in memory.
//
// Orders are those of the language: NaN is the largest value, ties keep or take the smaller index,
// and only valid lanes are looked at.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace sketch {

// The valid rectangle of a tile: per axis its first lane, the one after its last, and the distance
// from one lane to the next.
template <class T, int rank> struct tile {
    T *data;
    int64_t lower[rank];
    int64_t upper[rank];
    int64_t strides[rank];
};

template <class T, int rank> inline T *lane_at(const tile<T, rank> &each, const int64_t (&at)[rank])
{
    T *place = each.data;
    for (int a = 0; a < rank; ++a) {
        place += at[a] * each.strides[a];
    }
    return place;
}

// Calls `visit` with the first lane of every line along `axis`, at which that axis stands at 0.
template <int axis, int rank, class F>
inline void for_lines(const int64_t (&lower)[rank], const int64_t (&upper)[rank], F visit)
{
    int64_t at[rank] = {};
    for (int a = 0; a < rank; ++a) {
        if (a != axis && lower[a] >= upper[a]) {
            return;
        }
        at[a] = a == axis ? 0 : lower[a];
    }
    for (;;) {
        visit(at);
        int a = rank - 1;
        for (; a >= 0; --a) {
            if (a == axis) {
                continue;
            }
            if (++at[a] < upper[a]) {
                break;
            }
            at[a] = lower[a];
        }
        if (a < 0) {
            return;
        }
    }
}

template <class T> inline bool no_number([[maybe_unused]] T x)
{
    if constexpr (std::is_floating_point_v<T>) {
        return x != x;
    } else {
        return false;
    }
}

// Whether `a` stands strictly before `b`; NaN is the largest.
template <bool descending, class T> inline bool stands_before(T a, T b)
{
    if constexpr (descending) {
        return a > b || (no_number(a) && !no_number(b));
    } else {
        return a < b || (!no_number(a) && no_number(b));
    }
}

// The largest (or smallest) of some values, at least one; NaN wins. Many are compared at a time.
template <bool largest, class T>
inline T extreme_value(const T *values, int64_t count, int64_t step)
{
    const auto wins = [](T next, T held) {
        return (largest ? next > held : next < held) | no_number(next);
    };
    constexpr int width = 128 / sizeof(T);
    T best = values[0];
    int64_t n = 1;
    if (step == 1 && count >= width) {
        T held[width];
        for (int lane = 0; lane < width; ++lane) {
            held[lane] = values[lane];
        }
        for (n = width; n + width <= count; n += width) {
            for (int lane = 0; lane < width; ++lane) {
                const T next = values[n + lane];
                held[lane] = wins(next, held[lane]) ? next : held[lane];
            }
        }
        best = held[0];
        for (int lane = 1; lane < width; ++lane) {
            best = wins(held[lane], best) ? held[lane] : best;
        }
    }
    for (; n < count; ++n) {
        const T next = values[n * step];
        best = wins(next, best) ? next : best;
    }
    return best;
}

// The first lane of the largest (or smallest) of every line; NaN wins, and no lane gives -1.
template <int axis, bool largest, class T, int rank>
inline void extremum(const tile<const T, rank> &source, const tile<int64_t, rank> &result)
{
    const int64_t first = source.lower[axis];
    const int64_t count = source.upper[axis] - first;
    const int64_t step = source.strides[axis];
    for_lines<axis>(source.lower, source.upper, [&](const int64_t (&at)[rank]) {
        const T *const line = lane_at(source, at) + first * step;
        int64_t lane = -1;
        if (count > 0) {
            const T best = extreme_value<largest>(line, count, step);
            const bool missing = no_number(best);
            const auto found = [&](int64_t n) {
                return missing ? no_number(line[n * step]) : line[n * step] == best;
            };
            for (lane = 0; !found(lane); ++lane) {
            }
            lane += first;
        }
        *lane_at(result, at) = lane;
    });
}

// Values with their indices along one line of two tiles.
template <class T> struct ordered_line {
    T *values;
    int64_t *places;
    int64_t step;
    int64_t place_step;

    void take(int64_t lane, const ordered_line &other, int64_t from) const
    {
        values[lane * step] = other.values[from * other.step];
        places[lane * place_step] = other.places[from * other.place_step];
    }
};

// Merges the sorted lanes first .. middle and middle .. last of one line into another, stably.
template <bool descending, class T>
inline void merge_lanes(const ordered_line<T> &from, const ordered_line<T> &to, int64_t first,
                        int64_t middle, int64_t last)
{
    int64_t left = first;
    int64_t right = middle;
    for (int64_t lane = first; lane < last; ++lane) {
        const bool second =
            left >= middle ||
            (right < last && stands_before<descending>(from.values[right * from.step],
                                                       from.values[left * from.step]));
        to.take(lane, from, second ? right++ : left++);
    }
}

// Sorts every line stably, by merging back and forth; the sources are used up.
template <int axis, bool descending, class T, int rank>
inline void sort(const tile<T, rank> &source, const tile<int64_t, rank> &source_places,
                 const tile<T, rank> &result, const tile<int64_t, rank> &result_places)
{
    const int64_t first = source.lower[axis];
    const int64_t last = source.upper[axis];
    for_lines<axis>(source.lower, source.upper, [&](const int64_t (&at)[rank]) {
        ordered_line<T> from{lane_at(source, at), lane_at(source_places, at), source.strides[axis],
                             source_places.strides[axis]};
        ordered_line<T> to{lane_at(result, at), lane_at(result_places, at), result.strides[axis],
                           result_places.strides[axis]};
        bool moved = false;
        for (int64_t width = 1; width < last - first; width *= 2) {
            for (int64_t left = first; left < last; left += 2 * width) {
                const int64_t middle = std::min(left + width, last);
                merge_lanes<descending>(from, to, left, middle, std::min(middle + width, last));
            }
            std::swap(from, to);
            moved = !moved;
        }
        if (!moved) {
            for (int64_t lane = first; lane < last; ++lane) {
                to.take(lane, from, lane);
            }
        }
    });
}

// The order of topk: values, then indices; a negative index (nothing yet) counts as the largest.
template <bool largest, class T>
inline bool ranks_before(T a, int64_t a_place, T b, int64_t b_place)
{
    return stands_before<largest>(a, b) ||
           (!stands_before<largest>(b, a) &&
            static_cast<uint64_t>(a_place) < static_cast<uint64_t>(b_place));
}

// Inserts a value among the `count` ordered ones of a line, the last of which is dropped.
template <bool largest, class T>
inline void insert_lane(const ordered_line<T> &line, int64_t count, T next, int64_t place)
{
    int64_t lane = count - 1;
    for (; lane > 0 && ranks_before<largest>(next, place, line.values[(lane - 1) * line.step],
                                             line.places[(lane - 1) * line.place_step]);
         --lane) {
        line.take(lane, line, lane - 1);
    }
    line.values[lane * line.step] = next;
    line.places[lane * line.place_step] = place;
}

// Merges the lanes of every line into the best ones so far, which stay in order.
template <int axis, bool largest, class T, int rank>
inline void topk(const tile<const T, rank> &source, const tile<const int64_t, rank> &source_places,
                 const tile<T, rank> &best, const tile<int64_t, rank> &best_places)
{
    int64_t lower[rank];
    int64_t upper[rank];
    for (int a = 0; a < rank; ++a) {
        lower[a] = std::max(source.lower[a], best.lower[a]);
        upper[a] = std::min(source.upper[a], best.upper[a]);
    }
    const int64_t count = best.upper[axis];
    if (count <= 0) {
        return;
    }
    for_lines<axis>(lower, upper, [&](const int64_t (&at)[rank]) {
        const T *const values = lane_at(source, at);
        const int64_t *const places = lane_at(source_places, at);
        const ordered_line<T> line{lane_at(best, at), lane_at(best_places, at),
                                   best.strides[axis], best_places.strides[axis]};
        for (int64_t lane = 1; lane < count; ++lane) {
            insert_lane<largest>(line, lane + 1, line.values[lane * line.step],
                                 line.places[lane * line.place_step]);
        }
        const int64_t last = count - 1;
        for (int64_t lane = source.lower[axis]; lane < source.upper[axis]; ++lane) {
            const T next = values[lane * source.strides[axis]];
            const int64_t place = places[lane * source_places.strides[axis]];
            if (ranks_before<largest>(next, place, line.values[last * line.step],
                                      line.places[last * line.place_step])) {
                insert_lane<largest>(line, count, next, place);
            }
        }
    });
}

// The lane after `at` in row-major order; the first one again after the last.
template <class T, int rank> inline void next_lane(const tile<T, rank> &each, int64_t (&at)[rank])
{
    for (int a = rank - 1; a >= 0; --a) {
        if (++at[a] < each.upper[a]) {
            return;
        }
        at[a] = each.lower[a];
    }
}

// Copies lanes in row-major order from one rectangle to another with as many lanes.
template <class T, int from, int to>
inline void reshape(const tile<const T, from> &source, const tile<T, to> &result)
{
    int64_t count = 1;
    int64_t run = 1;
    bool packed = true;
    int64_t at[to];
    int64_t source_at[from];
    for (int a = to - 1; a >= 0; --a) {
        at[a] = result.lower[a];
        const int64_t lanes = std::max<int64_t>(result.upper[a] - at[a], 0);
        packed = packed && (lanes == 1 || result.strides[a] == count);
        count *= lanes;
    }
    for (int a = from - 1; a >= 0; --a) {
        source_at[a] = source.lower[a];
        const int64_t lanes = std::max<int64_t>(source.upper[a] - source_at[a], 0);
        packed = packed && (lanes == 1 || source.strides[a] == run);
        run *= lanes;
    }
    if (count == 0 || run == 0) {
        return;
    }
    if (packed) {
        std::copy_n(lane_at(source, source_at), count, lane_at(result, at));
        return;
    }
    for (int64_t lane = 0; lane < count; ++lane) {
        *lane_at(result, at) = *lane_at(source, source_at);
        next_lane(result, at);
        next_lane(source, source_at);
    }
}

} // namespace sketch
