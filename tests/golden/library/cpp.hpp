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
SKETCH_VECTORS float logf(float x) noexcept;
SKETCH_VECTORS double log(double x) noexcept;
SKETCH_VECTORS float log2f(float x) noexcept;
SKETCH_VECTORS double log2(double x) noexcept;
SKETCH_VECTORS float sinf(float x) noexcept;
SKETCH_VECTORS double sin(double x) noexcept;
SKETCH_VECTORS float cosf(float x) noexcept;
SKETCH_VECTORS double cos(double x) noexcept;
SKETCH_VECTORS float tanf(float x) noexcept;
SKETCH_VECTORS double tan(double x) noexcept;
SKETCH_VECTORS float atanf(float x) noexcept;
SKETCH_VECTORS double atan(double x) noexcept;
SKETCH_VECTORS float tanhf(float x) noexcept;
SKETCH_VECTORS double tanh(double x) noexcept;
SKETCH_VECTORS float erff(float x) noexcept;
SKETCH_VECTORS double erf(double x) noexcept;
SKETCH_VECTORS float expm1f(float x) noexcept;
SKETCH_VECTORS double expm1(double x) noexcept;
SKETCH_VECTORS float log1pf(float x) noexcept;
SKETCH_VECTORS double log1p(double x) noexcept;
SKETCH_VECTORS double exp(double x) noexcept;
SKETCH_VECTORS float powf(float x, float y) noexcept;
SKETCH_VECTORS double pow(double x, double y) noexcept;
SKETCH_VECTORS float atan2f(float x, float y) noexcept;
SKETCH_VECTORS double atan2(double x, double y) noexcept;
}

namespace sketch {

// Scratch memory: pieces are added, then allocated at once for all threads, on cache lines.
class arena {
public:
    arena() = default;
    arena(const arena &) = delete;
    arena &operator=(const arena &) = delete;
    ~arena() { std::free(memory_); }

    // Adds a piece of `extents` elements and returns its place.
    int64_t add(int64_t element_bytes, std::initializer_list<int64_t> extents)
    {
        const int64_t place = bytes_;
        int64_t size = element_bytes;
        for (const int64_t extent : extents) {
            fits_ = !__builtin_mul_overflow(size, std::max<int64_t>(extent, 0), &size) && fits_;
        }
        fits_ = !__builtin_add_overflow(size, int64_t{63}, &size) && fits_;
        fits_ = !__builtin_add_overflow(bytes_, size / 64 * 64, &bytes_) && fits_;
        return place;
    }

    // False when the memory cannot be had.
    bool allocate(int64_t threads)
    {
        int64_t total = 0;
        fits_ = !__builtin_mul_overflow(bytes_, threads, &total) && fits_;
        if (fits_ && total > 0) {
            memory_ = static_cast<char *>(std::aligned_alloc(64, static_cast<size_t>(total)));
        }
        return fits_ && (total == 0 || memory_ != nullptr);
    }

    template <class T> T *at(int64_t place, int64_t thread) const
    {
        return reinterpret_cast<T *>(memory_ + thread * bytes_ + place);
    }

private:
    char *memory_ = nullptr;
    int64_t bytes_ = 0;
    bool fits_ = true;
};

// Work of fewer operations and bytes than this is done by one thread: others take longer to wake.
constexpr int64_t least_shared_work = 131072;

// How many threads share a launch of this much work.
inline int threads_for(int64_t work)
{
    return work < least_shared_work ? 1 : omp_get_max_threads();
}

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

// Makes what this thread has streamed visible to other threads.
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
        // Without branches: nvcc takes minutes for the paths through a few of them in a row.
        const bool special = (b == 0) | (b == -1);
        const T divisor = special ? T{1} : b;
        const T quotient = static_cast<T>(a / divisor);
        const T rest = static_cast<T>(a - quotient * divisor);
        const T below = (rest != 0) & ((rest < 0) != (divisor < 0)) ? T{1} : T{0};
        return static_cast<T>(special ? b * a : quotient - below);
    }
}
constexpr int64_t floor_div(int64_t a, int b) { return floor_div(a, int64_t{b}); }
constexpr int64_t floor_div(int a, int64_t b) { return floor_div(int64_t{a}, b); }

template <class T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
constexpr T floor_mod(T a, T b)
{
    return static_cast<T>(a - b * floor_div(a, b));
}
constexpr int64_t floor_mod(int64_t a, int b) { return floor_mod(a, int64_t{b}); }
constexpr int64_t floor_mod(int a, int64_t b) { return floor_mod(int64_t{a}, b); }

// The floor of the quotient before it is rounded: 1 // 0.1 is 9. A zero has the quotient's sign.
template <class T, std::enable_if_t<std::is_floating_point_v<T>, int> = 0>
inline T whole_quotient(T a, T b)
{
    const T rest = std::fmod(a, b);
    T whole = (a - rest) / b;
    if (rest != 0 && (rest < 0) != (b < 0)) {
        whole -= 1;
    }
    if (whole == 0 || b == 0) {
        return b == 0 ? a / b : std::copysign(T{0}, a / b);
    }
    const T floor = std::floor(whole);
    return whole - floor > T{0.5} ? floor + 1 : floor;
}

// The remainder of floor division, exactly, with the sign of b, also where it is zero.
template <class T, std::enable_if_t<std::is_floating_point_v<T>, int> = 0>
inline T floor_rest(T a, T b)
{
    const T rest = std::fmod(a, b);
    if (rest == 0) {
        return std::copysign(rest, b);
    }
    return (rest < 0) != (b < 0) ? rest + b : rest;
}

constexpr int64_t ceil_div(int64_t a, int64_t b) { return -floor_div(-a, b); }

inline int64_t truncate(double x) { return static_cast<int64_t>(x); }

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

inline uint16_t half_bits(float x)
{
    const uint32_t sign = bits_of(x) & 0x80000000U;
    const uint32_t magnitude = bits_of(x) ^ sign;
    // Subnormal results: adding 0.5 leaves the rounded bits at the bottom of the significand.
    const uint32_t small = bits_of(float_of(magnitude) + 0.5F) - 0x3f000000U;
    // Normal results: rebias the exponent, round half to even by carrying.
    const uint32_t normal = (magnitude + 0xc8000fffU + ((magnitude >> 13) & 1U)) >> 13;
    const uint32_t special = magnitude > 0x7f800000U ? 0x7e00U : 0x7c00U;
    const uint32_t finite = magnitude < 0x38800000U ? small : normal;
    const uint32_t result = magnitude >= 0x47800000U ? special : finite;
    return static_cast<uint16_t>(result | (sign >> 16));
}

inline half to_half(float x) { return half{half_bits(x)}; }

inline half to_half(double x) { return to_half(odd(x)); }

inline float float_of_half(uint32_t x)
{
    const uint32_t magnitude = x & 0x7fffU;
    const uint32_t sign = (x & 0x8000U) << 16;
    // 2^112 rebiases the exponent and normalises subnormals.
    const float finite = float_of(magnitude << 13) * 0x1p112F;
    const uint32_t special = (magnitude << 13) + 0x70000000U;
    return float_of((magnitude >= 0x7c00U ? special : bits_of(finite)) | sign);
}

inline float to_float(half x) { return float_of_half(x.bits); }

// The upper half of a float.
struct bfloat16 {
    uint16_t bits;
};

inline uint16_t bfloat16_bits(float x)
{
    const uint32_t bits = bits_of(x);
    const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    const uint32_t quiet = (bits >> 16) | 0x40U;
    return static_cast<uint16_t>(x != x ? quiet : rounded);
}

inline bfloat16 to_bfloat16(float x) { return bfloat16{bfloat16_bits(x)}; }

inline bfloat16 to_bfloat16(double x) { return to_bfloat16(odd(x)); }

inline float to_float(bfloat16 x) { return float_of(static_cast<uint32_t>(x.bits) << 16); }

inline float round_nearest(float x) { return __builtin_rintf(x); }
inline double round_nearest(double x) { return __builtin_rint(x); }

inline float round_down(float x) { return __builtin_floorf(x); }
inline double round_down(double x) { return __builtin_floor(x); }

inline float round_up(float x) { return __builtin_ceilf(x); }
inline double round_up(double x) { return __builtin_ceil(x); }

inline float round_zero(float x) { return __builtin_truncf(x); }
inline double round_zero(double x) { return __builtin_trunc(x); }

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

// The nearest value of another integer type.
template <class T>
inline T clamped(int64_t x)
{
    constexpr int64_t least = std::numeric_limits<T>::min();
    constexpr int64_t greatest = std::numeric_limits<T>::max();
    return static_cast<T>(x < least ? least : (x > greatest ? greatest : x));
}

// The neighbour of a number, upwards or downwards; `Bits` orders like the magnitude.
template <class Bits>
inline Bits next_to(Bits bits, bool upwards)
{
    constexpr Bits sign = static_cast<Bits>(Bits{1} << (sizeof(Bits) * 8 - 1));
    if ((bits & ~sign) == 0) {
        return static_cast<Bits>(upwards ? 1 : sign + 1);
    }
    const bool grows = ((bits & sign) == 0) == upwards;
    return static_cast<Bits>(grows ? bits + 1 : bits - 1);
}

inline half narrow(double x, half) { return to_half(x); }

inline bfloat16 narrow(double x, bfloat16) { return to_bfloat16(x); }

// x in a narrower type, rounded down (-1), up (1) or towards zero (0).
template <class T, int mode>
inline T directed(double x)
{
    T nearest;
    double back;
    if constexpr (std::is_same_v<T, float>) {
        nearest = static_cast<float>(x);
        back = static_cast<double>(nearest);
    } else {
        nearest = narrow(x, T{});
        back = static_cast<double>(to_float(nearest));
    }
    const bool upwards = mode == 1 || (mode == 0 && x < 0);
    const bool wrong = upwards ? back < x : back > x;
    std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t> bits;
    std::memcpy(&bits, &nearest, sizeof bits);
    bits = wrong ? next_to(bits, upwards) : bits;
    std::memcpy(&nearest, &bits, sizeof bits);
    return nearest;
}

template <class T> inline T absolute(T x)
{
    if constexpr (std::is_unsigned_v<T>) {
        return x;
    } else {
        return static_cast<T>(x < T{0} ? T{0} - x : x);
    }
}
inline float absolute(float x) { return __builtin_fabsf(x); }
inline double absolute(double x) { return __builtin_fabs(x); }

template <class T> inline T sign(T x)
{
    if constexpr (std::is_unsigned_v<T>) {
        return x > T{0} ? T{1} : x;
    } else {
        return x > T{0} ? T{1} : (x < T{0} ? static_cast<T>(-1) : x);
    }
}

// The larger of a and b; NaN wins. Only `larger` depends on `a`, the accumulator of a loop.
template <class T> inline T max(T a, T b)
{
    const T larger = b > a ? b : a;
    return b != b ? b : larger;
}
inline bool max(bool a, bool b) { return a || b; }

// The smaller of a and b; NaN wins. Only `smaller` depends on `a`, the accumulator of a loop.
template <class T> inline T min(T a, T b)
{
    const T smaller = b < a ? b : a;
    return b != b ? b : smaller;
}
inline bool min(bool a, bool b) { return a && b; }

template <class T> inline T at_least(T x, T low) { return x < low ? low : x; }

template <class T> inline T at_most(T x, T high) { return x > high ? high : x; }

template <class T> inline T relu(T x)
{
    if constexpr (std::is_unsigned_v<T>) {
        return x;
    } else {
        return x < T{0} ? T{0} : x;
    }
}

template <class T> inline T floor(T x) { return x; }
inline float floor(float x) { return __builtin_floorf(x); }
inline double floor(double x) { return __builtin_floor(x); }

template <class T> inline T ceil(T x) { return x; }
inline float ceil(float x) { return __builtin_ceilf(x); }
inline double ceil(double x) { return __builtin_ceil(x); }

template <class T> inline T round(T x) { return x; }
inline float round(float x) { return __builtin_rintf(x); }
inline double round(double x) { return __builtin_rint(x); }

template <class T> inline T trunc(T x) { return x; }
inline float trunc(float x) { return __builtin_truncf(x); }
inline double trunc(double x) { return __builtin_trunc(x); }

inline float sqrt(float x) { return __builtin_sqrtf(x); }
inline double sqrt(double x) { return __builtin_sqrt(x); }

inline float rsqrt(float x) { return 1.0F / __builtin_sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }

inline float exp2(float x) { return ::exp2f(x); }
inline double exp2(double x) { return ::exp2(x); }

inline float log(float x) { return ::logf(x); }
inline double log(double x) { return ::log(x); }

inline float log2(float x) { return ::log2f(x); }
inline double log2(double x) { return ::log2(x); }

inline float sin(float x) { return ::sinf(x); }
inline double sin(double x) { return ::sin(x); }

inline float cos(float x) { return ::cosf(x); }
inline double cos(double x) { return ::cos(x); }

inline float tan(float x) { return ::tanf(x); }
inline double tan(double x) { return ::tan(x); }

inline float atan(float x) { return ::atanf(x); }
inline double atan(double x) { return ::atan(x); }

inline float tanh(float x) { return ::tanhf(x); }
inline double tanh(double x) { return ::tanh(x); }

inline float erf(float x) { return ::erff(x); }
inline double erf(double x) { return ::erf(x); }

inline float expm1(float x) { return ::expm1f(x); }
inline double expm1(double x) { return ::expm1(x); }

inline float log1p(float x) { return ::log1pf(x); }
inline double log1p(double x) { return ::log1p(x); }

inline float atan2(float y, float x) { return ::atan2f(y, x); }
inline double atan2(double y, double x) { return ::atan2(y, x); }

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

// erf(x) = x * P(x^2) / Q(x^2) to 6 ulp (a weighted least-squares fit); beyond 3.92 it is 1, to the
// last bit: some callers scale 1 + erf(x) by a large number.
inline float short_erf(float x)
{
    const float bounded = x < -3.92F ? -3.92F : (x > 3.92F ? 3.92F : x);
    const float square = bounded * bounded;
    float p = 2.04198341e-06F;
    p = p * square + 0.000284808542F;
    p = p * square + 0.00377962808F;
    p = p * square + 0.0527903177F;
    p = p * square + 0.190784082F;
    p = p * square + 1.12837923F;
    float q = 3.80040765e-05F;
    q = q * square + 0.00116521586F;
    q = q * square + 0.0149974739F;
    q = q * square + 0.114257619F;
    q = q * square + 0.50241071F;
    q = q * square + 1.0F;
    const float result = bounded * p / q;
    const float inside = result < -1.0F ? -1.0F : (result > 1.0F ? 1.0F : result);
    return x < -3.92F ? -1.0F : (x > 3.92F ? 1.0F : inside);
}

// Of erf in float, 1 + erf(x) needs no more bits than short_erf has.
inline float gelu(float x) { return 0.5F * x * (1.0F + short_erf(x * 0.707106781F)); }
inline double gelu(double x) { return 0.5 * x * (1.0 + erf(x * 0.7071067811865475244)); }

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

template <class T> inline bool isnan(T x) { return x != x; }

template <class T> inline bool isinf(T x)
{
    return absolute(x) == std::numeric_limits<T>::infinity() && std::is_floating_point_v<T>;
}

template <class T> inline bool isfinite(T x)
{
    return absolute(x) < std::numeric_limits<T>::infinity() || !std::is_floating_point_v<T>;
}

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

template <class T> inline T shl(T a, T b)
{
    return static_cast<T>(a << (b & static_cast<T>(sizeof(T) * 8 - 1)));
}

template <class T> inline T shr(T a, T b)
{
    return static_cast<T>(a >> (b & static_cast<T>(sizeof(T) * 8 - 1)));
}

// As floor_div, for loops over lanes: no CPU divides integers in vectors. A double has the quotient
// but for its last bits, and what is left is divided again.
inline int64_t lane_floor_div(int64_t a, int64_t b)
{
#if defined(__AVX512DQ__)
    if (!__builtin_constant_p(b)) {
        // All ones where b is -1, 0 or 1. Selects are arithmetic: g++ makes no vectors of others.
        const int64_t special = ((b - 2) & ~(b + 1)) >> 63;
        const int64_t divisor = (b & ~special) | (2 & special);
        const double inverse = 1.0 / static_cast<double>(divisor);
        const auto first = static_cast<int64_t>(static_cast<double>(a) * inverse);
        const int64_t left = a - first * divisor;
        const auto second = static_cast<int64_t>(static_cast<double>(left) * inverse);
        // The rest and the divisor with the divisor's sign taken from both. Quotients are cut off,
        // and of a divisor beyond 2^53 by rounded numbers: two steps may be missing downwards.
        const int64_t sign = divisor >> 63;
        const int64_t rest = ((left - second * divisor) ^ sign) - sign;
        const int64_t size = (divisor ^ sign) - sign;
        const int64_t below = rest >> 63;
        const int64_t nearer = rest + (size & below);
        const int64_t again = nearer >> 63;
        // -1 where the rest, which is negative no more, is smaller than the divisor.
        const int64_t within = (nearer + (size & again) - size) >> 63;
        const int64_t quotient = first + second + below + again + within + 1;
        return (quotient & ~special) | ((a * b) & special);
    }
#endif
    return floor_div(a, b);
}

inline int64_t lane_floor_mod(int64_t a, int64_t b) { return a - b * lane_floor_div(a, b); }

inline int64_t lane_ceil_div(int64_t a, int64_t b) { return -lane_floor_div(-a, b); }

// Element (r, c) of a strided matrix is data[r * row + c * column].
template <class T> struct matrix {
    T *data;
    int64_t row;
    int64_t column;
};

#if defined(__AVX512F__)
constexpr int64_t vector_bytes = 64;
constexpr int64_t block_rows = 12;
#elif defined(__AVX2__)
constexpr int64_t vector_bytes = 32;
constexpr int64_t block_rows = 6;
#else
constexpr int64_t vector_bytes = 16;
constexpr int64_t block_rows = 4;
#endif

// Terms of a product that are packed at once.
constexpr int64_t block_depth = 256;

template <class T> struct blocking {
    typedef T vector __attribute__((vector_size(vector_bytes)));
    static constexpr int64_t lanes = vector_bytes / static_cast<int64_t>(sizeof(T));
    static constexpr int64_t columns = 2 * lanes;
};

template <class T, class S> inline T widened(S x)
{
    if constexpr (sizeof(S) == 2 && !std::is_integral_v<S>) {
        return static_cast<T>(to_float(x));
    } else {
        return static_cast<T>(x);
    }
}

// Exchanges the rows and columns of a square of vectors: blocks of `half` the size change places,
// then blocks of half that inside of them, and so on.
template <class T, int64_t half, int64_t... place>
inline void transpose(typename blocking<T>::vector *rows,
                      std::integer_sequence<int64_t, place...> all)
{
    constexpr int64_t lanes = blocking<T>::lanes;
    typedef std::conditional_t<sizeof(T) == 8, int64_t, int32_t> whole;
    static_assert(sizeof(T) == sizeof(whole), "accumulators have four or eight bytes");
    typedef whole places __attribute__((vector_size(vector_bytes)));
    constexpr places upper = {static_cast<whole>((place & half) ? lanes + place - half : place)...};
    constexpr places lower = {static_cast<whole>((place & half) ? lanes + place : place + half)...};
#pragma GCC unroll 64
    for (int64_t i = 0; i < lanes; ++i) {
        if ((i & half) == 0) {
            const auto first = rows[i];
            const auto other = rows[i + half];
            rows[i] = __builtin_shuffle(first, other, upper);
            rows[i + half] = __builtin_shuffle(first, other, lower);
        }
    }
    if constexpr (half > 1) {
        transpose<T, half / 2>(rows, all);
    }
}

// Some lanes of elements that are contiguous in memory.
template <class T, class S> inline typename blocking<T>::vector line_of(const S *from)
{
    typename blocking<T>::vector line;
    if constexpr (std::is_same_v<T, S>) {
        std::memcpy(&line, from, sizeof line);
    } else {
        for (int64_t i = 0; i < blocking<T>::lanes; ++i) {
            line[i] = widened<T>(from[i]);
        }
    }
    return line;
}

// Packs one panel of `count` of `size` lines that are contiguous in memory, in squares of lanes.
// Returns how many elements of each line it has packed. Vectors reach over the end of a line of the
// panel, into what is written next; panels have room for that behind them.
template <int64_t size, class T, class S>
inline int64_t pack_squares(const S *data, int64_t row, int64_t count, int64_t depth, T *panel)
{
    constexpr int64_t lanes = blocking<T>::lanes;
    const int64_t stop = depth - depth % lanes;
    for (int64_t start = 0; start < stop; start += lanes) {
        for (int64_t first = (size - 1) / lanes * lanes; first >= 0; first -= lanes) {
            typename blocking<T>::vector square[lanes];
#pragma GCC unroll 64
            for (int64_t i = 0; i < lanes; ++i) {
                const S *const from = data + (first + i) * row + start;
                square[i] = first + i < size && first + i < count ? line_of<T>(from)
                                                                  : typename blocking<T>::vector{};
            }
            transpose<T, lanes / 2>(square, std::make_integer_sequence<int64_t, lanes>{});
#pragma GCC unroll 64
            for (int64_t k = 0; k < lanes; ++k) {
                std::memcpy(panel + (start + k) * size + first, &square[k], sizeof square[k]);
            }
        }
    }
    return stop;
}

// Packs `width` lines of `depth` elements into panels of `size` lines; missing lines become 0.
// Element (line, k) is data[line * row + k * column].
template <int64_t size, class T, class S>
inline void pack(const matrix<const S> &from, int64_t width, int64_t depth, T *panels)
{
    for (int64_t line = 0; line < width; line += size) {
        const S *const data = from.data + line * from.row;
        const int64_t count = std::min(size, width - line);
        if (count == size && from.row == 1) {
            for (int64_t k = 0; k < depth; ++k) {
                for (int64_t i = 0; i < size; ++i) {
                    panels[k * size + i] = widened<T>(data[k * from.column + i]);
                }
            }
        } else {
            int64_t packed = 0;
            if (from.column == 1) {
                packed = pack_squares<size>(data, from.row, count, depth, panels);
            }
            // Blocks of 16 keep the panel's part in the first-level cache while lines are read.
            for (int64_t start = packed; start < depth; start += 16) {
                const int64_t stop = std::min(start + 16, depth);
                for (int64_t i = 0; i < size; ++i) {
                    for (int64_t k = start; k < stop; ++k) {
                        panels[k * size + i] =
                            i < count ? widened<T>(data[i * from.row + k * from.column]) : T{0};
                    }
                }
            }
        }
        panels += size * depth;
    }
}

// `high` rows x two vectors of the product, in registers along the depth; `a` is a panel of block_rows
// lines.
template <int64_t high, class T>
inline void multiply_block(const T *a, const T *b, int64_t depth, T *to, int64_t row)
{
    using vector = typename blocking<T>::vector;
    constexpr int64_t lanes = blocking<T>::lanes;
    vector sums[high][2] = {};
    for (int64_t k = 0; k < depth; ++k) {
        vector first;
        vector second;
        std::memcpy(&first, b + k * 2 * lanes, sizeof first);
        std::memcpy(&second, b + k * 2 * lanes + lanes, sizeof second);
#pragma GCC unroll 16
        for (int64_t r = 0; r < high; ++r) {
            sums[r][0] += a[k * block_rows + r] * first;
            sums[r][1] += a[k * block_rows + r] * second;
        }
    }
#pragma GCC unroll 16
    for (int64_t r = 0; r < high; ++r) {
        vector old[2];
        std::memcpy(old, to + r * row, sizeof old);
        old[0] += sums[r][0];
        old[1] += sums[r][1];
        std::memcpy(to + r * row, old, sizeof old);
    }
}

// to += a @ b for panels of `rows` <= block_rows lines and `columns` <= two vectors, with the
// smallest of three kernels that holds the rows.
template <class T>
inline void multiply_panels(const T *a, const T *b, int64_t rows, int64_t columns, int64_t depth,
                            T *to, int64_t row)
{
    constexpr int64_t width = blocking<T>::columns;
    constexpr int64_t third = std::max<int64_t>(block_rows / 3, 1);
    const int64_t high = rows > 2 * third ? block_rows : rows > third ? 2 * third : third;
    const bool whole = rows == high && columns == width;
    alignas(64) T edge[block_rows * width];
    T *const target = whole ? to : edge;
    const int64_t step = whole ? row : width;
    if (!whole) {
        std::fill_n(edge, high * width, T{0});
    }
    if (high == block_rows) {
        multiply_block<block_rows>(a, b, depth, target, step);
    } else if (high > third) {
        multiply_block<2 * third>(a, b, depth, target, step);
    } else {
        multiply_block<third>(a, b, depth, target, step);
    }
    for (int64_t i = 0; !whole && i < rows; ++i) {
        for (int64_t j = 0; j < columns; ++j) {
            to[i * row + j] += edge[i * width + j];
        }
    }
}

// The matrix that a slot of kept panels was packed from.
struct packed_from {
    const void *data;
    int64_t row;
    int64_t column;
    int64_t lines;
    int64_t depth;
};

// Memory for the panels of one operand; `from` is null where they are not kept for later products.
template <class T> struct panels {
    T *data;
    packed_from *from = nullptr;

    // Whether the panels have to be packed again for a matrix.
    bool stale(const packed_from &now) const
    {
        if (from == nullptr) {
            return true;
        }
        const bool same = from->data == now.data && from->row == now.row &&
                          from->column == now.column && from->lines == now.lines &&
                          from->depth == now.depth;
        *from = now;
        return !same;
    }

    // The panels of the terms from number `term` on, of `lines` lines in panels of `size`.
    template <int64_t size> T *part(int64_t term, int64_t lines) const
    {
        return from == nullptr ? data : data + (lines + size - 1) / size * size * term;
    }
};

// What one thread keeps of an operand's panels at most, in bytes.
constexpr int64_t kept_bytes = 8388608;

// How many slots of `room` elements keep the panels of an operand; no slots where none are kept,
// and the room is that of one block.
struct keeping {
    int64_t slots;
    int64_t room;

    // `wanted` panels of `depth` x `lines` elements are met again where `again` is true.
    keeping(bool again, int64_t element_bytes, int64_t wanted, int64_t depth, int64_t lines)
    {
        const double whole = (static_cast<double>(depth) + 2) * static_cast<double>(lines);
        if (!again || whole * static_cast<double>(element_bytes) > double{kept_bytes}) {
            slots = 0;
            room = std::min(depth, block_depth) * lines;
            return;
        }
        // One line more for what the panels were packed from, one that vectors may reach into.
        room = ((depth + 2) * lines + 15) / 16 * 16;
        const int64_t most = std::max<int64_t>(kept_bytes / (room * element_bytes), 1);
        slots = std::clamp<int64_t>(wanted, 1, most);
    }

    int64_t elements() const { return std::max<int64_t>(slots, 1) * room; }
};

// The panels of an operand that one thread keeps while it runs its programs, of a tensor that
// nobody writes meanwhile. The last slot serves all for which there is none.
template <class T> class kept_panels {
public:
    kept_panels(T *memory, const keeping &kept) : memory_(memory), kept_(kept)
    {
        for (int64_t slot = 0; slot < kept.slots; ++slot) {
            new (memory + slot * kept.room) packed_from{};
        }
    }

    panels<T> at(int64_t number) const
    {
        if (kept_.slots == 0) {
            return {memory_};
        }
        T *const slot = memory_ + std::min(number, kept_.slots - 1) * kept_.room;
        return {slot + 64 / sizeof(T), reinterpret_cast<packed_from *>(slot)};
    }

private:
    T *memory_;
    keeping kept_;
};

// to += a @ b for a [rows, depth] and b [depth, columns]; `left` and `right` hold packed panels.
template <class T, class A, class B>
void multiply(int64_t rows, int64_t columns, int64_t depth, matrix<const A> a, matrix<const B> b,
              matrix<T> to, panels<T> left, panels<T> right)
{
    constexpr int64_t width = blocking<T>::columns;
    const bool left_stale = left.stale({a.data, a.row, a.column, rows, depth});
    const bool right_stale = right.stale({b.data, b.row, b.column, columns, depth});
    for (int64_t k = 0; k < depth; k += block_depth) {
        const int64_t part = std::min(block_depth, depth - k);
        T *const a_panels = left.template part<block_rows>(k, rows);
        T *const b_panels = right.template part<width>(k, columns);
        if (left_stale) {
            pack<block_rows>(matrix<const A>{a.data + k * a.column, a.row, a.column}, rows, part,
                             a_panels);
        }
        if (right_stale) {
            pack<width>(matrix<const B>{b.data + k * b.row, b.column, b.row}, columns, part,
                        b_panels);
        }
        for (int64_t c = 0; c < columns; c += width) {
            for (int64_t r = 0; r < rows; r += block_rows) {
                multiply_panels(a_panels + r * part, b_panels + c * part,
                                std::min(block_rows, rows - r), std::min(width, columns - c), part,
                                to.data + r * to.row + c, to.row);
            }
        }
    }
}

// Replaces an element by what `combine` makes of it; no update of another thread is lost.
template <class T, class F> inline void atomic_update(T *place, F combine)
{
    T old;
    __atomic_load(place, &old, __ATOMIC_RELAXED);
    T next = combine(old);
    while (!__atomic_compare_exchange(place, &old, &next, true, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED)) {
        next = combine(old);
    }
}

template <class T> inline void atomic_add(T *place, T value)
{
    if constexpr (std::is_integral_v<T>) {
        __atomic_fetch_add(place, value, __ATOMIC_RELAXED);
    } else {
        atomic_update(place, [value](T old) { return old + value; });
    }
}

template <class T> inline void atomic_max(T *place, T value)
{
    atomic_update(place, [value](T old) { return max(old, value); });
}

template <class T> inline void atomic_min(T *place, T value)
{
    atomic_update(place, [value](T old) { return min(old, value); });
}

inline void atomic_add(half *place, half value)
{
    atomic_update(place, [value](half old) { return to_half(to_float(old) + to_float(value)); });
}
inline void atomic_max(half *place, half value)
{
    atomic_update(place,
                  [value](half old) { return to_half(max(to_float(old), to_float(value))); });
}
inline void atomic_min(half *place, half value)
{
    atomic_update(place,
                  [value](half old) { return to_half(min(to_float(old), to_float(value))); });
}

inline void atomic_add(bfloat16 *place, bfloat16 value)
{
    atomic_update(place, [value](bfloat16 old) { return to_bfloat16(to_float(old) + to_float(value)); });
}
inline void atomic_max(bfloat16 *place, bfloat16 value)
{
    atomic_update(place,
                  [value](bfloat16 old) { return to_bfloat16(max(to_float(old), to_float(value))); });
}
inline void atomic_min(bfloat16 *place, bfloat16 value)
{
    atomic_update(place,
                  [value](bfloat16 old) { return to_bfloat16(min(to_float(old), to_float(value))); });
}

// The valid rectangle of a tile: per axis its first lane, the one after its last, and the distance
// from one lane to the next.
template <class T, int rank> struct tile {
    T *data;
    int64_t lower[rank];
    int64_t upper[rank];
    int64_t strides[rank];
};

template <class T, int rank> inline T *lane_at(const tile<T, rank> &each, const int64_t (&at)[rank])
{
    T *place = each.data;
    for (int a = 0; a < rank; ++a) {
        place += at[a] * each.strides[a];
    }
    return place;
}

// Calls `visit` with the first lane of every line along `axis`, at which that axis stands at 0.
template <int axis, int rank, class F>
inline void for_lines(const int64_t (&lower)[rank], const int64_t (&upper)[rank], F visit)
{
    int64_t at[rank] = {};
    for (int a = 0; a < rank; ++a) {
        if (a != axis && lower[a] >= upper[a]) {
            return;
        }
        at[a] = a == axis ? 0 : lower[a];
    }
    for (;;) {
        visit(at);
        int a = rank - 1;
        for (; a >= 0; --a) {
            if (a == axis) {
                continue;
            }
            if (++at[a] < upper[a]) {
                break;
            }
            at[a] = lower[a];
        }
        if (a < 0) {
            return;
        }
    }
}

template <class T> inline bool no_number([[maybe_unused]] T x)
{
    if constexpr (std::is_floating_point_v<T>) {
        return x != x;
    } else {
        return false;
    }
}

// Whether `a` stands strictly before `b`; NaN is the largest.
template <bool descending, class T> inline bool stands_before(T a, T b)
{
    if constexpr (descending) {
        return a > b || (no_number(a) && !no_number(b));
    } else {
        return a < b || (!no_number(a) && no_number(b));
    }
}

// The largest (or smallest) of some values, at least one; NaN wins. Many are compared at a time.
template <bool largest, class T>
inline T extreme_value(const T *values, int64_t count, int64_t step)
{
    const auto wins = [](T next, T held) {
        return (largest ? next > held : next < held) | no_number(next);
    };
    constexpr int width = 128 / sizeof(T);
    T best = values[0];
    int64_t n = 1;
    if (step == 1 && count >= width) {
        T held[width];
        for (int lane = 0; lane < width; ++lane) {
            held[lane] = values[lane];
        }
        for (n = width; n + width <= count; n += width) {
            for (int lane = 0; lane < width; ++lane) {
                const T next = values[n + lane];
                held[lane] = wins(next, held[lane]) ? next : held[lane];
            }
        }
        best = held[0];
        for (int lane = 1; lane < width; ++lane) {
            best = wins(held[lane], best) ? held[lane] : best;
        }
    }
    for (; n < count; ++n) {
        const T next = values[n * step];
        best = wins(next, best) ? next : best;
    }
    return best;
}

// The first lane of the largest (or smallest) of every line; NaN wins, and no lane gives -1.
template <int axis, bool largest, class T, int rank>
inline void extremum(const tile<const T, rank> &source, const tile<int64_t, rank> &result)
{
    const int64_t first = source.lower[axis];
    const int64_t count = source.upper[axis] - first;
    const int64_t step = source.strides[axis];
    for_lines<axis>(source.lower, source.upper, [&](const int64_t (&at)[rank]) {
        const T *const line = lane_at(source, at) + first * step;
        int64_t lane = -1;
        if (count > 0) {
            const T best = extreme_value<largest>(line, count, step);
            const bool missing = no_number(best);
            const auto found = [&](int64_t n) {
                return missing ? no_number(line[n * step]) : line[n * step] == best;
            };
            for (lane = 0; !found(lane); ++lane) {
            }
            lane += first;
        }
        *lane_at(result, at) = lane;
    });
}

// Values with their indices along one line of two tiles.
template <class T> struct ordered_line {
    T *values;
    int64_t *places;
    int64_t step;
    int64_t place_step;

    void take(int64_t lane, const ordered_line &other, int64_t from) const
    {
        values[lane * step] = other.values[from * other.step];
        places[lane * place_step] = other.places[from * other.place_step];
    }
};

// Merges the sorted lanes first .. middle and middle .. last of one line into another, stably.
template <bool descending, class T>
inline void merge_lanes(const ordered_line<T> &from, const ordered_line<T> &to, int64_t first,
                        int64_t middle, int64_t last)
{
    int64_t left = first;
    int64_t right = middle;
    for (int64_t lane = first; lane < last; ++lane) {
        const bool second =
            left >= middle ||
            (right < last && stands_before<descending>(from.values[right * from.step],
                                                       from.values[left * from.step]));
        to.take(lane, from, second ? right++ : left++);
    }
}

// Sorts every line stably, by merging back and forth; the sources are used up.
template <int axis, bool descending, class T, int rank>
inline void sort(const tile<T, rank> &source, const tile<int64_t, rank> &source_places,
                 const tile<T, rank> &result, const tile<int64_t, rank> &result_places)
{
    const int64_t first = source.lower[axis];
    const int64_t last = source.upper[axis];
    for_lines<axis>(source.lower, source.upper, [&](const int64_t (&at)[rank]) {
        ordered_line<T> from{lane_at(source, at), lane_at(source_places, at), source.strides[axis],
                             source_places.strides[axis]};
        ordered_line<T> to{lane_at(result, at), lane_at(result_places, at), result.strides[axis],
                           result_places.strides[axis]};
        bool moved = false;
        for (int64_t width = 1; width < last - first; width *= 2) {
            for (int64_t left = first; left < last; left += 2 * width) {
                const int64_t middle = std::min(left + width, last);
                merge_lanes<descending>(from, to, left, middle, std::min(middle + width, last));
            }
            std::swap(from, to);
            moved = !moved;
        }
        if (!moved) {
            for (int64_t lane = first; lane < last; ++lane) {
                to.take(lane, from, lane);
            }
        }
    });
}

// The order of topk: values, then indices; a negative index (nothing yet) counts as the largest.
template <bool largest, class T>
inline bool ranks_before(T a, int64_t a_place, T b, int64_t b_place)
{
    return stands_before<largest>(a, b) ||
           (!stands_before<largest>(b, a) &&
            static_cast<uint64_t>(a_place) < static_cast<uint64_t>(b_place));
}

// Inserts a value among the `count` ordered ones of a line, the last of which is dropped.
template <bool largest, class T>
inline void insert_lane(const ordered_line<T> &line, int64_t count, T next, int64_t place)
{
    int64_t lane = count - 1;
    for (; lane > 0 && ranks_before<largest>(next, place, line.values[(lane - 1) * line.step],
                                             line.places[(lane - 1) * line.place_step]);
         --lane) {
        line.take(lane, line, lane - 1);
    }
    line.values[lane * line.step] = next;
    line.places[lane * line.place_step] = place;
}

// Merges the lanes of every line into the best ones so far, which stay in order.
template <int axis, bool largest, class T, int rank>
inline void topk(const tile<const T, rank> &source, const tile<const int64_t, rank> &source_places,
                 const tile<T, rank> &best, const tile<int64_t, rank> &best_places)
{
    int64_t lower[rank];
    int64_t upper[rank];
    for (int a = 0; a < rank; ++a) {
        lower[a] = std::max(source.lower[a], best.lower[a]);
        upper[a] = std::min(source.upper[a], best.upper[a]);
    }
    const int64_t count = best.upper[axis];
    if (count <= 0) {
        return;
    }
    for_lines<axis>(lower, upper, [&](const int64_t (&at)[rank]) {
        const T *const values = lane_at(source, at);
        const int64_t *const places = lane_at(source_places, at);
        const ordered_line<T> line{lane_at(best, at), lane_at(best_places, at),
                                   best.strides[axis], best_places.strides[axis]};
        for (int64_t lane = 1; lane < count; ++lane) {
            insert_lane<largest>(line, lane + 1, line.values[lane * line.step],
                                 line.places[lane * line.place_step]);
        }
        const int64_t last = count - 1;
        for (int64_t lane = source.lower[axis]; lane < source.upper[axis]; ++lane) {
            const T next = values[lane * source.strides[axis]];
            const int64_t place = places[lane * source_places.strides[axis]];
            if (ranks_before<largest>(next, place, line.values[last * line.step],
                                      line.places[last * line.place_step])) {
                insert_lane<largest>(line, count, next, place);
            }
        }
    });
}

// The lane after `at` in row-major order; the first one again after the last.
template <class T, int rank> inline void next_lane(const tile<T, rank> &each, int64_t (&at)[rank])
{
    for (int a = rank - 1; a >= 0; --a) {
        if (++at[a] < each.upper[a]) {
            return;
        }
        at[a] = each.lower[a];
    }
}

// Copies lanes in row-major order from one rectangle to another with as many lanes.
template <class T, int from, int to>
inline void reshape(const tile<const T, from> &source, const tile<T, to> &result)
{
    int64_t count = 1;
    int64_t run = 1;
    bool packed = true;
    int64_t at[to];
    int64_t source_at[from];
    for (int a = to - 1; a >= 0; --a) {
        at[a] = result.lower[a];
        const int64_t lanes = std::max<int64_t>(result.upper[a] - at[a], 0);
        packed = packed && (lanes == 1 || result.strides[a] == count);
        count *= lanes;
    }
    for (int a = from - 1; a >= 0; --a) {
        source_at[a] = source.lower[a];
        const int64_t lanes = std::max<int64_t>(source.upper[a] - source_at[a], 0);
        packed = packed && (lanes == 1 || source.strides[a] == run);
        run *= lanes;
    }
    if (count == 0 || run == 0) {
        return;
    }
    if (packed) {
        std::copy_n(lane_at(source, source_at), count, lane_at(result, at));
        return;
    }
    for (int64_t lane = 0; lane < count; ++lane) {
        *lane_at(result, at) = *lane_at(source, source_at);
        next_lane(result, at);
        next_lane(source, source_at);
    }
}

// `scan_lines` along another axis than the last: blocks of neighbouring lines advance together.
template <int axis, bool reverse, bool exclusive, class T, int rank, class W, class F>
inline void scan_columns(const tile<const T, rank> &source, const tile<T, rank> &result, W start,
                         F combine)
{
    constexpr int last = rank - 1;
    constexpr int64_t width = 128 / sizeof(W);
    const int64_t count = source.upper[axis] - source.lower[axis];
    const int64_t origin = reverse ? source.upper[axis] - 1 : source.lower[axis];
    const int64_t turn = reverse ? -1 : 1;
    int64_t lower[rank];
    int64_t upper[rank];
    std::copy_n(source.lower, rank, lower);
    std::copy_n(source.upper, rank, upper);
    lower[last] = 0;
    upper[last] = (source.upper[last] - source.lower[last] + width - 1) / width;
    for_lines<axis>(lower, upper, [&](const int64_t (&block)[rank]) {
        int64_t at[rank];
        std::copy_n(block, rank, at);
        at[last] = source.lower[last] + block[last] * width;
        const int64_t lanes = std::min(width, source.upper[last] - at[last]);
        const T *const from = lane_at(source, at);
        T *const to = lane_at(result, at);
        W totals[width];
        std::fill_n(totals, width, start);
        for (int64_t n = 0; n < count; ++n) {
            const T *const row = from + (origin + turn * n) * source.strides[axis];
            T *const written = to + (origin + turn * n) * result.strides[axis];
            for (int64_t lane = 0; lane < lanes; ++lane) {
                const W before = totals[lane];
                totals[lane] = combine(before, static_cast<W>(row[lane]));
                written[lane] = static_cast<T>(exclusive ? before : totals[lane]);
            }
        }
    });
}

// Runs `combine` along every line; sums and products of floats are kept in double. Four lanes at a
// time are combined among themselves, so that only every fourth waits for what came before.
template <int axis, bool reverse, bool exclusive, class T, int rank, class W, class F>
inline void scan_lines(const tile<const T, rank> &source, const tile<T, rank> &result, W start,
                       F combine)
{
    if constexpr (axis != rank - 1) {
        if (source.strides[rank - 1] == 1 && result.strides[rank - 1] == 1) {
            scan_columns<axis, reverse, exclusive>(source, result, start, combine);
            return;
        }
    }
    const int64_t count = source.upper[axis] - source.lower[axis];
    const int64_t origin = reverse ? source.upper[axis] - 1 : source.lower[axis];
    const int64_t step = reverse ? -source.strides[axis] : source.strides[axis];
    const int64_t stride = reverse ? -result.strides[axis] : result.strides[axis];
    for_lines<axis>(source.lower, source.upper, [&](const int64_t (&at)[rank]) {
        const T *from = lane_at(source, at) + origin * source.strides[axis];
        T *to = lane_at(result, at) + origin * result.strides[axis];
        W total = start;
        const int64_t rest = count % 4;
        for (int64_t n = 0; n < count - rest; n += 4) {
            const W one = static_cast<W>(from[n * step]);
            const W two = combine(one, static_cast<W>(from[(n + 1) * step]));
            const W three = combine(two, static_cast<W>(from[(n + 2) * step]));
            const W four = combine(three, static_cast<W>(from[(n + 3) * step]));
            if constexpr (exclusive) {
                to[n * stride] = static_cast<T>(total);
            }
            constexpr int64_t shift = exclusive ? 1 : 0;
            to[(n + shift) * stride] = static_cast<T>(combine(total, one));
            to[(n + 1 + shift) * stride] = static_cast<T>(combine(total, two));
            to[(n + 2 + shift) * stride] = static_cast<T>(combine(total, three));
            total = combine(total, four);
            if constexpr (!exclusive) {
                to[(n + 3) * stride] = static_cast<T>(total);
            }
        }
        for (int64_t n = count - rest; n < count; ++n) {
            const W before = total;
            total = combine(total, static_cast<W>(from[n * step]));
            to[n * stride] = static_cast<T>(exclusive ? before : total);
        }
    });
}

template <int axis, bool reverse, bool exclusive, class T, int rank>
inline void cumsum(const tile<const T, rank> &source, const tile<T, rank> &result)
{
    using W = std::conditional_t<std::is_floating_point_v<T>, double, T>;
    scan_lines<axis, reverse, exclusive>(source, result, W{0},
                              [](W a, W b) { return static_cast<W>(a + b); });
}

template <int axis, bool reverse, bool exclusive, class T, int rank>
inline void cumprod(const tile<const T, rank> &source, const tile<T, rank> &result)
{
    using W = std::conditional_t<std::is_floating_point_v<T>, double, T>;
    scan_lines<axis, reverse, exclusive>(source, result, W{1},
                              [](W a, W b) { return static_cast<W>(a * b); });
}

// Philox4x32-10 (Salmon et al. 2011): the first two words for a key and a counter.
inline uint64_t philox(int64_t seed, int64_t offset)
{
    constexpr uint64_t low = 0xffffffffU;
    uint64_t k0 = static_cast<uint64_t>(seed) & low;
    uint64_t k1 = static_cast<uint64_t>(seed) >> 32;
    uint64_t c0 = static_cast<uint64_t>(offset) & low;
    uint64_t c1 = static_cast<uint64_t>(offset) >> 32;
    uint64_t c2 = 0;
    uint64_t c3 = 0;
#pragma GCC unroll 10
    for (int turn = 0; turn < 10; ++turn) {
        const uint64_t p0 = 0xd2511f53U * c0;
        const uint64_t p1 = 0xcd9e8d57U * c2;
        c0 = (p1 >> 32) ^ c1 ^ k0;
        c1 = p1 & low;
        c2 = (p0 >> 32) ^ c3 ^ k1;
        c3 = p0 & low;
        k0 = (k0 + 0x9e3779b9U) & low;
        k1 = (k1 + 0xbb67ae85U) & low;
    }
    return c0 | c1 << 32;
}

// Uniform in [0, 1): the upper 24 bits of a word.
inline float rand(int64_t seed, int64_t offset)
{
    const uint32_t word = static_cast<uint32_t>(philox(seed, offset));
    return static_cast<float>(static_cast<int32_t>(word >> 8)) * 0x1p-24F;
}

// Standard normal, by Box-Muller.
inline double randn(int64_t seed, int64_t offset)
{
    const uint64_t words = philox(seed, offset);
    const int32_t first = static_cast<int32_t>(static_cast<uint32_t>(words) >> 8);
    const int32_t second = static_cast<int32_t>(words >> 40);
    const double radius = std::sqrt(-2.0 * log((first + 1.0) * 0x1p-24));
    return radius * cos(6.283185307179586 * (second * 0x1p-24));
}

// The magnitude of an integer. Sums and products stay at the greatest value once they reach it.
class natural {
public:
    constexpr natural(int64_t value)
        : value_(value < 0 ? uint64_t{0} - static_cast<uint64_t>(value)
                           : static_cast<uint64_t>(value))
    {
    }

    friend constexpr natural operator+(natural a, natural b)
    {
        natural sum = 0;
        if (__builtin_add_overflow(a.value_, b.value_, &sum.value_)) {
            sum.value_ = std::numeric_limits<uint64_t>::max();
        }
        return sum;
    }

    friend constexpr natural operator*(natural a, natural b)
    {
        natural product = 0;
        if (__builtin_mul_overflow(a.value_, b.value_, &product.value_)) {
            product.value_ = std::numeric_limits<uint64_t>::max();
        }
        return product;
    }

    constexpr bool reaches(uint64_t limit) const { return value_ >= limit; }

private:
    uint64_t value_;
};

// Whether a tensor has 2^48 elements or more, an extent of 0 counted as 1.
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
#pragma omp declare reduction(propagating_min : float, double \
                              : omp_out = sketch::min(omp_out, omp_in)) \
    initializer(omp_priv = omp_orig)
