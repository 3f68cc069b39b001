// argmax_rows: a C++ kernel for cpu, made from a sketch.

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

template <class T> inline bool isnan(T x) { return x != x; }

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

#pragma omp declare reduction(propagating_max : float, double \
                              : omp_out = sketch::max(omp_out, omp_in)) \
    initializer(omp_priv = omp_orig)

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  M >= 0 and N >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t argmax_rows(
    const float *__restrict X, int64_t *__restrict PLACE, int64_t M, int64_t N)
{
    constexpr int64_t T = 2048;

    if (M < 0 || N < 0) {
        return 1;
    }
    if (sketch::too_large({M, N})) {
        return 2;
    }
    {
        // Scratch memory of each thread.
        sketch::arena arena;
        const int64_t argmax_0_place = arena.add(sizeof(float), {T});
        if (!arena.allocate(omp_get_max_threads())) {
            return -1;
        }
        #pragma omp parallel
        {
            float *const __restrict argmax_0 = arena.at<float>(argmax_0_place,
                omp_get_thread_num());
            #pragma omp for schedule(static)
            for (int64_t i = 0; i < M; ++i) {
                alignas(64) int64_t argmax_result[1];
                // place = alloc([1], init=0)
                int64_t place = 0;
                // best = alloc([1], init=-inf)
                float best = -std::numeric_limits<float>::infinity();
                // for j in range(ceil(N, T)):
                for (int64_t j = 0; j < sketch::ceil_div(N, T); ++j) {
                    float block = -std::numeric_limits<float>::infinity();
                    // load(X[i, j*T:(j+1)*T] -> x)
                    // reduce_max(x, 0, block)
                    const float *const X_row = X + (i * N + j * T);
                    #pragma omp simd reduction(propagating_max : block)
                    for (int64_t lane_ = 0; lane_ < std::min<int64_t>(T, N - j * T); ++lane_) {
                        const float x = X_row[lane_];
                        argmax_0[lane_] = x;
                        block = sketch::max(block, x);
                    }
                    // argmax(x, 0, lane)
                    sketch::extremum<0, true>(
                        sketch::tile<const float, 1>{argmax_0, {0}, {std::min<int64_t>(T, N - j *
                            T)}, {1}},
                        sketch::tile<int64_t, 1>{argmax_result, {0}, {1}, {1}});
                    const int64_t argmax_result_value = argmax_result[0];
                    const int64_t lane = argmax_result_value;
                    // isnan(block, not_a_number)
                    const bool not_a_number = sketch::isnan(block);
                    // gt(block, best, better)
                    const bool better = block > best;
                    // logical_or(better, not_a_number, better)
                    const bool better_logical_or = better || not_a_number;
                    // isnan(best, not_a_number)
                    const bool not_a_number_isnan = sketch::isnan(best);
                    // logical_not(not_a_number, not_a_number)
                    const bool not_a_number_logical_not = !not_a_number_isnan;
                    // logical_and(better, not_a_number, better)
                    const bool better_logical_and = better_logical_or && not_a_number_logical_not;
                    // add(lane, j*T, lane)
                    const int64_t lane_add = lane + j * T;
                    // where(better, lane, place, place)
                    place = better_logical_and ? lane_add : place;
                    // where(better, block, best, best)
                    best = better_logical_and ? block : best;
                }
                // store(place -> PLACE[i])
                PLACE[i] = place;
            }
        }
    }
    return 0;
}
