// dropout: a C++ kernel for cpu, made from a sketch.

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

// Uniform in [0, 1): the upper 24 bits of a word.
inline float rand(int64_t seed, int64_t offset)
{
    const uint32_t word = static_cast<uint32_t>(philox(seed, offset));
    return static_cast<float>(static_cast<int32_t>(word >> 8)) * 0x1p-24F;
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

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  p >= 0 and p < 1
//   2  M >= 0 and N >= 0
//   3  1 - p != 0
//   4  fewer than 2**48 elements in each tensor
extern "C" int64_t dropout(
    const float *__restrict X, float *__restrict Y, int64_t M, int64_t N, double p, int64_t seed)
{
    constexpr int64_t T = 2048;

    // p is of type f32.
    p = static_cast<float>(p);
    if (M < 0 || N < 0) {
        return 2;
    }
    if (!(p >= 0.0) || !(p < 1.0)) {
        return 1;
    }
    if (!(1.0 - p != 0.0)) {
        return 3;
    }
    [[maybe_unused]] const double scale = static_cast<double>(1.0 / (1.0 - p));
    if (sketch::too_large({M, N})) {
        return 4;
    }
    const bool Y_streams = sketch::streams(sizeof(float), {M, N});
    #pragma omp parallel
    {
        #pragma omp for schedule(static)
        for (int64_t i = 0; i < sketch::ceil_div(M * N, T); ++i) {
            alignas(64) bool keep[T];
            // rand(seed, i*T + iota(T), random)
            // ge(random, p, keep)
            #pragma omp simd
            for (int64_t lane = 0; lane < T; ++lane) {
                const float random = sketch::rand(seed, i * T + lane);
                const bool keep_value = random >= static_cast<float>(p);
                keep[lane] = keep_value;
            }
            // load(XF[i*T:(i+1)*T] -> x)
            // mul(x, scale, x)
            // where(keep, x, 0, x)
            // store(x -> YF[i*T:(i+1)*T])
            const float *const X_row = X + i * T;
            for (int64_t block = 0; block < std::min<int64_t>(T, M * N - i * T); block += 1024) {
                const int64_t block_end = std::min<int64_t>(std::min<int64_t>(T, M * N - i * T),
                    block + 1024);
                alignas(64) float Y_block[1024];
                float *const Y_row = Y_streams ? Y_block : Y + (i * T + block);
                #pragma omp simd
                for (int64_t lane = block; lane < block_end; ++lane) {
                    const float x = X_row[lane];
                    const float x_mul = x * static_cast<float>(scale);
                    const bool keep_value = keep[lane];
                    const float x_where = keep_value ? x_mul : 0.0f;
                    Y_row[lane - block] = x_where;
                }
                if (Y_streams) {
                    sketch::stream(Y + (i * T + block), Y_block, block_end - block);
                }
            }
        }
        sketch::end_streams();
    }
    return 0;
}
