// add_noise: a C++ kernel for cpu, made from a sketch.

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

// g++ calls the vector versions of these (libmvec) from SIMD loops.
#if defined(__x86_64__) && defined(__GLIBC__)
#if __GLIBC_PREREQ(2, 35)
#define SKETCH_VECTORS __attribute__((simd("notinbranch"), const))
#endif
#endif
#ifndef SKETCH_VECTORS
#define SKETCH_VECTORS
#endif
extern "C" {
SKETCH_VECTORS float logf(float x) noexcept;
SKETCH_VECTORS double log(double x) noexcept;
SKETCH_VECTORS float cosf(float x) noexcept;
SKETCH_VECTORS double cos(double x) noexcept;
}

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

inline float sqrt(float x) { return __builtin_sqrtf(x); }
inline double sqrt(double x) { return __builtin_sqrt(x); }

inline float log(float x) { return ::logf(x); }
inline double log(double x) { return ::log(x); }

inline float cos(float x) { return ::cosf(x); }
inline double cos(double x) { return ::cos(x); }

// Philox4x32-10 (Salmon et al. 2011): the first two words for a key and a counter.
inline uint64_t philox(int64_t seed, int64_t offset)
{
    constexpr uint64_t low = 0xffffffffU;
    uint64_t k0 = static_cast<uint64_t>(seed) & low;
    uint64_t k1 = static_cast<uint64_t>(seed) >> 32;
    uint64_t c0 = static_cast<uint64_t>(offset) & low;
    uint64_t c1 = static_cast<uint64_t>(offset) >> 32;
    uint64_t c2 = 0;
    uint64_t c3 = 0;
#pragma GCC unroll 10
    for (int turn = 0; turn < 10; ++turn) {
        const uint64_t p0 = 0xd2511f53U * c0;
        const uint64_t p1 = 0xcd9e8d57U * c2;
        c0 = (p1 >> 32) ^ c1 ^ k0;
        c1 = p1 & low;
        c2 = (p0 >> 32) ^ c3 ^ k1;
        c3 = p0 & low;
        k0 = (k0 + 0x9e3779b9U) & low;
        k1 = (k1 + 0xbb67ae85U) & low;
    }
    return c0 | c1 << 32;
}

// Standard normal, by Box-Muller.
inline double randn(int64_t seed, int64_t offset)
{
    const uint64_t words = philox(seed, offset);
    const int32_t first = static_cast<int32_t>(static_cast<uint32_t>(words) >> 8);
    const int32_t second = static_cast<int32_t>(words >> 40);
    const double radius = std::sqrt(-2.0 * log((first + 1.0) * 0x1p-24));
    return radius * cos(6.283185307179586 * (second * 0x1p-24));
}

} // namespace sketch

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  N >= 0
extern "C" int64_t add_noise(
    const float *__restrict X, float *__restrict Y, int64_t N, double sigma, int64_t seed)
{
    constexpr int64_t T = 2048;

    if (N < 0) {
        return 1;
    }
    const bool Y_streams = sketch::streams(sizeof(float), {N});
    {
        // Scratch memory of each thread.
        sketch::arena arena;
        const int64_t noise_place = arena.add(sizeof(float), {T});
        if (!arena.allocate(omp_get_max_threads())) {
            return -1;
        }
        #pragma omp parallel
        {
            float *const __restrict noise = arena.at<float>(noise_place, omp_get_thread_num());
            #pragma omp for schedule(static)
            for (int64_t i = 0; i < sketch::ceil_div(N, T); ++i) {
                // randn(seed, i*T + iota(T), noise)
                #pragma omp simd
                for (int64_t lane = 0; lane < T; ++lane) {
                    const float noise_value = static_cast<float>(sketch::randn(seed, i * T + lane));
                    noise[lane] = noise_value;
                }
                // load(X[i*T:(i+1)*T] -> x)
                // fma(noise, sigma, x, x)
                // store(x -> Y[i*T:(i+1)*T])
                const float *const X_row = X + i * T;
                for (int64_t block = 0; block < std::min<int64_t>(T, N - i * T); block += 1024) {
                    const int64_t block_end = std::min<int64_t>(std::min<int64_t>(T, N - i * T),
                        block + 1024);
                    alignas(64) float Y_block[1024];
                    float *const Y_row = Y_streams ? Y_block : Y + (i * T + block);
                    #pragma omp simd
                    for (int64_t lane = block; lane < block_end; ++lane) {
                        const float noise_value = noise[lane];
                        const float x = X_row[lane];
                        const float x_fma = noise_value * static_cast<float>(sigma) + x;
                        Y_row[lane - block] = x_fma;
                    }
                    if (Y_streams) {
                        sketch::stream(Y + (i * T + block), Y_block, block_end - block);
                    }
                }
            }
            sketch::end_streams();
        }
    }
    return 0;
}
