// unscale_gradients: a C++ kernel for cpu, made from a sketch.

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

inline uint32_t bits_of(float x)
{
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

inline float float_of(uint32_t bits)
{
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

// double to float, rounded to odd: a second rounding to fewer bits is then exact.
inline float odd(double x)
{
    const float nearest = static_cast<float>(x);
    const bool inexact = static_cast<double>(nearest) != x && x == x;
    const bool above = std::fabs(static_cast<double>(nearest)) > std::fabs(x);
    const uint32_t bits = bits_of(nearest) - ((inexact && above) ? 1U : 0U);
    return float_of(bits | (inexact ? 1U : 0U));
}

// IEEE binary16 as it lies in memory; arithmetic happens in float.
struct half {
    uint16_t bits;
};

// The upper half of a float.
struct bfloat16 {
    uint16_t bits;
};

inline bfloat16 to_bfloat16(float x)
{
    const uint32_t bits = bits_of(x);
    const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    const uint32_t quiet = (bits >> 16) | 0x40U;
    return bfloat16{static_cast<uint16_t>(x != x ? quiet : rounded)};
}

inline bfloat16 to_bfloat16(double x) { return to_bfloat16(odd(x)); }

inline float to_float(bfloat16 x) { return float_of(static_cast<uint32_t>(x.bits) << 16); }

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

template <class T> inline bool isfinite(T x)
{
    return absolute(x) < std::numeric_limits<T>::infinity() || !std::is_floating_point_v<T>;
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
//   1  M >= 0 and N >= 0
//   2  fewer than 2**48 elements in each tensor
//   3  SCALE_extent_0 == 1 or SCALE_extent_0 == M
extern "C" int64_t unscale_gradients(
    const sketch::bfloat16 *__restrict GRADIENT, const float *__restrict SCALE, sketch::bfloat16
    *__restrict Y, bool *__restrict FINITE, int64_t M, int64_t N, int64_t SCALE_extent_0)
{
    constexpr int64_t TM = 16;
    constexpr int64_t TN = 256;

    if (M < 0 || N < 0) {
        return 1;
    }
    if (sketch::too_large({M, N})) {
        return 2;
    }
    if (SCALE_extent_0 != 1 && SCALE_extent_0 != M) {
        return 3;
    }
    [[maybe_unused]] const int64_t SCALE_step_0 = SCALE_extent_0 == 1 ? 0 : 1;
    const bool FINITE_streams = sketch::streams(sizeof(bool), {M});
    #pragma omp parallel
    {
        #pragma omp for schedule(static)
        for (int64_t i = 0; i < sketch::ceil_div(M, TM); ++i) {
            alignas(64) bool finite[TM];
            // finite = alloc([TM], init=True)
            #pragma omp simd
            for (int64_t lane = 0; lane < std::min<int64_t>(TM, M - i * TM); ++lane) {
                finite[lane] = true;
            }
            // for j in range(ceil(N, TN)):
            for (int64_t j = 0; j < sketch::ceil_div(N, TN); ++j) {
                for (int64_t row_ = 0; row_ < std::min<int64_t>(TM, M - i * TM); ++row_) {
                    bool row = true;
                    // load(GRADIENT[i*TM:(i+1)*TM, j*TN:(j+1)*TN] -> gradient)
                    // isfinite(gradient, ok)
                    // reduce_all(ok, 1, row)
                    // load(SCALE[i*TM:(i+1)*TM, 0:1] -> scale)
                    // div(gradient, scale, y)
                    // store(y -> Y[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
                    const float scale = SCALE[(i * TM + row_) * SCALE_step_0];
                    const sketch::bfloat16 *const GRADIENT_row = GRADIENT + ((i * TM + row_) * N + j
                        * TN);
                    sketch::bfloat16 *const Y_row = Y + ((i * TM + row_) * N + j * TN);
                    #pragma omp simd reduction(&& : row)
                    for (int64_t lane = 0; lane < std::min<int64_t>(TN, N - j * TN); ++lane) {
                        const sketch::bfloat16 gradient = GRADIENT_row[lane];
                        const bool ok = sketch::isfinite(sketch::to_float(gradient));
                        row = row && ok;
                        const float y = sketch::to_float(gradient) / scale;
                        Y_row[lane] = sketch::to_bfloat16(y);
                    }
                    // logical_and(finite, row, finite)
                    const bool finite_value = finite[row_];
                    const bool finite_value_2 = finite_value && row;
                    finite[row_] = finite_value_2;
                }
            }
            // store(finite -> FINITE[i*TM:(i+1)*TM])
            for (int64_t block = 0; block < std::min<int64_t>(TM, M - i * TM); block += 1024) {
                const int64_t block_end = std::min<int64_t>(std::min<int64_t>(TM, M - i * TM), block
                    + 1024);
                alignas(64) bool FINITE_block[1024];
                bool *const FINITE_row = FINITE_streams ? FINITE_block : FINITE + (i * TM + block);
                #pragma omp simd
                for (int64_t lane = block; lane < block_end; ++lane) {
                    const bool finite_value = finite[lane];
                    FINITE_row[lane - block] = finite_value;
                }
                if (FINITE_streams) {
                    sketch::stream(FINITE + (i * TM + block), FINITE_block, block_end - block);
                }
            }
        }
        sketch::end_streams();
    }
    return 0;
}
