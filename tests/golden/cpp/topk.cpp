// topk: a C++ kernel for cpu, made from a sketch.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <omp.h>
#if defined(__AVX__)
#include <immintrin.h>
#endif

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

// Outputs of more bytes than this do not stay in the caches: they are written past them.
constexpr double cache_bytes = 33554432;

// Whether a tensor is too large for the caches.
inline bool streams([[maybe_unused]] int64_t element_bytes,
                    [[maybe_unused]] std::initializer_list<int64_t> extents)
{
#if defined(__AVX__)
    double bytes = static_cast<double>(element_bytes);
    for (const int64_t extent : extents) {
        bytes *= static_cast<double>(extent);
    }
    return bytes > cache_bytes;
#else
    return false;
#endif
}

// Copies past the caches: whole lines are written without reading them first.
template <class T> inline void stream(T *to, const T *from, int64_t count)
{
    int64_t done = 0;
#if defined(__AVX__)
    constexpr int64_t line = 64 / sizeof(T);
    const uintptr_t into = reinterpret_cast<uintptr_t>(to) % 64;
    const int64_t head = (line - static_cast<int64_t>(into / sizeof(T))) % line;
    done = into % sizeof(T) == 0 && head < count ? head : count;
    std::copy_n(from, done, to);
    for (; done + line <= count; done += line) {
        for (int64_t part = 0; part < line; part += line / 2) {
            const void *const source = from + done + part;
            _mm256_stream_si256(reinterpret_cast<__m256i *>(to + done + part),
                                _mm256_loadu_si256(static_cast<const __m256i *>(source)));
        }
    }
#endif
    std::copy_n(from + done, count - done, to + done);
}

// Other threads see what this one has streamed.
inline void end_streams()
{
#if defined(__AVX__)
    _mm_sfence();
#endif
}

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

// The order of topk: values, then indices; a negative one (nothing yet) is read as the largest.
template <bool largest, class T>
inline bool ranks_before(T a, int64_t a_place, T b, int64_t b_place)
{
    return stands_before<largest>(a, b) ||
           (!stands_before<largest>(b, a) &&
            static_cast<uint64_t>(a_place) < static_cast<uint64_t>(b_place));
}

// Moves a value to its place among the `count` ordered ones of a line, of which the last goes.
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
//   1  N >= K
//   2  M >= 0 and N >= 0
//   3  fewer than 2**48 elements in each tensor
extern "C" int64_t topk(
    const float *__restrict X, float *__restrict VALUES, int64_t *__restrict PLACES, int64_t M,
    int64_t N)
{
    constexpr int64_t K = 8;
    constexpr int64_t T = 1024;

    if (M < 0 || N < 0) {
        return 2;
    }
    if (N < K) {
        return 1;
    }
    if (sketch::too_large({M, N})) {
        return 3;
    }
    const bool VALUES_streams = sketch::streams(sizeof(float), {M, K});
    const bool PLACES_streams = sketch::streams(sizeof(int64_t), {M, K});
    {
        // Scratch memory of each thread.
        sketch::arena arena;
        const int64_t topk_1_place = arena.add(sizeof(int64_t), {T});
        if (!arena.allocate(omp_get_max_threads())) {
            return -1;
        }
        #pragma omp parallel
        {
            int64_t *const __restrict topk_1 = arena.at<int64_t>(topk_1_place,
                omp_get_thread_num());
            #pragma omp for schedule(static)
            for (int64_t i = 0; i < M; ++i) {
                alignas(64) int64_t place[K];
                alignas(64) float best[K];
                alignas(64) float topk_0[T];
                alignas(64) float topk_result[K];
                alignas(64) int64_t topk_result_2[K];
                // place = alloc([K], init=-1)
                // best = alloc([K], init=-inf)
                #pragma omp simd
                for (int64_t lane = 0; lane < K; ++lane) {
                    place[lane] = -1;
                    best[lane] = -std::numeric_limits<float>::infinity();
                }
                // for j in range(ceil(N, T)):
                for (int64_t j = 0; j < sketch::ceil_div(N, T); ++j) {
                    // load(X[i, j*T:(j+1)*T] -> x)
                    const float *const X_row = X + (i * N + j * T);
                    #pragma omp simd
                    for (int64_t lane = 0; lane < std::min<int64_t>(T, N - j * T); ++lane) {
                        const float x = X_row[lane];
                        topk_0[lane] = x;
                        const int64_t topk_1_value = j * T + lane;
                        topk_1[lane] = topk_1_value;
                    }
                    #pragma omp simd
                    for (int64_t lane = 0; lane < K; ++lane) {
                        const float best_value = best[lane];
                        topk_result[lane] = best_value;
                        const int64_t place_value = place[lane];
                        topk_result_2[lane] = place_value;
                    }
                    // topk(x, iota(T, j*T, N), 0, best, place)
                    sketch::topk<0, true>(
                        sketch::tile<const float, 1>{topk_0, {0}, {std::min<int64_t>(T, N - j * T)},
                            {1}},
                        sketch::tile<const int64_t, 1>{topk_1, {0}, {std::min<int64_t>(T, N - j *
                            T)}, {1}},
                        sketch::tile<float, 1>{topk_result, {0}, {K}, {1}},
                        sketch::tile<int64_t, 1>{topk_result_2, {0}, {K}, {1}});
                    #pragma omp simd
                    for (int64_t lane = 0; lane < K; ++lane) {
                        const float topk_result_value = topk_result[lane];
                        best[lane] = topk_result_value;
                        const int64_t topk_result_2_value = topk_result_2[lane];
                        place[lane] = topk_result_2_value;
                    }
                }
                // store(best -> VALUES[i, 0:K])
                // store(place -> PLACES[i, 0:K])
                for (int64_t block = 0; block < K; block += 1024) {
                    const int64_t block_end = std::min<int64_t>(K, block + 1024);
                    alignas(64) float VALUES_block[1024];
                    float *const VALUES_row = VALUES_streams ? VALUES_block : VALUES + (i * K +
                        block);
                    alignas(64) int64_t PLACES_block[1024];
                    int64_t *const PLACES_row = PLACES_streams ? PLACES_block : PLACES + (i * K +
                        block);
                    #pragma omp simd
                    for (int64_t lane = block; lane < block_end; ++lane) {
                        const float best_value = best[lane];
                        VALUES_row[lane - block] = best_value;
                        const int64_t place_value = place[lane];
                        PLACES_row[lane - block] = place_value;
                    }
                    if (VALUES_streams) {
                        sketch::stream(VALUES + (i * K + block), VALUES_block, block_end - block);
                    }
                    if (PLACES_streams) {
                        sketch::stream(PLACES + (i * K + block), PLACES_block, block_end - block);
                    }
                }
            }
            sketch::end_streams();
        }
    }
    return 0;
}
