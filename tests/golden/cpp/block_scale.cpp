// block_scale: a C++ kernel for cpu, made from a sketch.

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

template <class T> inline T absolute(T x) { return static_cast<T>(x < T{0} ? T{0} - x : x); }
inline float absolute(float x) { return __builtin_fabsf(x); }
inline double absolute(double x) { return __builtin_fabs(x); }

// The larger; NaN wins. Only `larger` waits for `a`, the accumulator of a loop.
template <class T> inline T max(T a, T b)
{
    const T larger = b > a ? b : a;
    return b != b ? b : larger;
}
inline bool max(bool a, bool b) { return a || b; }

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

// Copies lanes in row-major order from one rectangle to another with as many of them.
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

#pragma omp declare reduction(propagating_max : float, double \
                              : omp_out = sketch::max(omp_out, omp_in)) \
    initializer(omp_priv = omp_orig)

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  M >= 0
extern "C" int64_t block_scale(
    const float *__restrict X, float *__restrict Y, float *__restrict SCALE, int64_t M)
{
    constexpr int64_t T = 16;

    if (M < 0) {
        return 1;
    }
    const bool Y_streams = sketch::streams(sizeof(float), {M, 256});
    {
        // Scratch memory of each thread.
        sketch::arena arena;
        const int64_t reshape_0_place = arena.add(sizeof(float), {T, 256});
        const int64_t reshape_result_place = arena.add(sizeof(float), {T, 8, 32});
        const int64_t reshape_0_2_place = arena.add(sizeof(float), {T, 8, 32});
        const int64_t reshape_result_2_place = arena.add(sizeof(float), {T, 256});
        const int64_t y_place = arena.add(sizeof(float), {T, 256});
        if (!arena.allocate(omp_get_max_threads())) {
            return -1;
        }
        #pragma omp parallel
        {
            float *const __restrict reshape_0 = arena.at<float>(reshape_0_place,
                omp_get_thread_num());
            float *const __restrict reshape_result = arena.at<float>(reshape_result_place,
                omp_get_thread_num());
            float *const __restrict reshape_0_2 = arena.at<float>(reshape_0_2_place,
                omp_get_thread_num());
            float *const __restrict reshape_result_2 = arena.at<float>(reshape_result_2_place,
                omp_get_thread_num());
            float *const __restrict y = arena.at<float>(y_place, omp_get_thread_num());
            #pragma omp for schedule(static)
            for (int64_t i = 0; i < sketch::ceil_div(M, T); ++i) {
                alignas(64) float block[32];
                alignas(64) float scale_max[T * 8];
                alignas(64) float reshape_0_3[T * 8 * 1];
                alignas(64) float reshape_result_3[T * 8];
                for (int64_t row = 0; row < std::min<int64_t>(T, M - i * T); ++row) {
                    // load(X[i*T:(i+1)*T, 0:256] -> x)
                    const float *const X_row = X + (i * T + row) * 256;
                    float *const reshape_0_row = reshape_0 + row * 256;
                    #pragma omp simd
                    for (int64_t lane = 0; lane < 256; ++lane) {
                        const float x = X_row[lane];
                        reshape_0_row[lane] = x;
                    }
                }
                // reshape(x, block)
                sketch::reshape(
                    sketch::tile<const float, 2>{reshape_0, {0, 0}, {std::min<int64_t>(T, M - i *
                        T), 256}, {256, 1}},
                    sketch::tile<float, 3>{reshape_result, {0, 0, 0}, {std::min<int64_t>(T, M - i *
                        T), 8, 32}, {8 * 32, 32, 1}});
                for (int64_t plane = 0; plane < std::min<int64_t>(T, M - i * T); ++plane) {
                    for (int64_t row = 0; row < 8; ++row) {
                        float scale = -std::numeric_limits<float>::infinity();
                        // abs(block, size)
                        // reduce_max(size, 2, scale)
                        const float *const reshape_result_row = reshape_result + (plane * 8 + row) *
                            32;
                        #pragma omp simd reduction(propagating_max : scale)
                        for (int64_t lane = 0; lane < 32; ++lane) {
                            const float reshape_result_value = reshape_result_row[lane];
                            block[lane] = reshape_result_value;
                            const float size = sketch::absolute(reshape_result_value);
                            scale = sketch::max(scale, size);
                        }
                        // max(scale, 1e-12, scale)
                        const float scale_max_value = sketch::max(scale, 1e-12f);
                        scale_max[plane * 8 + row] = scale_max_value;
                        // div(block, scale, block)
                        float *const reshape_0_2_row = reshape_0_2 + (plane * 8 + row) * 32;
                        #pragma omp simd
                        for (int64_t lane = 0; lane < 32; ++lane) {
                            const float block_value = block[lane];
                            const float block_div = block_value / scale_max_value;
                            const float reshape_0_2_value = block_div;
                            reshape_0_2_row[lane] = reshape_0_2_value;
                        }
                    }
                }
                // reshape(block, y)
                sketch::reshape(
                    sketch::tile<const float, 3>{reshape_0_2, {0, 0, 0}, {std::min<int64_t>(T, M - i
                        * T), 8, 32}, {8 * 32, 32, 1}},
                    sketch::tile<float, 2>{reshape_result_2, {0, 0}, {std::min<int64_t>(T, M - i *
                        T), 256}, {256, 1}});
                for (int64_t row = 0; row < std::min<int64_t>(T, M - i * T); ++row) {
                    const float *const reshape_result_2_row = reshape_result_2 + row * 256;
                    float *const y_row = y + row * 256;
                    #pragma omp simd
                    for (int64_t lane = 0; lane < 256; ++lane) {
                        const float reshape_result_2_value = reshape_result_2_row[lane];
                        y_row[lane] = reshape_result_2_value;
                    }
                    const float *const scale_max_row = scale_max + row * 8;
                    float *const reshape_0_3_row = reshape_0_3 + row * 8;
                    #pragma omp simd
                    for (int64_t lane = 0; lane < 8; ++lane) {
                        const float scale_max_value = scale_max_row[lane];
                        reshape_0_3_row[lane] = scale_max_value;
                    }
                }
                // reshape(scale, flat)
                sketch::reshape(
                    sketch::tile<const float, 3>{reshape_0_3, {0, 0, 0}, {std::min<int64_t>(T, M - i
                        * T), 8, 1}, {8, 1, 1}},
                    sketch::tile<float, 2>{reshape_result_3, {0, 0}, {std::min<int64_t>(T, M - i *
                        T), 8}, {8, 1}});
                for (int64_t row = 0; row < std::min<int64_t>(T, M - i * T); ++row) {
                    // store(flat -> SCALE[i*T:(i+1)*T, 0:8])
                    const float *const reshape_result_3_row = reshape_result_3 + row * 8;
                    float *const SCALE_row = SCALE + (i * T + row) * 8;
                    #pragma omp simd
                    for (int64_t lane = 0; lane < 8; ++lane) {
                        const float reshape_result_3_value = reshape_result_3_row[lane];
                        const float flat = reshape_result_3_value;
                        SCALE_row[lane] = flat;
                    }
                    // store(y -> Y[i*T:(i+1)*T, 0:256])
                    const float *const y_row_2 = y + row * 256;
                    for (int64_t block_2 = 0; block_2 < 256; block_2 += 1024) {
                        const int64_t block_2_end = std::min<int64_t>(256, block_2 + 1024);
                        alignas(64) float Y_block[1024];
                        float *const Y_row = Y_streams ? Y_block : Y + ((i * T + row) * 256 +
                            block_2);
                        #pragma omp simd
                        for (int64_t lane = block_2; lane < block_2_end; ++lane) {
                            const float y_value = y_row_2[lane];
                            Y_row[lane - block_2] = y_value;
                        }
                        if (Y_streams) {
                            sketch::stream(Y + ((i * T + row) * 256 + block_2), Y_block, block_2_end
                                - block_2);
                        }
                    }
                }
            }
            sketch::end_streams();
        }
    }
    return 0;
}
