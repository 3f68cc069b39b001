// unpack_int4: a C++ kernel for cpu, made from a sketch.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <omp.h>

namespace sketch {

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

template <class T> inline T shr(T a, T b)
{
    return static_cast<T>(a >> (b & static_cast<T>(sizeof(T) * 8 - 1)));
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
    #pragma omp parallel for schedule(static)
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
