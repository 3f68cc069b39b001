// power_iteration: a C++ kernel for cpu, made from a sketch.

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
//   1  N >= 1
//   2  N >= 0
//   3  fewer than 2**48 elements in each tensor
extern "C" int64_t power_iteration(
    const float *__restrict A, float *__restrict V, const int64_t *__restrict STEPS, int64_t N)
{
    constexpr int64_t TM = 16;
    constexpr int64_t TN = 256;
    constexpr int64_t T = 512;

    if (N < 0) {
        return 2;
    }
    if (N < 1) {
        return 1;
    }
    if (sketch::too_large({N, N})) {
        return 3;
    }
    // Memory shared by the phases.
    sketch::arena workspace;
    const int64_t PRODUCT_place = workspace.add(sizeof(float), {N});
    const int64_t LARGEST_place = workspace.add(sizeof(float), {});
    if (!workspace.allocate(1)) {
        return -1;
    }
    float *const PRODUCT = workspace.at<float>(PRODUCT_place, 0);
    float *const LARGEST = workspace.at<float>(LARGEST_place, 0);
    // steps = fetch(STEPS[])
    [[maybe_unused]] const int64_t steps = STEPS[0];
    // for step in range(steps):
    for (int64_t step = 0; step < steps; ++step) {
        // Phase 1 of 3.
        {
            #pragma omp parallel for schedule(static)
            for (int64_t i = 0; i < sketch::ceil_div(N, TM); ++i) {
                alignas(64) float sum_[TM];
                // sum_ = alloc([TM], init=0.0)
                #pragma omp simd
                for (int64_t lane = 0; lane < std::min<int64_t>(TM, N - i * TM); ++lane) {
                    sum_[lane] = 0.0f;
                }
                // for j in range(ceil(N, TN)):
                for (int64_t j = 0; j < sketch::ceil_div(N, TN); ++j) {
                    for (int64_t row = 0; row < std::min<int64_t>(TM, N - i * TM); ++row) {
                        float part = 0.0f;
                        // load(A[i*TM:(i+1)*TM, j*TN:(j+1)*TN] -> a)
                        // load(V[j*TN:(j+1)*TN] -> v)
                        // mul(a, v, a)
                        // reduce_sum(a, 1, part)
                        const float *const A_row = A + ((i * TM + row) * N + j * TN);
                        const float *const V_row = V + j * TN;
                        #pragma omp simd reduction(+ : part)
                        for (int64_t lane = 0; lane < std::min<int64_t>(TN, N - j * TN); ++lane) {
                            const float a = A_row[lane];
                            const float v = V_row[lane];
                            const float a_mul = a * v;
                            part += a_mul;
                        }
                        // add(sum, part, sum)
                        const float sum__value = sum_[row];
                        const float sum__value_2 = sum__value + part;
                        sum_[row] = sum__value_2;
                    }
                }
                // store(sum -> PRODUCT[i*TM:(i+1)*TM])
                float *const PRODUCT_row = PRODUCT + i * TM;
                #pragma omp simd
                for (int64_t lane = 0; lane < std::min<int64_t>(TM, N - i * TM); ++lane) {
                    const float sum__value = sum_[lane];
                    PRODUCT_row[lane] = sum__value;
                }
            }
        }
        // Phase 2 of 3.
        {
            // largest = alloc([1], init=0.0)
            float largest = 0.0f;
            // for j in range(ceil(N, T)):
            for (int64_t j_2 = 0; j_2 < sketch::ceil_div(N, T); ++j_2) {
                float block = -std::numeric_limits<float>::infinity();
                // load(PRODUCT[j*T:(j+1)*T] -> x)
                // abs(x, x)
                // reduce_max(x, 0, block)
                const float *const PRODUCT_row = PRODUCT + j_2 * T;
                #pragma omp simd reduction(propagating_max : block)
                for (int64_t lane = 0; lane < std::min<int64_t>(T, N - j_2 * T); ++lane) {
                    const float x = PRODUCT_row[lane];
                    const float x_abs = sketch::absolute(x);
                    block = sketch::max(block, x_abs);
                }
                // max(largest, block, largest)
                largest = sketch::max(largest, block);
            }
            // max(largest, 1e-30, largest)
            largest = sketch::max(largest, 1e-30f);
            // store(largest -> LARGEST[])
            LARGEST[0] = largest;
        }
        // Phase 3 of 3.
        {
            #pragma omp parallel for schedule(static)
            for (int64_t j_3 = 0; j_3 < sketch::ceil_div(N, T); ++j_3) {
                // load(PRODUCT[j*T:(j+1)*T] -> x)
                // load(LARGEST[] -> scale)
                // div(x, scale, x)
                // store(x -> V[j*T:(j+1)*T])
                const float scale = LARGEST[0];
                const float *const PRODUCT_row = PRODUCT + j_3 * T;
                float *const V_row = V + j_3 * T;
                #pragma omp simd
                for (int64_t lane = 0; lane < std::min<int64_t>(T, N - j_3 * T); ++lane) {
                    const float x_2 = PRODUCT_row[lane];
                    const float x_2_div = x_2 / scale;
                    V_row[lane] = x_2_div;
                }
            }
        }
    }
    return 0;
}
