// rms_norm: x / sqrt(mean(x^2) + eps) * weight for every row, f16 in memory and f32 in registers.
// Rows are widened into a float buffer of the thread once, and narrowed as they are written.

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <omp.h>
#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace {

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

// An IEEE binary16 number by its bits.
inline float to_float(uint16_t x)
{
    const uint32_t magnitude = x & 0x7fffU;
    const uint32_t sign = static_cast<uint32_t>(x & 0x8000U) << 16;
    // 2^112 rebiases the exponent and normalises subnormals.
    const float finite = float_of(magnitude << 13) * 0x1p112F;
    const uint32_t special = (magnitude << 13) + 0x70000000U; // infinity and NaN
    return float_of((magnitude >= 0x7c00U ? special : bits_of(finite)) | sign);
}

// Rounds to nearest, ties to even; overflow gives infinity, NaN stays NaN.
inline uint16_t to_half(float x)
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

// Whole vectors with the processor's own instructions, the rest one by one.
inline void widen(const uint16_t *from, float *to, int64_t count)
{
    int64_t done = 0;
#if defined(__F16C__)
    for (; done + 8 <= count; done += 8) {
        const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i *>(from + done));
        _mm256_storeu_ps(to + done, _mm256_cvtph_ps(bits));
    }
#endif
    for (; done < count; ++done) {
        to[done] = to_float(from[done]);
    }
}

inline void narrow(const float *from, uint16_t *to, int64_t count)
{
    int64_t done = 0;
#if defined(__F16C__)
    for (; done + 8 <= count; done += 8) {
        const __m128i bits = _mm256_cvtps_ph(_mm256_loadu_ps(from + done), 0); // 0: to nearest
        _mm_storeu_si128(reinterpret_cast<__m128i *>(to + done), bits);
    }
#endif
    for (; done < count; ++done) {
        to[done] = to_half(from[done]);
    }
}

} // namespace

extern "C" int64_t rms_norm(const uint16_t *__restrict X, const uint16_t *__restrict WEIGHT,
                            uint16_t *__restrict Y, int64_t M, int64_t N, double eps)
{
    if (!(N > 0)) {
        return 1;
    }
    // One row for each thread, then the weights for all: on cache lines, a multiple of 64 bytes.
    const int64_t threads = omp_get_max_threads();
    const int64_t stride = (N + 15) / 16 * 16;
    const size_t bytes = static_cast<size_t>((threads + 1) * stride) * sizeof(float);
    float *const memory = static_cast<float *>(std::aligned_alloc(64, bytes));
    if (memory == nullptr) {
        return -1;
    }
    float *const weight = memory + threads * stride;
    widen(WEIGHT, weight, N);
    #pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < M; ++i) {
        float *const __restrict x = memory + omp_get_thread_num() * stride;
        widen(X + i * N, x, N);
        float squares = 0.0F;
        #pragma omp simd reduction(+ : squares)
        for (int64_t lane = 0; lane < N; ++lane) {
            squares += x[lane] * x[lane];
        }
        const float mean = squares / static_cast<float>(N);
        const float scale = 1.0F / std::sqrt(mean + static_cast<float>(eps));
        #pragma omp simd
        for (int64_t lane = 0; lane < N; ++lane) {
            x[lane] *= scale * weight[lane];
        }
        narrow(x, Y + i * N, N);
    }
    std::free(memory);
    return 0;
}
