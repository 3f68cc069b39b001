// cumprod: a C++ kernel for cpu, made from a sketch.

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
inline void cumprod(const tile<const T, rank> &source, const tile<T, rank> &result)
{
    using W = std::conditional_t<std::is_floating_point_v<T>, double, T>;
    scan_lines<axis, reverse, exclusive>(source, result, W{1},
                              [](W a, W b) { return static_cast<W>(a * b); });
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
//   2  N <= 4096
//   3  fewer than 2**48 elements in each tensor
extern "C" int64_t cumprod(const float *__restrict X, float *__restrict Y, int64_t M, int64_t N)
{
    if (M < 0 || N < 0) {
        return 1;
    }
    if (N > 4096) {
        return 2;
    }
    if (sketch::too_large({M, N})) {
        return 3;
    }
    const bool Y_streams = sketch::streams(sizeof(float), {M, N});
    {
        // Scratch memory of each thread.
        sketch::arena arena;
        const int64_t cumprod_0_place = arena.add(sizeof(float), {N});
        const int64_t cumprod_result_place = arena.add(sizeof(float), {N});
        if (!arena.allocate(omp_get_max_threads())) {
            return -1;
        }
        #pragma omp parallel
        {
            float *const __restrict cumprod_0 = arena.at<float>(cumprod_0_place,
                omp_get_thread_num());
            float *const __restrict cumprod_result = arena.at<float>(cumprod_result_place,
                omp_get_thread_num());
            #pragma omp for schedule(static)
            for (int64_t i = 0; i < M; ++i) {
                // load(X[i, 0:N] -> x)
                const float *const X_row = X + i * N;
                #pragma omp simd
                for (int64_t lane = 0; lane < N; ++lane) {
                    const float x = X_row[lane];
                    cumprod_0[lane] = x;
                }
                // cumprod(x, 0, y)
                sketch::cumprod<0, false, false>(
                    sketch::tile<const float, 1>{cumprod_0, {0}, {N}, {1}},
                    sketch::tile<float, 1>{cumprod_result, {0}, {N}, {1}});
                // store(y -> Y[i, 0:N])
                for (int64_t block = 0; block < N; block += 1024) {
                    const int64_t block_end = std::min<int64_t>(N, block + 1024);
                    alignas(64) float Y_block[1024];
                    float *const Y_row = Y_streams ? Y_block : Y + (i * N + block);
                    #pragma omp simd
                    for (int64_t lane = block; lane < block_end; ++lane) {
                        const float cumprod_result_value = cumprod_result[lane];
                        const float y = cumprod_result_value;
                        Y_row[lane - block] = y;
                    }
                    if (Y_streams) {
                        sketch::stream(Y + (i * N + block), Y_block, block_end - block);
                    }
                }
            }
            sketch::end_streams();
        }
    }
    return 0;
}
