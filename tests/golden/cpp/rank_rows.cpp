// rank_rows: a C++ kernel for cpu, made from a sketch.

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

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  M >= 0 and N >= 0
//   2  N <= 1024
//   3  fewer than 2**48 elements in each tensor
extern "C" int64_t rank_rows(
    const float *__restrict X, float *__restrict SORTED, int64_t *__restrict RANK, int64_t M,
    int64_t N)
{
    if (M < 0 || N < 0) {
        return 1;
    }
    if (N > 1024) {
        return 2;
    }
    if (sketch::too_large({M, N})) {
        return 3;
    }
    {
        // Scratch memory of each thread.
        sketch::arena arena;
        const int64_t sort_0_place = arena.add(sizeof(float), {N});
        const int64_t sort_1_place = arena.add(sizeof(int64_t), {N});
        const int64_t sort_result_place = arena.add(sizeof(float), {N});
        const int64_t sort_result_2_place = arena.add(sizeof(int64_t), {N});
        if (!arena.allocate(omp_get_max_threads())) {
            return -1;
        }
        #pragma omp parallel
        {
            float *const __restrict sort_0 = arena.at<float>(sort_0_place, omp_get_thread_num());
            int64_t *const __restrict sort_1 = arena.at<int64_t>(sort_1_place,
                omp_get_thread_num());
            float *const __restrict sort_result = arena.at<float>(sort_result_place,
                omp_get_thread_num());
            int64_t *const __restrict sort_result_2 = arena.at<int64_t>(sort_result_2_place,
                omp_get_thread_num());
            #pragma omp for schedule(static)
            for (int64_t i = 0; i < M; ++i) {
                // load(X[i, 0:N] -> x)
                const float *const X_row = X + i * N;
                #pragma omp simd
                for (int64_t lane = 0; lane < N; ++lane) {
                    const float x = X_row[lane];
                    sort_0[lane] = x;
                    const int64_t sort_1_value = lane;
                    sort_1[lane] = sort_1_value;
                }
                // sort(x, iota(N), 0, value, place, descending=True)
                sketch::sort<0, true>(
                    sketch::tile<float, 1>{sort_0, {0}, {N}, {1}},
                    sketch::tile<int64_t, 1>{sort_1, {0}, {N}, {1}},
                    sketch::tile<float, 1>{sort_result, {0}, {N}, {1}},
                    sketch::tile<int64_t, 1>{sort_result_2, {0}, {N}, {1}});
                // store(value -> SORTED[i, 0:N])
                // copy(iota(N), rank)
                // store(rank -> RANK[i, place], unique=True, covers=True)
                for (int64_t lane = 0; lane < N; ++lane) {
                    const float sort_result_value = sort_result[lane];
                    const float value = sort_result_value;
                    const int64_t sort_result_2_value = sort_result_2[lane];
                    const int64_t place = sort_result_2_value;
                    SORTED[i * N + lane] = value;
                    const int64_t rank = lane;
                    if (0 <= place && place < N) {
                        RANK[i * N + place] = rank;
                    }
                }
            }
        }
    }
    return 0;
}
