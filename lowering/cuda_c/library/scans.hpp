// Running sums and products, in which threads share the lines of a tile.
#pragma once

#include <cstdint>

#include "block.hpp"

namespace sketch {

// Running sums or products, kept as numbers: those of floats in double.
template <template <class> class How, class T> struct kept_running {
    using part = std::conditional_t<std::is_floating_point_v<T>, double, T>;
    static __device__ part start() { return How<part>::start; }
    static __device__ part of(T x) { return static_cast<part>(x); }
    static __device__ part combine(part a, part b) { return How<part>::combine(a, b); }
    template <int count, class Sharing>
    static __device__ void settle(part (&)[count], part &, const Sharing &)
    {
    }
    static __device__ T value(part x) { return static_cast<T>(x); }
};

// A factor as a number from 1/2 to 1 and a power of two: a product of some lanes may leave the range
// of double where no product from the first lane on does. What is 0 or no finite number stands alone.
struct size_and_power {
    double size;
    int power;

    static __device__ size_and_power of(double x, int more)
    {
        int power = 0;
        const double size = ::frexp(x, &power);
        const bool apart = x != 0.0 && ::fabs(x) < std::numeric_limits<double>::infinity();
        return apart ? size_and_power{size, power + more} : size_and_power{x, 0};
    }
    __device__ double value() const { return ::ldexp(size, power); }
    // Infinity or 0, where the number has left the range of double by itself, and else 1.
    __device__ float left_for() const
    {
        const double all = ::fabs(value()), infinite = std::numeric_limits<double>::infinity();
        const bool left = (all == 0.0 || all == infinite) && all != ::fabs(size);
        return left ? static_cast<float>(all) : 1.0F;
    }
    // The number after one before it has left for there.
    __device__ size_and_power after(float end) const
    {
        return end == 1.0F ? *this : size_and_power{size * end, 0};
    }
};

// Where a running product has gone first when it left the range of double.
struct first_to_leave {
    static __device__ float start() { return 1.0F; }
    static __device__ float combine(float a, float b) { return a == 1.0F ? b : a; }
};

// Running products of floats that several threads put together. One that leaves the range of double
// does not come back.
template <class T> struct shared_products {
    using part = size_and_power;
    static __device__ part start() { return {1.0, 0}; }
    static __device__ part of(T x) { return part::of(x, 0); }
    static __device__ part combine(part a, part b)
    {
        return part::of(a.size * b.size, a.power + b.power);
    }
    template <int count, class Sharing>
    static __device__ void settle(part (&products)[count], part &total, const Sharing &sharing)
    {
        float own = first_to_leave::start();
#pragma unroll
        for (int each = 0; each < count; ++each) {
            own = first_to_leave::combine(own, products[each].left_for());
        }
        const auto ends = sharing.template scan<first_to_leave>(own);
        float end = ends.before;
#pragma unroll
        for (int each = 0; each < count; ++each) {
            end = first_to_leave::combine(end, products[each].left_for());
            products[each] = products[each].after(end);
        }
        total = total.after(ends.whole);
    }
    static __device__ T value(part x) { return static_cast<T>(x.value()); }
};

// What a warp's threads give each other by a shuffle.
template <class T, class F> __device__ inline T shuffled(T value, F shuffle) { return shuffle(value); }

//# shuffled_pair (with shuffled, size_and_power)
template <class F> __device__ inline size_and_power shuffled(size_and_power value, F shuffle)
{
    return {shuffle(value.size), shuffle(value.power)};
}

// The values of all threads before one combined, and those of all threads.
template <class T> struct before_and_whole {
    T before;
    T whole;
};

// Combines the values of a warp's threads in their order.
template <class How, class T> __device__ inline before_and_whole<T> scan_in_warp(T value)
{
    const int lane = threadIdx.x % 32;
    const auto from_below = [](T given, int distance) {
        return shuffled(given, [=](auto x) { return __shfl_up_sync(0xffffffffU, x, distance); });
    };
    for (int distance = 1; distance < 32; distance *= 2) {
        const T below = from_below(value, distance);
        value = lane >= distance ? How::combine(below, value) : value;
    }
    const T before = from_below(value, 1);
    const T whole = shuffled(value, [](auto x) { return __shfl_sync(0xffffffffU, x, 31); });
    return {lane > 0 ? before : How::start(), whole};
}

// The same for the threads of a block, whose warps exchange their results through `memory`.
template <class How, class T>
__device__ inline before_and_whole<T> scan_in_block(T value, char *memory)
{
    T *const parts = reinterpret_cast<T *>(memory);
    const before_and_whole<T> own = scan_in_warp<How>(value);
    __syncthreads(); // an earlier call may still be reading
    if (threadIdx.x % 32 == 0) {
        parts[threadIdx.x / 32] = own.whole;
    }
    __syncthreads();
    T before = How::start(), whole = How::start();
    for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) {
        before = warp == threadIdx.x / 32 ? whole : before;
        whole = How::combine(whole, parts[warp]);
    }
    return {How::combine(before, own.before), whole};
}

// How the threads of a block share lines: `threads` of them take every `groups`-th one, from the
// `group`-th on, and `thread` is a thread's number among them.
struct line_of_thread {
    int64_t group = threadIdx.x;
    int64_t groups = blockDim.x;
    int thread = 0;
    int threads = 1;
    template <class How, class T> __device__ before_and_whole<T> scan(T value) const
    {
        return {How::start(), value};
    }
};

struct line_of_warp {
    int64_t group = threadIdx.x / 32;
    int64_t groups = blockDim.x / 32;
    int thread = threadIdx.x % 32;
    int threads = 32;
    template <class How, class T> __device__ before_and_whole<T> scan(T value) const
    {
        return scan_in_warp<How>(value);
    }
};

struct line_of_block {
    char *memory;
    int64_t group = 0;
    int64_t groups = 1;
    int thread = threadIdx.x;
    int threads = blockDim.x;
    template <class How, class T> __device__ before_and_whole<T> scan(T value) const
    {
        return scan_in_block<How>(value, memory);
    }
};

// The lanes along a line from a place on, of which so many are left.
template <int count, class T>
__device__ inline lanes<T, count> lanes_along(const T *place, int64_t step, int64_t left)
{
    if (step == 1) {
        return load_lanes<count>(place, left);
    }
    lanes<T, count> found{};
#pragma unroll
    for (int part = 0; part < count; ++part) {
        if (part < left) {
            found[part] = place[part * step];
        }
    }
    return found;
}

template <class T, int count>
__device__ inline void put_along(T *place, int64_t step, int64_t left, const lanes<T, count> &values)
{
    if (step == 1) {
        store_lanes(place, left, values);
        return;
    }
#pragma unroll
    for (int part = 0; part < count; ++part) {
        if (part < left) {
            place[part * step] = values[part];
        }
    }
}

// A line of `count` lanes, which are read and written at these places.
template <class T> struct line_places {
    const T *from;
    int64_t step;
    T *to;
    int64_t stride;
    int64_t count;
};

// Scans a line. Each thread combines `width` neighbouring lanes among themselves, and goes on from what
// the threads before it have come to. All threads that share the line make the same turns.
template <class How, int width, bool exclusive, class T, class Sharing>
__device__ inline void scan_line(const line_places<T> &line, const Sharing &sharing)
{
    using part = typename How::part;
    part total = How::start();
    for (int64_t turn = 0; turn < line.count; turn += sharing.threads * width) {
        const int64_t first = turn + sharing.thread * width;
        const int64_t left = line.count - first;
        auto values = lanes_along<width>(line.from + first * line.step, line.step, left);
        part results[width + 1] = {How::start()};
#pragma unroll
        for (int each = 0; each < width; ++each) {
            const part own = each < left ? How::of(values[each]) : How::start();
            results[each + 1] = How::combine(results[each], own);
        }
        const auto all = sharing.template scan<How>(results[width]);
        const part before = How::combine(total, all.before);
#pragma unroll
        for (int each = 0; each <= width; ++each) {
            results[each] = How::combine(before, results[each]);
        }
        total = How::combine(total, all.whole);
        How::settle(results, total, sharing);
#pragma unroll
        for (int each = 0; each < width; ++each) {
            values[each] = How::value(results[exclusive ? each : each + 1]);
        }
        put_along(line.to + first * line.stride, line.stride, left, values);
    }
}

// Scans every line along an axis: a thread takes one where there are enough of them or they are short,
// else a warp, and the whole block one after the other where there are fewer than warps. `Shared` is
// how running results are kept where several threads put them together.
template <class How, class Shared, int axis, bool reverse, bool exclusive, class T, int rank>
__device__ inline void scan_tile(tile<const T, rank> source, tile<T, rank> result, char *memory)
{
    constexpr int width = 4, of_warp = 32 * width;
    const int64_t count = source.upper[axis] - source.lower[axis];
    const int64_t origin = reverse ? source.upper[axis] - 1 : source.lower[axis];
    const int64_t turn = reverse ? -1 : 1;
    source.lower[axis] = result.lower[axis] = origin;
    source.upper[axis] = result.upper[axis] = origin + 1;
    const int64_t lines = lane_count(source);
    const auto visit = [&](auto how, const auto &sharing) {
        for (int64_t line = sharing.group; line < lines; line += sharing.groups) {
            scan_line<decltype(how), width, exclusive>(
                line_places<T>{numbered_lane(source, line), turn * source.strides[axis],
                               numbered_lane(result, line), turn * result.strides[axis], count},
                sharing);
        }
    };
    if (lines >= blockDim.x || count < 32) {
        visit(How{}, line_of_thread{});
    } else if (lines >= blockDim.x / 32 || count <= of_warp) {
        visit(Shared{}, line_of_warp{});
    } else {
        visit(Shared{}, line_of_block{memory});
    }
}

template <int axis, bool reverse, bool exclusive, class T, int rank>
__device__ inline void cumsum(const tile<const T, rank> &source, const tile<T, rank> &result,
                              char *memory)
{
    using How = kept_running<plus, T>;
    scan_tile<How, How, axis, reverse, exclusive>(source, result, memory);
}

template <int axis, bool reverse, bool exclusive, class T, int rank>
__device__ inline void cumprod(const tile<const T, rank> &source, const tile<T, rank> &result,
                               char *memory)
{
    using How = kept_running<times, T>;
    using Shared = std::conditional_t<std::is_floating_point_v<T>, shared_products<T>, How>;
    scan_tile<How, Shared, axis, reverse, exclusive>(source, result, memory);
}

} // namespace sketch
