// elementary: a C++ kernel for cpu, made from a sketch.

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
SKETCH_VECTORS float exp2f(float x) noexcept;
SKETCH_VECTORS double exp2(double x) noexcept;
SKETCH_VECTORS float log2f(float x) noexcept;
SKETCH_VECTORS double log2(double x) noexcept;
SKETCH_VECTORS float tanf(float x) noexcept;
SKETCH_VECTORS double tan(double x) noexcept;
SKETCH_VECTORS float atanf(float x) noexcept;
SKETCH_VECTORS double atan(double x) noexcept;
SKETCH_VECTORS float tanhf(float x) noexcept;
SKETCH_VECTORS double tanh(double x) noexcept;
SKETCH_VECTORS float erff(float x) noexcept;
SKETCH_VECTORS double erf(double x) noexcept;
SKETCH_VECTORS float powf(float x, float y) noexcept;
SKETCH_VECTORS double pow(double x, double y) noexcept;
}

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

inline float exp2(float x) { return ::exp2f(x); }
inline double exp2(double x) { return ::exp2(x); }

inline float log2(float x) { return ::log2f(x); }
inline double log2(double x) { return ::log2(x); }

inline float tan(float x) { return ::tanf(x); }
inline double tan(double x) { return ::tan(x); }

inline float atan(float x) { return ::atanf(x); }
inline double atan(double x) { return ::atan(x); }

inline float tanh(float x) { return ::tanhf(x); }
inline double tanh(double x) { return ::tanh(x); }

inline float erf(float x) { return ::erff(x); }
inline double erf(double x) { return ::erf(x); }

inline float pow(float a, float b) { return ::powf(a, b); }
inline double pow(double a, double b) { return ::pow(a, b); }
// Wraps on overflow; a negative exponent (an error on valid lanes) gives 1.
template <class T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
inline T pow(T a, T b)
{
    T result = 1;
    for (T exponent = b; exponent > 0; exponent = static_cast<T>(exponent >> 1)) {
        result = static_cast<T>((exponent & 1) != 0 ? result * a : result);
        a = static_cast<T>(a * a);
    }
    return result;
}

} // namespace sketch

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  N >= 0
extern "C" int64_t elementary(
    const float *__restrict X, const float *__restrict BASE, float *__restrict EXP2, float
    *__restrict TAN, float *__restrict ATAN, float *__restrict TANH, float *__restrict ERF, float
    *__restrict LOG2, float *__restrict POW, int64_t N)
{
    constexpr int64_t T = 1024;

    if (N < 0) {
        return 1;
    }
    const bool EXP2_streams = sketch::streams(sizeof(float), {N});
    const bool TAN_streams = sketch::streams(sizeof(float), {N});
    const bool ATAN_streams = sketch::streams(sizeof(float), {N});
    const bool TANH_streams = sketch::streams(sizeof(float), {N});
    const bool ERF_streams = sketch::streams(sizeof(float), {N});
    const bool LOG2_streams = sketch::streams(sizeof(float), {N});
    const bool POW_streams = sketch::streams(sizeof(float), {N});
    #pragma omp parallel
    {
        #pragma omp for schedule(static)
        for (int64_t i = 0; i < sketch::ceil_div(N, T); ++i) {
            // load(X[i*T:(i+1)*T] -> x)
            // exp2(x, y)
            // store(y -> EXP2[i*T:(i+1)*T])
            // tan(x, y)
            // store(y -> TAN[i*T:(i+1)*T])
            // atan(x, y)
            // store(y -> ATAN[i*T:(i+1)*T])
            // tanh(x, y)
            // store(y -> TANH[i*T:(i+1)*T])
            // erf(x, y)
            // store(y -> ERF[i*T:(i+1)*T])
            // load(BASE[i*T:(i+1)*T] -> base)
            // log2(base, y)
            // store(y -> LOG2[i*T:(i+1)*T])
            // pow(base, x, y)
            // store(y -> POW[i*T:(i+1)*T])
            const float *const X_row = X + i * T;
            const float *const BASE_row = BASE + i * T;
            for (int64_t block = 0; block < std::min<int64_t>(T, N - i * T); block += 1024) {
                const int64_t block_end = std::min<int64_t>(std::min<int64_t>(T, N - i * T), block +
                    1024);
                alignas(64) float EXP2_block[1024];
                float *const EXP2_row = EXP2_streams ? EXP2_block : EXP2 + (i * T + block);
                alignas(64) float TAN_block[1024];
                float *const TAN_row = TAN_streams ? TAN_block : TAN + (i * T + block);
                alignas(64) float ATAN_block[1024];
                float *const ATAN_row = ATAN_streams ? ATAN_block : ATAN + (i * T + block);
                alignas(64) float TANH_block[1024];
                float *const TANH_row = TANH_streams ? TANH_block : TANH + (i * T + block);
                alignas(64) float ERF_block[1024];
                float *const ERF_row = ERF_streams ? ERF_block : ERF + (i * T + block);
                alignas(64) float LOG2_block[1024];
                float *const LOG2_row = LOG2_streams ? LOG2_block : LOG2 + (i * T + block);
                alignas(64) float POW_block[1024];
                float *const POW_row = POW_streams ? POW_block : POW + (i * T + block);
                #pragma omp simd
                for (int64_t lane = block; lane < block_end; ++lane) {
                    const float x = X_row[lane];
                    const float y = sketch::exp2(x);
                    EXP2_row[lane - block] = y;
                    const float y_tan = sketch::tan(x);
                    TAN_row[lane - block] = y_tan;
                    const float y_atan = sketch::atan(x);
                    ATAN_row[lane - block] = y_atan;
                    const float y_tanh = sketch::tanh(x);
                    TANH_row[lane - block] = y_tanh;
                    const float y_erf = sketch::erf(x);
                    ERF_row[lane - block] = y_erf;
                    const float base = BASE_row[lane];
                    const float y_log2 = sketch::log2(base);
                    LOG2_row[lane - block] = y_log2;
                    const float y_pow = sketch::pow(base, x);
                    POW_row[lane - block] = y_pow;
                }
                if (EXP2_streams) {
                    sketch::stream(EXP2 + (i * T + block), EXP2_block, block_end - block);
                }
                if (TAN_streams) {
                    sketch::stream(TAN + (i * T + block), TAN_block, block_end - block);
                }
                if (ATAN_streams) {
                    sketch::stream(ATAN + (i * T + block), ATAN_block, block_end - block);
                }
                if (TANH_streams) {
                    sketch::stream(TANH + (i * T + block), TANH_block, block_end - block);
                }
                if (ERF_streams) {
                    sketch::stream(ERF + (i * T + block), ERF_block, block_end - block);
                }
                if (LOG2_streams) {
                    sketch::stream(LOG2 + (i * T + block), LOG2_block, block_end - block);
                }
                if (POW_streams) {
                    sketch::stream(POW + (i * T + block), POW_block, block_end - block);
                }
            }
        }
        sketch::end_streams();
    }
    return 0;
}
