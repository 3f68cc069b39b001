// activations: a C++ kernel for cpu, made from a sketch.

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
SKETCH_VECTORS float tanhf(float x) noexcept;
SKETCH_VECTORS double tanh(double x) noexcept;
SKETCH_VECTORS float expm1f(float x) noexcept;
SKETCH_VECTORS double expm1(double x) noexcept;
SKETCH_VECTORS float log1pf(float x) noexcept;
SKETCH_VECTORS double log1p(double x) noexcept;
SKETCH_VECTORS double exp(double x) noexcept;
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

template <class T> inline T at_least(T x, T low) { return x < low ? low : x; }

template <class T> inline T at_most(T x, T high) { return x > high ? high : x; }

inline float tanh(float x) { return ::tanhf(x); }
inline double tanh(double x) { return ::tanh(x); }

inline float expm1(float x) { return ::expm1f(x); }
inline double expm1(double x) { return ::expm1(x); }

inline float log1p(float x) { return ::log1pf(x); }
inline double log1p(double x) { return ::log1p(x); }

// e^x = 2^n * e^r with |r| <= ln(2)/2, e^r by a polynomial; n is the nearest integer, from the low
// bits of a large float. The power of two is applied in two parts, so that subnormal results and
// overflow to infinity come out right.
inline float exp(float x)
{
    const float bounded = x < -104.0F ? -104.0F : (x > 89.0F ? 89.0F : x);
    const float shifted = bounded * 1.44269504F + 12582912.0F;
    const float n = shifted - 12582912.0F;
    const float r = (bounded - n * 0.693145752F) - n * 1.42860677e-06F;
    float p = 0.00138145403F;
    p = p * r + 0.00836874527F;
    p = p * r + 0.0416683908F;
    p = p * r + 0.166665204F;
    p = p * r + 0.499999934F;
    p = p * r + 1.0F;
    p = p * r + 1.0F;
    const bool small = x < 0.0F;
    const float power = float_of((bits_of(shifted) + (small ? 191U : 126U)) << 23);
    return p * power * (small ? 0x1p-64F : 2.0F);
}
inline double exp(double x) { return ::exp(x); }

template <class T> inline T sigmoid(T x) { return T{1} / (T{1} + exp(-x)); }

template <class T> inline T silu(T x) { return x / (T{1} + exp(-x)); }

template <class T> inline T gelu_tanh(T x)
{
    const T inner = x + static_cast<T>(0.044715) * x * x * x;
    return static_cast<T>(0.5) * x * (T{1} + tanh(static_cast<T>(0.7978845608028653559) * inner));
}

template <class T> inline T softplus(T x)
{
    const T bounded = x > T{30} ? T{30} : x;
    return x > T{30} ? x : log1p(exp(bounded));
}

template <class T> inline T softsign(T x) { return x / (T{1} + absolute(x)); }

template <class T> inline T hardsigmoid(T x)
{
    return at_most(at_least(x / T{6} + static_cast<T>(0.5), T{0}), T{1});
}

template <class T> inline T hardswish(T x) { return x * hardsigmoid(x); }

template <class T> inline T elu(T x, T alpha)
{
    const T negative = alpha * expm1(x > T{0} ? T{0} : x);
    return x > T{0} ? x : negative;
}

template <class T> inline T selu(T x)
{
    return static_cast<T>(1.0507009873554804934) * elu(x, static_cast<T>(1.6732632423543772848));
}

template <class T> inline T leaky_relu(T x, T slope) { return x > T{0} ? x : slope * x; }

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
extern "C" int64_t activations(
    const float *__restrict X, float *__restrict SIGMOID, float *__restrict SILU, float
    *__restrict GELU_TANH, float *__restrict SOFTPLUS, float *__restrict SOFTSIGN, float
    *__restrict HARDSIGMOID, float *__restrict HARDSWISH, float *__restrict ELU, float *__restrict
    SELU, float *__restrict LEAKY_RELU, int64_t M, int64_t N)
{
    constexpr int64_t TM = 8;
    constexpr int64_t TN = 512;

    if (M < 0 || N < 0) {
        return 1;
    }
    if (sketch::too_large({M, N})) {
        return 2;
    }
    const bool SIGMOID_streams = sketch::streams(sizeof(float), {M, N});
    const bool SILU_streams = sketch::streams(sizeof(float), {M, N});
    const bool GELU_TANH_streams = sketch::streams(sizeof(float), {M, N});
    const bool SOFTPLUS_streams = sketch::streams(sizeof(float), {M, N});
    const bool SOFTSIGN_streams = sketch::streams(sizeof(float), {M, N});
    const bool HARDSIGMOID_streams = sketch::streams(sizeof(float), {M, N});
    const bool HARDSWISH_streams = sketch::streams(sizeof(float), {M, N});
    const bool ELU_streams = sketch::streams(sizeof(float), {M, N});
    const bool SELU_streams = sketch::streams(sizeof(float), {M, N});
    const bool LEAKY_RELU_streams = sketch::streams(sizeof(float), {M, N});
    #pragma omp parallel
    {
        #pragma omp for collapse(2) schedule(static)
        for (int64_t i = 0; i < sketch::ceil_div(M, TM); ++i) {
            for (int64_t j = 0; j < sketch::ceil_div(N, TN); ++j) {
                for (int64_t row = 0; row < std::min<int64_t>(TM, M - i * TM); ++row) {
                    // load(X[i*TM:(i+1)*TM, j*TN:(j+1)*TN] -> x)
                    // sigmoid(x, y)
                    // store(y -> SIGMOID[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
                    // silu(x, y)
                    // store(y -> SILU[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
                    // gelu(x, y, approximate="tanh")
                    // store(y -> GELU_TANH[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
                    // softplus(x, y)
                    // store(y -> SOFTPLUS[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
                    // softsign(x, y)
                    // store(y -> SOFTSIGN[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
                    // hardsigmoid(x, y)
                    // store(y -> HARDSIGMOID[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
                    // hardswish(x, y)
                    // store(y -> HARDSWISH[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
                    // elu(x, y, alpha=0.5)
                    // store(y -> ELU[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
                    // selu(x, y)
                    // store(y -> SELU[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
                    // leaky_relu(x, y, slope=0.2)
                    // store(y -> LEAKY_RELU[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
                    const float *const X_row = X + ((i * TM + row) * N + j * TN);
                    for (int64_t block = 0; block < std::min<int64_t>(TN, N - j * TN); block +=
                        1024) {
                        const int64_t block_end = std::min<int64_t>(std::min<int64_t>(TN, N - j *
                            TN), block + 1024);
                        alignas(64) float SIGMOID_block[1024];
                        float *const SIGMOID_row = SIGMOID_streams ? SIGMOID_block : SIGMOID + ((i *
                            TM + row) * N + j * TN + block);
                        alignas(64) float SILU_block[1024];
                        float *const SILU_row = SILU_streams ? SILU_block : SILU + ((i * TM + row) *
                            N + j * TN + block);
                        alignas(64) float GELU_TANH_block[1024];
                        float *const GELU_TANH_row = GELU_TANH_streams ? GELU_TANH_block : GELU_TANH
                            + ((i * TM + row) * N + j * TN + block);
                        alignas(64) float SOFTPLUS_block[1024];
                        float *const SOFTPLUS_row = SOFTPLUS_streams ? SOFTPLUS_block : SOFTPLUS +
                            ((i * TM + row) * N + j * TN + block);
                        alignas(64) float SOFTSIGN_block[1024];
                        float *const SOFTSIGN_row = SOFTSIGN_streams ? SOFTSIGN_block : SOFTSIGN +
                            ((i * TM + row) * N + j * TN + block);
                        alignas(64) float HARDSIGMOID_block[1024];
                        float *const HARDSIGMOID_row = HARDSIGMOID_streams ? HARDSIGMOID_block :
                            HARDSIGMOID + ((i * TM + row) * N + j * TN + block);
                        alignas(64) float HARDSWISH_block[1024];
                        float *const HARDSWISH_row = HARDSWISH_streams ? HARDSWISH_block : HARDSWISH
                            + ((i * TM + row) * N + j * TN + block);
                        alignas(64) float ELU_block[1024];
                        float *const ELU_row = ELU_streams ? ELU_block : ELU + ((i * TM + row) * N +
                            j * TN + block);
                        alignas(64) float SELU_block[1024];
                        float *const SELU_row = SELU_streams ? SELU_block : SELU + ((i * TM + row) *
                            N + j * TN + block);
                        alignas(64) float LEAKY_RELU_block[1024];
                        float *const LEAKY_RELU_row = LEAKY_RELU_streams ? LEAKY_RELU_block :
                            LEAKY_RELU + ((i * TM + row) * N + j * TN + block);
                        #pragma omp simd
                        for (int64_t lane = block; lane < block_end; ++lane) {
                            const float x = X_row[lane];
                            const float y = sketch::sigmoid(x);
                            SIGMOID_row[lane - block] = y;
                            const float y_silu = sketch::silu(x);
                            SILU_row[lane - block] = y_silu;
                            const float y_gelu = sketch::gelu_tanh(x);
                            GELU_TANH_row[lane - block] = y_gelu;
                            const float y_softplus = sketch::softplus(x);
                            SOFTPLUS_row[lane - block] = y_softplus;
                            const float y_softsign = sketch::softsign(x);
                            SOFTSIGN_row[lane - block] = y_softsign;
                            const float y_hardsigmoid = sketch::hardsigmoid(x);
                            HARDSIGMOID_row[lane - block] = y_hardsigmoid;
                            const float y_hardswish = sketch::hardswish(x);
                            HARDSWISH_row[lane - block] = y_hardswish;
                            const float y_elu = sketch::elu(x, 0.5f);
                            ELU_row[lane - block] = y_elu;
                            const float y_selu = sketch::selu(x);
                            SELU_row[lane - block] = y_selu;
                            const float y_leaky_relu = sketch::leaky_relu(x, 0.2f);
                            LEAKY_RELU_row[lane - block] = y_leaky_relu;
                        }
                        if (SIGMOID_streams) {
                            sketch::stream(SIGMOID + ((i * TM + row) * N + j * TN + block),
                                SIGMOID_block, block_end - block);
                        }
                        if (SILU_streams) {
                            sketch::stream(SILU + ((i * TM + row) * N + j * TN + block), SILU_block,
                                block_end - block);
                        }
                        if (GELU_TANH_streams) {
                            sketch::stream(GELU_TANH + ((i * TM + row) * N + j * TN + block),
                                GELU_TANH_block, block_end - block);
                        }
                        if (SOFTPLUS_streams) {
                            sketch::stream(SOFTPLUS + ((i * TM + row) * N + j * TN + block),
                                SOFTPLUS_block, block_end - block);
                        }
                        if (SOFTSIGN_streams) {
                            sketch::stream(SOFTSIGN + ((i * TM + row) * N + j * TN + block),
                                SOFTSIGN_block, block_end - block);
                        }
                        if (HARDSIGMOID_streams) {
                            sketch::stream(HARDSIGMOID + ((i * TM + row) * N + j * TN + block),
                                HARDSIGMOID_block, block_end - block);
                        }
                        if (HARDSWISH_streams) {
                            sketch::stream(HARDSWISH + ((i * TM + row) * N + j * TN + block),
                                HARDSWISH_block, block_end - block);
                        }
                        if (ELU_streams) {
                            sketch::stream(ELU + ((i * TM + row) * N + j * TN + block), ELU_block,
                                block_end - block);
                        }
                        if (SELU_streams) {
                            sketch::stream(SELU + ((i * TM + row) * N + j * TN + block), SELU_block,
                                block_end - block);
                        }
                        if (LEAKY_RELU_streams) {
                            sketch::stream(LEAKY_RELU + ((i * TM + row) * N + j * TN + block),
                                LEAKY_RELU_block, block_end - block);
                        }
                    }
                }
            }
        }
        sketch::end_streams();
    }
    return 0;
}
