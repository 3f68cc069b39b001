// great_circle: a CUDA-C kernel for h200, made from a sketch. To build a library:
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a
//     -shared -Xcompiler -fPIC -o great_circle.so great_circle.cu

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <cuda_runtime.h>

// The library: floor_div, ceil_div, bits_of, float_of, sqrt, sin, cos, atan2, lanes, enough,
// aligned, at_once, load_lanes, load_all_lanes, store_lanes, store_all_lanes, over_lanes,
// divisor.

extern "C" __global__ void great_circle_1(
    const double *__restrict LAT1, const double *__restrict LON1, const double *__restrict LAT2,
    const double *__restrict LON2, double *__restrict ANGLE, int64_t N, int64_t programs)
{
    constexpr int64_t T = 512;
    extern __shared__ __align__(128) char block_memory[];
    [[maybe_unused]] const int64_t thread = threadIdx.x;
    [[maybe_unused]] const int64_t threads = blockDim.x;
    for (int64_t program = blockIdx.x; program < programs; program += gridDim.x) {
        const int64_t i = program;
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
        double *const ANGLE_row = ANGLE + i * T;
        sketch::over_lanes<2, 1>(thread * 2, threads * 2, std::min<int64_t>(T, N - i * T),
            sketch::aligned<2>(LAT1_row, LAT2_row, LON2_row, LON1_row, ANGLE_row), [&](int64_t
            first, auto left) {
            sketch::lanes<double, 2> ANGLE_row_lanes;
            const auto LAT1_row_lanes = sketch::load_lanes<2>(LAT1_row + first, left);
            const auto LAT2_row_lanes = sketch::load_lanes<2>(LAT2_row + first, left);
            const auto LON2_row_lanes = sketch::load_lanes<2>(LON2_row + first, left);
            const auto LON1_row_lanes = sketch::load_lanes<2>(LON1_row + first, left);
            #pragma unroll
            for (int part = 0; part < 2; ++part) {
                const double lat1 = LAT1_row_lanes[part];
                const double sin1 = sketch::sin(lat1);
                const double cos1 = sketch::cos(lat1);
                const double lat2 = LAT2_row_lanes[part];
                const double sin2 = sketch::sin(lat2);
                const double cos2 = sketch::cos(lat2);
                const double lon2 = LON2_row_lanes[part];
                const double lon1 = LON1_row_lanes[part];
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
                ANGLE_row_lanes[part] = east_atan2;
            }
            sketch::store_lanes(ANGLE_row + first, left, ANGLE_row_lanes);
        });
        __syncthreads();
    }
}

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
    {
        const int64_t programs = sketch::ceil_div(N, T);
        const int64_t blocks = std::min<int64_t>(programs, 65536);
        if (blocks > 0) {
            great_circle_1<<<static_cast<unsigned>(blocks), 128, 256>>>(LAT1, LON1, LAT2, LON2,
                ANGLE, N, programs);
        }
        if (cudaGetLastError() != cudaSuccess) {
            return -2;
        }
    }
    return 0;
}
