// cross_entropy: a C++ kernel for cpu, made from a sketch.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <omp.h>

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
SKETCH_VECTORS float logf(float x) noexcept;
SKETCH_VECTORS double log(double x) noexcept;
SKETCH_VECTORS double exp(double x) noexcept;
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

// The larger; NaN wins. Only `larger` waits for `a`, the accumulator of a loop.
template <class T> inline T max(T a, T b)
{
    const T larger = b > a ? b : a;
    return b != b ? b : larger;
}
inline bool max(bool a, bool b) { return a || b; }

inline float log(float x) { return ::logf(x); }
inline double log(double x) { return ::log(x); }

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

#pragma omp declare reduction(propagating_max : float, double \
                              : omp_out = sketch::max(omp_out, omp_in)) \
    initializer(omp_priv = omp_orig)

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  M >= 1 and N >= 1
//   2  M >= 0 and N >= 0
//   3  fewer than 2**48 elements in each tensor
extern "C" int64_t cross_entropy(
    const float *__restrict LOGITS, const int64_t *__restrict TARGET, float *__restrict LOSS,
    int64_t M, int64_t N)
{
    constexpr int64_t T = 2048;

    if (M < 0 || N < 0) {
        return 2;
    }
    if (M < 1 || N < 1) {
        return 1;
    }
    if (sketch::too_large({M, N})) {
        return 3;
    }
    // Memory shared by the phases.
    sketch::arena workspace;
    const int64_t ROWS_place = workspace.add(sizeof(float), {M});
    if (!workspace.allocate(1)) {
        return -1;
    }
    float *const ROWS = workspace.at<float>(ROWS_place, 0);
    // Phase 1 of 2.
    {
        #pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < M; ++i) {
            // running_sum = alloc([1], init=0.0)
            float running_sum = 0.0f;
            // running_max = alloc([1], init=-inf)
            float running_max = -std::numeric_limits<float>::infinity();
            // for j in range(ceil(N, T)):
            for (int64_t j = 0; j < sketch::ceil_div(N, T); ++j) {
                float block_sum = 0.0f;
                float block_max = -std::numeric_limits<float>::infinity();
                // load(LOGITS[i, j*T:(j+1)*T] -> x)
                // reduce_max(x, 0, block_max)
                const float *const LOGITS_row = LOGITS + (i * N + j * T);
                #pragma omp simd reduction(propagating_max : block_max)
                for (int64_t lane = 0; lane < std::min<int64_t>(T, N - j * T); ++lane) {
                    const float x = LOGITS_row[lane];
                    block_max = sketch::max(block_max, x);
                }
                // max(running_max, block_max, new_max)
                const float new_max = sketch::max(running_max, block_max);
                // sub(running_max, new_max, correction)
                const float correction = running_max - new_max;
                // exp(correction, correction)
                const float correction_exp = sketch::exp(correction);
                // load(LOGITS[i, j*T:(j+1)*T] -> x)
                // sub(x, new_max, x)
                // exp(x, x)
                // reduce_sum(x, 0, block_sum)
                const float *const LOGITS_row_2 = LOGITS + (i * N + j * T);
                #pragma omp simd reduction(+ : block_sum)
                for (int64_t lane = 0; lane < std::min<int64_t>(T, N - j * T); ++lane) {
                    const float x = LOGITS_row_2[lane];
                    const float x_sub = x - new_max;
                    const float x_exp = sketch::exp(x_sub);
                    block_sum += x_exp;
                }
                // fma(running_sum, correction, block_sum, running_sum)
                running_sum = running_sum * correction_exp + block_sum;
                // copy(new_max, running_max)
                running_max = new_max;
            }
            // target = fetch(TARGET[i])
            const int64_t target = TARGET[i];
            // log(running_sum, loss)
            const float loss = sketch::log(running_sum);
            // add(loss, running_max, loss)
            const float loss_add = loss + running_max;
            // load(LOGITS[i, target] -> picked)
            // sub(loss, picked, loss)
            const float picked = (0 <= target && target < N) ? LOGITS[i * N + target] : 0.0f;
            const float loss_sub = loss_add - picked;
            // store(loss -> ROWS[i])
            ROWS[i] = loss_sub;
        }
    }
    // Phase 2 of 2.
    {
        // total = alloc([1], init=0.0)
        float total = 0.0f;
        // for j in range(ceil(M, T)):
        for (int64_t j_2 = 0; j_2 < sketch::ceil_div(M, T); ++j_2) {
            float part = 0.0f;
            // load(ROWS[j*T:(j+1)*T] -> rows)
            // reduce_sum(rows, 0, part)
            const float *const ROWS_row = ROWS + j_2 * T;
            #pragma omp simd reduction(+ : part)
            for (int64_t lane = 0; lane < std::min<int64_t>(T, M - j_2 * T); ++lane) {
                const float rows = ROWS_row[lane];
                part += rows;
            }
            // add(total, part, total)
            total = total + part;
        }
        // div(total, M, total)
        total = total / static_cast<float>(M);
        // store(total -> LOSS[])
        LOSS[0] = total;
    }
    return 0;
}
