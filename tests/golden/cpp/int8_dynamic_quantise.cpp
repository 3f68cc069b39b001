// int8_dynamic_quantise: a C++ kernel for cpu, made from a sketch.

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

inline float round_nearest(float x) { return __builtin_rintf(x); }
inline double round_nearest(double x) { return __builtin_rint(x); }

// A rounded float as an integer; what does not fit (NaN too) gives 0.
template <class T, class F>
inline T to_integer(F x)
{
    constexpr F least = static_cast<F>(std::numeric_limits<T>::min());
    constexpr F limit = static_cast<F>(std::numeric_limits<T>::max() / 2 + 1) * F{2};
    const bool fits = x >= least && x < limit;
    return static_cast<T>(fits ? x : F{0});
}

template <class T, class F>
inline T saturated(F x)
{
    constexpr F least = static_cast<F>(std::numeric_limits<T>::min());
    constexpr F limit = static_cast<F>(std::numeric_limits<T>::max() / 2 + 1) * F{2};
    const T low = x < least ? std::numeric_limits<T>::min() : to_integer<T>(x);
    return x >= limit ? std::numeric_limits<T>::max() : low;
}

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

// The smaller; NaN wins. Only `smaller` waits for `a`, the accumulator of a loop.
template <class T> inline T min(T a, T b)
{
    const T smaller = b < a ? b : a;
    return b != b ? b : smaller;
}
inline bool min(bool a, bool b) { return a && b; }

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

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  M >= 0 and N >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t int8_dynamic_quantise(
    const float *__restrict X, int8_t *__restrict Q, float *__restrict SCALE, int64_t M, int64_t
    N)
{
    constexpr int64_t T = 2048;

    if (M < 0 || N < 0) {
        return 1;
    }
    if (sketch::too_large({M, N})) {
        return 2;
    }
    const bool Q_streams = sketch::streams(sizeof(int8_t), {M, N});
    #pragma omp parallel
    {
        #pragma omp for schedule(static)
        for (int64_t i = 0; i < M; ++i) {
            // largest = alloc([1], init=1e-12)
            float largest = 1e-12f;
            // for j in range(ceil(N, T)):
            for (int64_t j = 0; j < sketch::ceil_div(N, T); ++j) {
                float block = -std::numeric_limits<float>::infinity();
                // load(X[i, j*T:(j+1)*T] -> x)
                // abs(x, x)
                // reduce_max(x, 0, block)
                const float *const X_row = X + (i * N + j * T);
                #pragma omp simd reduction(propagating_max : block)
                for (int64_t lane = 0; lane < std::min<int64_t>(T, N - j * T); ++lane) {
                    const float x = X_row[lane];
                    const float x_abs = sketch::absolute(x);
                    block = sketch::max(block, x_abs);
                }
                // max(largest, block, largest)
                largest = sketch::max(largest, block);
            }
            // div(largest, 127, scale)
            const float scale = largest / 127.0f;
            // store(scale -> SCALE[i])
            SCALE[i] = scale;
            // for j in range(ceil(N, T)):
            for (int64_t j_2 = 0; j_2 < sketch::ceil_div(N, T); ++j_2) {
                // load(X[i, j*T:(j+1)*T] -> x)
                // div(x, scale, x)
                // cast(x, q, round="nearest", sat=True)
                // store(q -> Q[i, j*T:(j+1)*T])
                const float *const X_row_2 = X + (i * N + j_2 * T);
                for (int64_t block_2 = 0; block_2 < std::min<int64_t>(T, N - j_2 * T); block_2 +=
                    1024) {
                    const int64_t block_2_end = std::min<int64_t>(std::min<int64_t>(T, N - j_2 * T),
                        block_2 + 1024);
                    alignas(64) int8_t Q_block[1024];
                    int8_t *const Q_row = Q_streams ? Q_block : Q + (i * N + j_2 * T + block_2);
                    #pragma omp simd
                    for (int64_t lane = block_2; lane < block_2_end; ++lane) {
                        const float x_2 = X_row_2[lane];
                        const float x_2_div = x_2 / scale;
                        const int8_t q = sketch::saturated<int8_t>(sketch::round_nearest(x_2_div));
                        Q_row[lane - block_2] = q;
                    }
                    if (Q_streams) {
                        sketch::stream(Q + (i * N + j_2 * T + block_2), Q_block, block_2_end -
                            block_2);
                    }
                }
            }
        }
        sketch::end_streams();
    }
    return 0;
}
