// great_circle: a C++ kernel for cpu, made from a sketch.

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
SKETCH_VECTORS float sinf(float x) noexcept;
SKETCH_VECTORS double sin(double x) noexcept;
SKETCH_VECTORS float cosf(float x) noexcept;
SKETCH_VECTORS double cos(double x) noexcept;
SKETCH_VECTORS float atan2f(float x, float y) noexcept;
SKETCH_VECTORS double atan2(double x, double y) noexcept;
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

inline float sqrt(float x) { return __builtin_sqrtf(x); }
inline double sqrt(double x) { return __builtin_sqrt(x); }

inline float sin(float x) { return ::sinf(x); }
inline double sin(double x) { return ::sin(x); }

inline float cos(float x) { return ::cosf(x); }
inline double cos(double x) { return ::cos(x); }

inline float atan2(float y, float x) { return ::atan2f(y, x); }
inline double atan2(double y, double x) { return ::atan2(y, x); }

} // namespace sketch

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  N >= 0
extern "C" int64_t great_circle(
    const double *__restrict LAT1, const double *__restrict LON1, const double *__restrict LAT2,
    const double *__restrict LON2, double *__restrict ANGLE, int64_t N)
{
    constexpr int64_t T = 512;

    if (N < 0) {
        return 1;
    }
    const bool ANGLE_streams = sketch::streams(sizeof(double), {N});
    #pragma omp parallel
    {
        #pragma omp for schedule(static)
        for (int64_t i = 0; i < sketch::ceil_div(N, T); ++i) {
            // load(LAT1[i*T:(i+1)*T] -> lat1)
            // sin(lat1, sin1)
            // cos(lat1, cos1)
            // load(LAT2[i*T:(i+1)*T] -> lat2)
            // sin(lat2, sin2)
            // cos(lat2, cos2)
            // load(LON2[i*T:(i+1)*T] -> lon2)
            // load(LON1[i*T:(i+1)*T] -> lon1)
            // sub(lon2, lon1, turn)
            // sin(turn, east)
            // cos(turn, turn)
            // mul(cos2, east, east)
            // mul(cos2, turn, turn)
            // mul(sin1, turn, north)
            // mul(cos1, sin2, lat1)
            // sub(lat1, north, north)
            // mul(east, east, east)
            // fma(north, north, east, east)
            // sqrt(east, east)
            // mul(cos1, turn, turn)
            // fma(sin1, sin2, turn, turn)
            // atan2(east, turn, east)
            // store(east -> ANGLE[i*T:(i+1)*T])
            const double *const LAT1_row = LAT1 + i * T;
            const double *const LAT2_row = LAT2 + i * T;
            const double *const LON2_row = LON2 + i * T;
            const double *const LON1_row = LON1 + i * T;
            for (int64_t block = 0; block < std::min<int64_t>(T, N - i * T); block += 1024) {
                const int64_t block_end = std::min<int64_t>(std::min<int64_t>(T, N - i * T), block +
                    1024);
                alignas(64) double ANGLE_block[1024];
                double *const ANGLE_row = ANGLE_streams ? ANGLE_block : ANGLE + (i * T + block);
                #pragma omp simd
                for (int64_t lane = block; lane < block_end; ++lane) {
                    const double lat1 = LAT1_row[lane];
                    const double sin1 = sketch::sin(lat1);
                    const double cos1 = sketch::cos(lat1);
                    const double lat2 = LAT2_row[lane];
                    const double sin2 = sketch::sin(lat2);
                    const double cos2 = sketch::cos(lat2);
                    const double lon2 = LON2_row[lane];
                    const double lon1 = LON1_row[lane];
                    const double turn = lon2 - lon1;
                    const double east = sketch::sin(turn);
                    const double turn_cos = sketch::cos(turn);
                    const double east_mul = cos2 * east;
                    const double turn_mul = cos2 * turn_cos;
                    const double north = sin1 * turn_mul;
                    const double lat1_mul = cos1 * sin2;
                    const double north_sub = lat1_mul - north;
                    const double east_mul_2 = east_mul * east_mul;
                    const double east_fma = north_sub * north_sub + east_mul_2;
                    const double east_sqrt = sketch::sqrt(east_fma);
                    const double turn_mul_2 = cos1 * turn_mul;
                    const double turn_fma = sin1 * sin2 + turn_mul_2;
                    const double east_atan2 = sketch::atan2(east_sqrt, turn_fma);
                    ANGLE_row[lane - block] = east_atan2;
                }
                if (ANGLE_streams) {
                    sketch::stream(ANGLE + (i * T + block), ANGLE_block, block_end - block);
                }
            }
        }
        sketch::end_streams();
    }
    return 0;
}
