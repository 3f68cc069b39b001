// What CUDA offers besides threads: types of several elements, atomics, bits, functions of numbers.
// Included by `cuda_runtime.h`, after what it needs of the block that runs.
#pragma once

#include <climits>

#define __constant__
#define __noinline__ __attribute__((noinline))

// ---------------------------------------------------------------- types of several elements

#define EMULATED_VECTORS(T, name)                                                                  \
    struct __attribute__((aligned(2 * sizeof(T)))) name##2 {                                       \
        T x, y;                                                                                    \
    };                                                                                             \
    struct name##3 {                                                                               \
        T x, y, z;                                                                                 \
    };                                                                                             \
    struct __attribute__((aligned(sizeof(T) == 8 ? 16 : 4 * sizeof(T)))) name##4 {                 \
        T x, y, z, w;                                                                              \
    };                                                                                             \
    inline name##2 make_##name##2(T x, T y) { return {x, y}; }                                     \
    inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                             \
    inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }

EMULATED_VECTORS(float, float)
EMULATED_VECTORS(double, double)
EMULATED_VECTORS(int, int)
EMULATED_VECTORS(unsigned, uint)
EMULATED_VECTORS(short, short)
EMULATED_VECTORS(unsigned short, ushort)
EMULATED_VECTORS(signed char, char)
EMULATED_VECTORS(unsigned char, uchar)
EMULATED_VECTORS(long long, longlong)
EMULATED_VECTORS(unsigned long long, ulonglong)
#undef EMULATED_VECTORS

// ---------------------------------------------------------------- bits and votes

namespace emulated {

template <class To, class From> To same_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From));
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

// A float of which matrix units see the upper 19 bits.
inline float seen_as_tf32(float x)
{
    return same_bits<float>(same_bits<uint32_t>(x) & ~0x1fffU);
}

// The nearest float with these bits alone; of two, the one away from 0. NaN whose other bits alone are
// not 0 becomes infinity, as in the machine code of sm_86.
inline float rounded_to_tf32(float x)
{
    const uint32_t half = std::isfinite(x) ? 0x1000U : 0U;
    return seen_as_tf32(same_bits<float>(same_bits<uint32_t>(x) + half));
}

} // namespace emulated

inline int __float_as_int(float x) { return emulated::same_bits<int>(x); }
inline unsigned __float_as_uint(float x) { return emulated::same_bits<unsigned>(x); }
inline float __int_as_float(int x) { return emulated::same_bits<float>(x); }
inline float __uint_as_float(unsigned x) { return emulated::same_bits<float>(x); }
inline long long __double_as_longlong(double x) { return emulated::same_bits<long long>(x); }
inline double __longlong_as_double(long long x) { return emulated::same_bits<double>(x); }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline unsigned __umulhi(unsigned a, unsigned b)
{
    return static_cast<unsigned>(uint64_t{a} * b >> 32);
}

inline int __any_sync(unsigned mask, int holds, int line = __builtin_LINE())
{
    return __ballot_sync(mask, holds, line) != 0;
}

inline int __all_sync(unsigned mask, int holds, int line = __builtin_LINE())
{
    return __ballot_sync(mask, holds == 0, line) == 0;
}

inline void __threadfence() {}
inline void __threadfence_block() {}

template <class T> T __ldg(const T *place) { return *place; }

// ---------------------------------------------------------------- atomics

template <class T> T atomicSub(T *place, T value) { return std::exchange(*place, *place - value); }
template <class T> T atomicAnd(T *place, T value) { return std::exchange(*place, *place & value); }
template <class T> T atomicOr(T *place, T value) { return std::exchange(*place, *place | value); }
template <class T> T atomicXor(T *place, T value) { return std::exchange(*place, *place ^ value); }

#define EMULATED_EXTREMA(T)                                                                        \
    inline T atomicMax(T *place, T value) { return std::exchange(*place, std::max(*place, value)); } \
    inline T atomicMin(T *place, T value) { return std::exchange(*place, std::min(*place, value)); } \
    inline T max(T a, T b) { return std::max(a, b); }                                              \
    inline T min(T a, T b) { return std::min(a, b); }

EMULATED_EXTREMA(int)
EMULATED_EXTREMA(unsigned)
EMULATED_EXTREMA(long long)
EMULATED_EXTREMA(unsigned long long)
#undef EMULATED_EXTREMA

// ---------------------------------------------------------------- functions of numbers

inline long max(long a, long b) { return std::max(a, b); }
inline long min(long a, long b) { return std::min(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline float min(float a, float b) { return fminf(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline double min(double a, double b) { return fmin(a, b); }

inline float rsqrtf(float x) { return 1.0F / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float __saturatef(float x) { return fminf(fmaxf(x, 0.0F), 1.0F); }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.0F / x; }
inline int __float2int_rn(float x) { return static_cast<int>(rintf(x)); }
