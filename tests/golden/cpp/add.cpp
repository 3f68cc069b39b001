// add_bias: a C++ kernel for cpu, made from a sketch.

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
    if (b == 0 || b == -1) {
        return b == 0 ? T{0} : static_cast<T>(T{0} - a);
    }
    const T quotient = static_cast<T>(a / b);
    return static_cast<T>(quotient - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0));
}
constexpr int64_t floor_div(int64_t a, int b) { return floor_div(a, int64_t{b}); }
constexpr int64_t floor_div(int a, int64_t b) { return floor_div(int64_t{a}, b); }
inline float floor_div(float a, float b) { return __builtin_floorf(a / b); }
inline double floor_div(double a, double b) { return __builtin_floor(a / b); }

constexpr int64_t ceil_div(int64_t a, int64_t b) { return -floor_div(-a, b); }

} // namespace sketch

extern "C" int64_t add_bias(
    const float *__restrict X, const float *__restrict BIAS, float *__restrict Y, int64_t M,
    int64_t N)
{
    constexpr int64_t TM = 4;
    constexpr int64_t TN = 1024;

    #pragma omp parallel for collapse(2) schedule(static)
    for (int64_t i = 0; i < sketch::ceil_div(M, TM); ++i) {
        for (int64_t j = 0; j < sketch::ceil_div(N, TN); ++j) {
            for (int64_t row = 0; row < std::min<int64_t>(TM, M - i * TM); ++row) {
                // load(X[i*TM:(i+1)*TM, j*TN:(j+1)*TN] -> x)
                // load(BIAS[j*TN:(j+1)*TN] -> bias)
                // add(x, bias, y)
                // store(y -> Y[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
                const float *const X_row = X + ((i * TM + row) * N + j * TN);
                const float *const BIAS_row = BIAS + j * TN;
                float *const Y_row = Y + ((i * TM + row) * N + j * TN);
                #pragma omp simd
                for (int64_t lane = 0; lane < std::min<int64_t>(TN, N - j * TN); ++lane) {
                    const float x = X_row[lane];
                    const float bias = BIAS_row[lane];
                    const float y = x + bias;
                    Y_row[lane] = y;
                }
            }
        }
    }
    return 0;
}
