// group_norm: a C++ kernel for cpu, made from a sketch.

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
    if (b == 0 || b == -1) {
        return b == 0 ? T{0} : static_cast<T>(T{0} - a);
    }
    const T quotient = static_cast<T>(a / b);
    return static_cast<T>(quotient - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0));
}
constexpr int64_t floor_div(int64_t a, int b) { return floor_div(a, int64_t{b}); }
constexpr int64_t floor_div(int a, int64_t b) { return floor_div(int64_t{a}, b); }
inline float floor_div(float a, float b) { return __builtin_floorf(a / b); }
inline double floor_div(double a, double b) { return __builtin_floor(a / b); }

template <class T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
constexpr T floor_mod(T a, T b)
{
    return static_cast<T>(a - b * floor_div(a, b));
}
constexpr int64_t floor_mod(int64_t a, int b) { return floor_mod(a, int64_t{b}); }
constexpr int64_t floor_mod(int a, int64_t b) { return floor_mod(int64_t{a}, b); }
inline float floor_mod(float a, float b) { return __builtin_fmaf(-b, floor_div(a, b), a); }
inline double floor_mod(double a, double b) { return __builtin_fma(-b, floor_div(a, b), a); }

constexpr int64_t ceil_div(int64_t a, int64_t b) { return -floor_div(-a, b); }

// The larger; NaN wins. Only `larger` waits for `a`, the accumulator of a loop.
template <class T> inline T max(T a, T b)
{
    const T larger = b > a ? b : a;
    return b != b ? b : larger;
}
inline bool max(bool a, bool b) { return a || b; }

inline float rsqrt(float x) { return 1.0F / __builtin_sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }

} // namespace sketch

extern "C" int64_t group_norm(
    const float *__restrict X, const float *__restrict WEIGHT, const float *__restrict BIAS, float
    *__restrict Y, int64_t B, int64_t C, int64_t H, int64_t W, double eps)
{
    constexpr int64_t TILE = 4096;

    [[maybe_unused]] const int64_t count = sketch::floor_div(C, 8) * H * W;
    // require: B*8*(C//8*H*W) == B*C*H*W
    if (!(B * 8 * (sketch::floor_div(C, 8) * H * W) == B * C * H * W)) {
        return 1;
    }
    // require: B*8*(C//8)*(H*W) == B*C*H*W
    if (!(B * 8 * sketch::floor_div(C, 8) * (H * W) == B * C * H * W)) {
        return 2;
    }
    // require: 8*(C//8) == C
    if (!(8 * sketch::floor_div(C, 8) == C)) {
        return 3;
    }
    // require: C % 8 == 0
    if (!(sketch::floor_mod(C, 8) == 0)) {
        return 4;
    }
    const bool Y_streams = sketch::streams(sizeof(float), {B, C, H, W});
    {
        // Scratch memory of each thread.
        sketch::arena arena;
        const int64_t squares_place = arena.add(sizeof(float), {TILE});
        const int64_t lanes_place = arena.add(sizeof(float), {TILE});
        if (!arena.allocate(omp_get_max_threads())) {
            return -1;
        }
        #pragma omp parallel
        {
            float *const __restrict squares = arena.at<float>(squares_place, omp_get_thread_num());
            float *const __restrict lanes = arena.at<float>(lanes_place, omp_get_thread_num());
            #pragma omp for collapse(2) schedule(static)
            for (int64_t b = 0; b < B; ++b) {
                for (int64_t g = 0; g < 8; ++g) {
                    // squares = alloc([TILE], init=0.0)
                    // lanes = alloc([TILE], init=0.0)
                    #pragma omp simd
                    for (int64_t lane = 0; lane < std::min<int64_t>(TILE, sketch::floor_div(C, 8) *
                        H * W); ++lane) {
                        squares[lane] = 0.0f;
                        lanes[lane] = 0.0f;
                    }
                    // for j in range(ceil(C//8*H*W, TILE)):
                    for (int64_t j = 0; j < sketch::ceil_div(sketch::floor_div(C, 8) * H * W, TILE);
                        ++j) {
                        // load(GROUPS[b, g, j*TILE:(j+1)*TILE] -> x)
                        // add(lanes, x, lanes)
                        const float *const X_row = X + ((b * 8 + g) * (sketch::floor_div(C, 8) * H *
                            W) + j * TILE);
                        #pragma omp simd
                        for (int64_t lane = 0; lane < std::min<int64_t>(TILE, sketch::floor_div(C,
                            8) * H * W - j * TILE); ++lane) {
                            const float lanes_value = lanes[lane];
                            const float x = X_row[lane];
                            const float lanes_value_2 = lanes_value + x;
                            lanes[lane] = lanes_value_2;
                        }
                    }
                    float mean = 0.0f;
                    // reduce_sum(lanes, 0, mean)
                    #pragma omp simd reduction(+ : mean)
                    for (int64_t lane = 0; lane < std::min<int64_t>(TILE, sketch::floor_div(C, 8) *
                        H * W); ++lane) {
                        const float lanes_value = lanes[lane];
                        mean += lanes_value;
                    }
                    // div(mean, count, mean)
                    const float mean_div = mean / static_cast<float>(count);
                    // for j in range(ceil(C//8*H*W, TILE)):
                    for (int64_t j_2 = 0; j_2 < sketch::ceil_div(sketch::floor_div(C, 8) * H * W,
                        TILE); ++j_2) {
                        // load(GROUPS[b, g, j*TILE:(j+1)*TILE] -> x)
                        // sub(x, mean, x)
                        // fma(x, x, squares, squares)
                        const float *const X_row_2 = X + ((b * 8 + g) * (sketch::floor_div(C, 8) * H
                            * W) + j_2 * TILE);
                        #pragma omp simd
                        for (int64_t lane = 0; lane < std::min<int64_t>(TILE, sketch::floor_div(C,
                            8) * H * W - j_2 * TILE); ++lane) {
                            const float x_2 = X_row_2[lane];
                            const float x_2_sub = x_2 - mean_div;
                            const float squares_value = squares[lane];
                            const float squares_value_2 = x_2_sub * x_2_sub + squares_value;
                            squares[lane] = squares_value_2;
                        }
                    }
                    float inverse = 0.0f;
                    // reduce_sum(squares, 0, inverse)
                    #pragma omp simd reduction(+ : inverse)
                    for (int64_t lane = 0; lane < std::min<int64_t>(TILE, sketch::floor_div(C, 8) *
                        H * W); ++lane) {
                        const float squares_value = squares[lane];
                        inverse += squares_value;
                    }
                    // div(inverse, count, inverse)
                    const float inverse_div = inverse / static_cast<float>(count);
                    // add(inverse, eps, inverse)
                    const float inverse_add = inverse_div + static_cast<float>(eps);
                    // rsqrt(inverse, inverse)
                    const float inverse_rsqrt = sketch::rsqrt(inverse_add);
                    // for c in range(C//8):
                    for (int64_t c = 0; c < sketch::floor_div(C, 8); ++c) {
                        // load(SCALES[g, c] -> scale)
                        // mul(scale, inverse, scale)
                        const float scale = WEIGHT[g * sketch::floor_div(C, 8) + c];
                        const float scale_mul = scale * inverse_rsqrt;
                        // for j in range(ceil(H*W, TILE)):
                        for (int64_t j_3 = 0; j_3 < sketch::ceil_div(H * W, TILE); ++j_3) {
                            // load(CHANNELS[b, g, c, j*TILE:(j+1)*TILE] -> y)
                            // sub(y, mean, y)
                            // load(SHIFTS[g, c] -> shift)
                            // fma(y, scale, shift, y)
                            // store(y -> RESULTS[b, g, c, j*TILE:(j+1)*TILE])
                            const float shift = BIAS[g * sketch::floor_div(C, 8) + c];
                            const float *const X_row_3 = X + (((b * 8 + g) * sketch::floor_div(C, 8)
                                + c) * (H * W) + j_3 * TILE);
                            for (int64_t block = 0; block < std::min<int64_t>(TILE, H * W - j_3 *
                                TILE); block += 1024) {
                                const int64_t block_end = std::min<int64_t>(std::min<int64_t>(TILE,
                                    H * W - j_3 * TILE), block + 1024);
                                alignas(64) float Y_block[1024];
                                float *const Y_row = Y_streams ? Y_block : Y + (((b * 8 + g) *
                                    sketch::floor_div(C, 8) + c) * (H * W) + j_3 * TILE + block);
                                #pragma omp simd
                                for (int64_t lane = block; lane < block_end; ++lane) {
                                    const float y = X_row_3[lane];
                                    const float y_sub = y - mean_div;
                                    const float y_fma = y_sub * scale_mul + shift;
                                    Y_row[lane - block] = y_fma;
                                }
                                if (Y_streams) {
                                    sketch::stream(Y + (((b * 8 + g) * sketch::floor_div(C, 8) + c)
                                        * (H * W) + j_3 * TILE + block), Y_block, block_end -
                                        block);
                                }
                            }
                        }
                    }
                }
            }
            sketch::end_streams();
        }
    }
    return 0;
}
