// masked_select: a C++ kernel for cpu, made from a sketch.

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

// Scratch memory: pieces are added, then allocated at once for all threads, on cache lines.
class arena {
public:
    arena() = default;
    arena(const arena &) = delete;
    arena &operator=(const arena &) = delete;
    ~arena() { std::free(memory_); }

    // Adds a piece of `extents` elements and returns its place.
    int64_t add(int64_t element_bytes, std::initializer_list<int64_t> extents)
    {
        const int64_t place = bytes_;
        int64_t size = element_bytes;
        for (const int64_t extent : extents) {
            fits_ = !__builtin_mul_overflow(size, std::max<int64_t>(extent, 0), &size) && fits_;
        }
        fits_ = !__builtin_add_overflow(size, int64_t{63}, &size) && fits_;
        fits_ = !__builtin_add_overflow(bytes_, size / 64 * 64, &bytes_) && fits_;
        return place;
    }

    // False when the memory cannot be had.
    bool allocate(int64_t threads)
    {
        int64_t total = 0;
        fits_ = !__builtin_mul_overflow(bytes_, threads, &total) && fits_;
        if (fits_ && total > 0) {
            memory_ = static_cast<char *>(std::aligned_alloc(64, static_cast<size_t>(total)));
        }
        return fits_ && (total == 0 || memory_ != nullptr);
    }

    template <class T> T *at(int64_t place, int64_t thread) const
    {
        return reinterpret_cast<T *>(memory_ + thread * bytes_ + place);
    }

private:
    char *memory_ = nullptr;
    int64_t bytes_ = 0;
    bool fits_ = true;
};

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

template <class T> inline void atomic_add(T *place, T value)
{
    if constexpr (std::is_integral_v<T>) {
        __atomic_fetch_add(place, value, __ATOMIC_RELAXED);
    } else {
        atomic_update(place, [value](T old) { return old + value; });
    }
}

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

// `scan_lines` along another axis than the last: blocks of neighbouring lines go on together.
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

// Runs `combine` along every line; sums and products of floats go on in double. Four lanes at a
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

} // namespace sketch

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  N >= 0
extern "C" int64_t masked_select(
    const float *__restrict X, const bool *__restrict MASK, float *__restrict Y, int64_t
    *__restrict COUNT, int64_t N)
{
    constexpr int64_t T = 1024;
    constexpr int64_t TB = 128;

    if (N < 0) {
        return 1;
    }
    [[maybe_unused]] const int64_t blocks = sketch::ceil_div(N, T);
    // Memory shared by the phases.
    sketch::arena workspace;
    const int64_t COUNTS_place = workspace.add(sizeof(int64_t), {blocks});
    if (!workspace.allocate(1)) {
        return -1;
    }
    int64_t *const COUNTS = workspace.at<int64_t>(COUNTS_place, 0);
    // Y starts as 0.0.
    #pragma omp parallel for simd schedule(static)
    for (int64_t element = 0; element < N; ++element) {
        Y[element] = 0.0f;
    }
    // COUNT starts as 0.
    #pragma omp parallel for simd schedule(static)
    for (int64_t element = 0; element < 1; ++element) {
        COUNT[element] = 0;
    }
    // Phase 1 of 2.
    {
        #pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < blocks; ++i) {
            int64_t count = 0;
            // load(MASK[i*T:(i+1)*T] -> mask)
            // cast(mask, one)
            // reduce_sum(one, 0, count)
            const bool *const MASK_row = MASK + i * T;
            #pragma omp simd reduction(+ : count)
            for (int64_t lane = 0; lane < std::min<int64_t>(T, N - i * T); ++lane) {
                const bool mask = MASK_row[lane];
                const int64_t one = static_cast<int64_t>(mask);
                count += one;
            }
            // store(count -> COUNTS[i])
            COUNTS[i] = count;
            // atomic_add(count -> COUNT[])
            sketch::atomic_add(&COUNT[0], count);
        }
    }
    // Phase 2 of 2.
    {
        // Scratch memory of each thread.
        sketch::arena arena;
        const int64_t cumsum_0_place = arena.add(sizeof(int64_t), {T});
        const int64_t cumsum_result_place = arena.add(sizeof(int64_t), {T});
        if (!arena.allocate(omp_get_max_threads())) {
            return -1;
        }
        #pragma omp parallel
        {
            int64_t *const __restrict cumsum_0 = arena.at<int64_t>(cumsum_0_place,
                omp_get_thread_num());
            int64_t *const __restrict cumsum_result = arena.at<int64_t>(cumsum_result_place,
                omp_get_thread_num());
            #pragma omp for schedule(static)
            for (int64_t i_2 = 0; i_2 < blocks; ++i_2) {
                // before = alloc([1], init=0)
                int64_t before = 0;
                // for b in range(ceil(i, TB)):
                for (int64_t b = 0; b < sketch::ceil_div(i_2, TB); ++b) {
                    int64_t sum_ = 0;
                    // load(COUNTS[b*TB:min((b+1)*TB, i)] -> counts)
                    // reduce_sum(counts, 0, sum)
                    const int64_t *const COUNTS_row = COUNTS + b * TB;
                    #pragma omp simd reduction(+ : sum_)
                    for (int64_t lane = 0; lane < std::min<int64_t>(TB, i_2 - b * TB); ++lane) {
                        const int64_t counts = COUNTS_row[lane];
                        sum_ += counts;
                    }
                    // add(before, sum, before)
                    before = before + sum_;
                }
                // load(MASK[i*T:(i+1)*T] -> mask)
                // cast(mask, one)
                const bool *const MASK_row = MASK + i_2 * T;
                #pragma omp simd
                for (int64_t lane = 0; lane < std::min<int64_t>(T, N - i_2 * T); ++lane) {
                    const bool mask_2 = MASK_row[lane];
                    const int64_t one_2 = static_cast<int64_t>(mask_2);
                    const int64_t cumsum_0_value = one_2;
                    cumsum_0[lane] = cumsum_0_value;
                }
                // cumsum(one, 0, place, exclusive=True)
                sketch::cumsum<0, false, true>(
                    sketch::tile<const int64_t, 1>{cumsum_0, {0}, {std::min<int64_t>(T, N - i_2 *
                        T)}, {1}},
                    sketch::tile<int64_t, 1>{cumsum_result, {0}, {std::min<int64_t>(T, N - i_2 *
                        T)}, {1}});
                // add(place, before, place)
                // load(X[i*T:(i+1)*T] -> x)
                // load(MASK[i*T:(i+1)*T] -> mask)
                // store(x -> Y[place], where=mask, unique=True)
                for (int64_t lane = 0; lane < std::min<int64_t>(T, N - i_2 * T); ++lane) {
                    const int64_t cumsum_result_value = cumsum_result[lane];
                    const int64_t place = cumsum_result_value;
                    const int64_t place_add = place + before;
                    const float x = X[i_2 * T + lane];
                    const bool mask_2 = MASK[i_2 * T + lane];
                    if (mask_2 && 0 <= place_add && place_add < N) {
                        Y[place_add] = x;
                    }
                }
            }
        }
    }
    return 0;
}
