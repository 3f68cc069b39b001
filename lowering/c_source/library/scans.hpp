// Running sums and products on lines along one axis of tiles in memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "lanes.hpp"

namespace sketch {

// `scan_lines` along another axis than the last: blocks of neighbouring lines advance together.
template <int axis, bool reverse, bool exclusive, class T, int rank, class W, class F>
inline void scan_columns(const tile<const T, rank> &source, const tile<T, rank> &result, W start,
                         F combine)
{
    constexpr int last = rank - 1;
    constexpr int64_t width = 128 / sizeof(W);
    const int64_t count = source.upper[axis] - source.lower[axis];
    const int64_t origin = reverse ? source.upper[axis] - 1 : source.lower[axis];
    const int64_t turn = reverse ? -1 : 1;
    int64_t lower[rank];
    int64_t upper[rank];
    std::copy_n(source.lower, rank, lower);
    std::copy_n(source.upper, rank, upper);
    lower[last] = 0;
    upper[last] = (source.upper[last] - source.lower[last] + width - 1) / width;
    for_lines<axis>(lower, upper, [&](const int64_t (&block)[rank]) {
        int64_t at[rank];
        std::copy_n(block, rank, at);
        at[last] = source.lower[last] + block[last] * width;
        const int64_t lanes = std::min(width, source.upper[last] - at[last]);
        const T *const from = lane_at(source, at);
        T *const to = lane_at(result, at);
        W totals[width];
        std::fill_n(totals, width, start);
        for (int64_t n = 0; n < count; ++n) {
            const T *const row = from + (origin + turn * n) * source.strides[axis];
            T *const written = to + (origin + turn * n) * result.strides[axis];
            for (int64_t lane = 0; lane < lanes; ++lane) {
                const W before = totals[lane];
                totals[lane] = combine(before, static_cast<W>(row[lane]));
                written[lane] = static_cast<T>(exclusive ? before : totals[lane]);
            }
        }
    });
}

// Runs `combine` along every line; sums and products of floats are kept in double. Four lanes at a
// time are combined among themselves, so that only every fourth waits for what came before.
template <int axis, bool reverse, bool exclusive, class T, int rank, class W, class F>
inline void scan_lines(const tile<const T, rank> &source, const tile<T, rank> &result, W start,
                       F combine)
{
    if constexpr (axis != rank - 1) {
        if (source.strides[rank - 1] == 1 && result.strides[rank - 1] == 1) {
            scan_columns<axis, reverse, exclusive>(source, result, start, combine);
            return;
        }
    }
    const int64_t count = source.upper[axis] - source.lower[axis];
    const int64_t origin = reverse ? source.upper[axis] - 1 : source.lower[axis];
    const int64_t step = reverse ? -source.strides[axis] : source.strides[axis];
    const int64_t stride = reverse ? -result.strides[axis] : result.strides[axis];
    for_lines<axis>(source.lower, source.upper, [&](const int64_t (&at)[rank]) {
        const T *from = lane_at(source, at) + origin * source.strides[axis];
        T *to = lane_at(result, at) + origin * result.strides[axis];
        W total = start;
        const int64_t rest = count % 4;
        for (int64_t n = 0; n < count - rest; n += 4) {
            const W one = static_cast<W>(from[n * step]);
            const W two = combine(one, static_cast<W>(from[(n + 1) * step]));
            const W three = combine(two, static_cast<W>(from[(n + 2) * step]));
            const W four = combine(three, static_cast<W>(from[(n + 3) * step]));
            if constexpr (exclusive) {
                to[n * stride] = static_cast<T>(total);
            }
            constexpr int64_t shift = exclusive ? 1 : 0;
            to[(n + shift) * stride] = static_cast<T>(combine(total, one));
            to[(n + 1 + shift) * stride] = static_cast<T>(combine(total, two));
            to[(n + 2 + shift) * stride] = static_cast<T>(combine(total, three));
            total = combine(total, four);
            if constexpr (!exclusive) {
                to[(n + 3) * stride] = static_cast<T>(total);
            }
        }
        for (int64_t n = count - rest; n < count; ++n) {
            const W before = total;
            total = combine(total, static_cast<W>(from[n * step]));
            to[n * stride] = static_cast<T>(exclusive ? before : total);
        }
    });
}

template <int axis, bool reverse, bool exclusive, class T, int rank>
inline void cumsum(const tile<const T, rank> &source, const tile<T, rank> &result)
{
    using W = std::conditional_t<std::is_floating_point_v<T>, double, T>;
    scan_lines<axis, reverse, exclusive>(source, result, W{0},
                              [](W a, W b) { return static_cast<W>(a + b); });
}

template <int axis, bool reverse, bool exclusive, class T, int rank>
inline void cumprod(const tile<const T, rank> &source, const tile<T, rank> &result)
{
    using W = std::conditional_t<std::is_floating_point_v<T>, double, T>;
    scan_lines<axis, reverse, exclusive>(source, result, W{1},
                              [](W a, W b) { return static_cast<W>(a * b); });
}

} // namespace sketch
