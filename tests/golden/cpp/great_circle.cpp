// great_circle: a C++ kernel for cpu, made from a sketch.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <new>
#include <type_traits>
#include <utility>
#include <omp.h>
#if defined(__AVX__)
#include <immintrin.h>
#endif

// The library: least_shared_work, threads_for, cache_bytes, streams, stream, end_streams,
// floor_div, ceil_div, sqrt, sin, cos, atan2.

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
    const int threads = sketch::threads_for(N * 58);
    #pragma omp parallel num_threads(threads)
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
