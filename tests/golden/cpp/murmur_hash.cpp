// murmur_hash: a C++ kernel for cpu, made from a sketch.

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

template <class T> inline T shl(T a, T b)
{
    return static_cast<T>(a << (b & static_cast<T>(sizeof(T) * 8 - 1)));
}

template <class T> inline T shr(T a, T b)
{
    return static_cast<T>(a >> (b & static_cast<T>(sizeof(T) * 8 - 1)));
}

} // namespace sketch

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  N >= 0
extern "C" int64_t murmur_hash(
    const uint32_t *__restrict KEY, uint32_t *__restrict HASH, int64_t N)
{
    constexpr int64_t T = 2048;

    if (N < 0) {
        return 1;
    }
    const bool HASH_streams = sketch::streams(sizeof(uint32_t), {N});
    #pragma omp parallel
    {
        #pragma omp for schedule(static)
        for (int64_t i = 0; i < sketch::ceil_div(N, T); ++i) {
            // load(KEY[i*T:(i+1)*T] -> h)
            // mul(h, 0xcc9e2d51, h)
            // shr(h, 17, part)
            // shl(h, 15, h)
            // bitwise_or(h, part, h)
            // mul(h, 0x1b873593, h)
            // shr(h, 19, part)
            // shl(h, 13, h)
            // mul(h, 5, h)
            // add(h, 0xe6546b64, h)
            // bitwise_xor(h, 4, h)
            // shr(h, 16, part)
            // bitwise_xor(h, part, h)
            // mul(h, 0x85ebca6b, h)
            // shr(h, 13, part)
            // mul(h, 0xc2b2ae35, h)
            // store(h -> HASH[i*T:(i+1)*T])
            const uint32_t *const KEY_row = KEY + i * T;
            for (int64_t block = 0; block < std::min<int64_t>(T, N - i * T); block += 1024) {
                const int64_t block_end = std::min<int64_t>(std::min<int64_t>(T, N - i * T), block +
                    1024);
                alignas(64) uint32_t HASH_block[1024];
                uint32_t *const HASH_row = HASH_streams ? HASH_block : HASH + (i * T + block);
                #pragma omp simd
                for (int64_t lane = block; lane < block_end; ++lane) {
                    const uint32_t h = KEY_row[lane];
                    const uint32_t h_mul = h * 3432918353U;
                    const uint32_t part = sketch::shr(h_mul, 17U);
                    const uint32_t h_shl = sketch::shl(h_mul, 15U);
                    const uint32_t h_bitwise_or = h_shl | part;
                    const uint32_t h_mul_2 = h_bitwise_or * 461845907U;
                    const uint32_t part_shr = sketch::shr(h_mul_2, 19U);
                    const uint32_t h_shl_2 = sketch::shl(h_mul_2, 13U);
                    const uint32_t h_bitwise_or_2 = h_shl_2 | part_shr;
                    const uint32_t h_mul_3 = h_bitwise_or_2 * 5U;
                    const uint32_t h_add = h_mul_3 + 3864292196U;
                    const uint32_t h_bitwise_xor = h_add ^ 4U;
                    const uint32_t part_shr_2 = sketch::shr(h_bitwise_xor, 16U);
                    const uint32_t h_bitwise_xor_2 = h_bitwise_xor ^ part_shr_2;
                    const uint32_t h_mul_4 = h_bitwise_xor_2 * 2246822507U;
                    const uint32_t part_shr_3 = sketch::shr(h_mul_4, 13U);
                    const uint32_t h_bitwise_xor_3 = h_mul_4 ^ part_shr_3;
                    const uint32_t h_mul_5 = h_bitwise_xor_3 * 3266489909U;
                    const uint32_t part_shr_4 = sketch::shr(h_mul_5, 16U);
                    const uint32_t h_bitwise_xor_4 = h_mul_5 ^ part_shr_4;
                    HASH_row[lane - block] = h_bitwise_xor_4;
                }
                if (HASH_streams) {
                    sketch::stream(HASH + (i * T + block), HASH_block, block_end - block);
                }
            }
        }
        sketch::end_streams();
    }
    return 0;
}
