// unpack_int4: a C++ kernel for cpu, made from a sketch.

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

// The library: least_shared_work, threads_for, floor_div, ceil_div, max, shr, too_large.

// Returns 0 when done, and otherwise, before anything is written, the number of the condition
// that does not hold:
//   1  M >= 0 and N >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t unpack_int4(
    const uint8_t *__restrict PACKED, const float *__restrict SCALE, float *__restrict Y, int64_t
    M, int64_t N)
{
    constexpr int64_t T = 512;

    if (M < 0 || N < 0) {
        return 1;
    }
    if (sketch::too_large({M, N})) {
        return 2;
    }
    const int threads = sketch::threads_for(M * (N * 17 + 4));
    #pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < M; ++i) {
        alignas(64) float y_mul_2[T];
        // for j in range(ceil(N, T)):
        for (int64_t j = 0; j < sketch::ceil_div(N, T); ++j) {
            // load(PACKED[i, j*T:(j+1)*T] -> packed)
            // bitwise_and(packed, 15, nibble)
            // cast(nibble, y)
            // sub(y, 8, y)
            // load(SCALE[i] -> scale)
            // mul(y, scale, y)
            // store(y -> Y[i, 2*j*T:2*(j+1)*T:2])
            // shr(packed, 4, nibble)
            const float scale = SCALE[i];
            const uint8_t *const PACKED_row = PACKED + (i * N + j * T);
            #pragma omp simd
            for (int64_t lane = 0; lane < std::min<int64_t>(T, N - j * T); ++lane) {
                const uint8_t packed = PACKED_row[lane];
                const uint8_t nibble = static_cast<uint8_t>(packed & uint8_t{15});
                const float y = static_cast<float>(nibble);
                const float y_sub = y - 8.0f;
                const float y_mul = y_sub * scale;
                Y[i * (2 * N) + (2 * j * T + lane * 2)] = y_mul;
                const uint8_t nibble_shr = static_cast<uint8_t>(sketch::shr(packed, uint8_t{4}));
                const float y_cast = static_cast<float>(nibble_shr);
                const float y_sub_2 = y_cast - 8.0f;
                const float y_mul_2_value = y_sub_2 * scale;
                y_mul_2[lane] = y_mul_2_value;
            }
            // store(y -> Y[i, 2*j*T+1:2*(j+1)*T+1:2])
            #pragma omp simd
            for (int64_t lane = 0; lane < std::min<int64_t>(T, N - j * T); ++lane) {
                const float y_mul_2_value = y_mul_2[lane];
                Y[i * (2 * N) + (2 * j * T + 1 + lane * 2)] = y_mul_2_value;
            }
        }
    }
    return 0;
}
