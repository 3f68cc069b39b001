// matmul_bias_gelu: a C++ kernel for cpu, made from a sketch.

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
SKETCH_VECTORS float erff(float x) noexcept;
SKETCH_VECTORS double erf(double x) noexcept;
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

// The larger; NaN wins. Only `larger` waits for `a`, the accumulator of a loop.
template <class T> inline T max(T a, T b)
{
    const T larger = b > a ? b : a;
    return b != b ? b : larger;
}
inline bool max(bool a, bool b) { return a || b; }

// The smaller; NaN wins. Only `smaller` waits for `a`, the accumulator of a loop.
template <class T> inline T min(T a, T b)
{
    const T smaller = b < a ? b : a;
    return b != b ? b : smaller;
}
inline bool min(bool a, bool b) { return a && b; }

inline float erf(float x) { return ::erff(x); }
inline double erf(double x) { return ::erf(x); }

// erf(x) = x * P(x^2) / Q(x^2) to 6 ulp (a weighted least-squares fit); beyond 3.92 it is 1, to the
// last bit: somebody multiplies 1 + erf(x) by a large number.
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
            // Blocks of 16 keep the panel's part in the first-level cache while lines are read.
            for (int64_t start = 0; start < depth; start += 16) {
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

// block_rows x two vectors of the product, in registers along the depth.
template <class T>
inline void multiply_block(const T *a, const T *b, int64_t depth, T *to, int64_t row)
{
    using vector = typename blocking<T>::vector;
    constexpr int64_t lanes = blocking<T>::lanes;
    vector sums[block_rows][2] = {};
    for (int64_t k = 0; k < depth; ++k) {
        vector first;
        vector second;
        std::memcpy(&first, b + k * 2 * lanes, sizeof first);
        std::memcpy(&second, b + k * 2 * lanes + lanes, sizeof second);
#pragma GCC unroll 16
        for (int64_t r = 0; r < block_rows; ++r) {
            sums[r][0] += a[k * block_rows + r] * first;
            sums[r][1] += a[k * block_rows + r] * second;
        }
    }
#pragma GCC unroll 16
    for (int64_t r = 0; r < block_rows; ++r) {
        vector old[2];
        std::memcpy(old, to + r * row, sizeof old);
        old[0] += sums[r][0];
        old[1] += sums[r][1];
        std::memcpy(to + r * row, old, sizeof old);
    }
}

// to += a @ b for a [rows, depth] and b [depth, columns]; `left` and `right` hold packed panels.
template <class T, class A, class B>
void multiply(int64_t rows, int64_t columns, int64_t depth, matrix<const A> a, matrix<const B> b,
              matrix<T> to, T *left, T *right)
{
    constexpr int64_t width = blocking<T>::columns;
    for (int64_t k = 0; k < depth; k += block_depth) {
        const int64_t part = std::min(block_depth, depth - k);
        pack<block_rows>(matrix<const A>{a.data + k * a.column, a.row, a.column}, rows, part,
                         left);
        pack<width>(matrix<const B>{b.data + k * b.row, b.column, b.row}, columns, part, right);
        for (int64_t c = 0; c < columns; c += width) {
            for (int64_t r = 0; r < rows; r += block_rows) {
                T *const target = to.data + r * to.row + c;
                const int64_t high = std::min(block_rows, rows - r);
                const int64_t wide = std::min(width, columns - c);
                if (high == block_rows && wide == width) {
                    multiply_block(left + r * part, right + c * part, part, target, to.row);
                    continue;
                }
                alignas(64) T edge[block_rows * width] = {};
                multiply_block(left + r * part, right + c * part, part, edge, width);
                for (int64_t i = 0; i < high; ++i) {
                    for (int64_t j = 0; j < wide; ++j) {
                        target[i * to.row + j] += edge[i * width + j];
                    }
                }
            }
        }
    }
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

// Returns 0 when done, -1 when memory could not be had, and otherwise, before anything is
// written, the number of the condition that does not hold:
//   1  M >= 0 and N >= 0 and K >= 0
//   2  fewer than 2**48 elements in each tensor
extern "C" int64_t matmul_bias_gelu(
    const float *__restrict X, const float *__restrict W, const float *__restrict BIAS, float
    *__restrict Y, int64_t M, int64_t N, int64_t K)
{
    constexpr int64_t TM = 128;
    constexpr int64_t TN = 128;
    constexpr int64_t TK = 256;

    if (M < 0 || N < 0 || K < 0) {
        return 1;
    }
    if (sketch::too_large({M, K}) || sketch::too_large({N, K}) || sketch::too_large({M, N})) {
        return 2;
    }
    const bool Y_streams = sketch::streams(sizeof(float), {M, N});
    {
        // Scratch memory of each thread.
        sketch::arena arena;
        const int64_t y_place = arena.add(sizeof(float), {TM, TN});
        const int64_t x_panels_place = arena.add(sizeof(float), {std::min<int64_t>(TK, 256), TM +
            16});
        const int64_t w_panels_place = arena.add(sizeof(float), {std::min<int64_t>(TK, 256), TN +
            64});
        if (!arena.allocate(omp_get_max_threads())) {
            return -1;
        }
        #pragma omp parallel
        {
            float *const __restrict y = arena.at<float>(y_place, omp_get_thread_num());
            float *const __restrict x_panels = arena.at<float>(x_panels_place,
                omp_get_thread_num());
            float *const __restrict w_panels = arena.at<float>(w_panels_place,
                omp_get_thread_num());
            #pragma omp for collapse(2) schedule(static)
            for (int64_t i = 0; i < sketch::ceil_div(M, TM); ++i) {
                for (int64_t j = 0; j < sketch::ceil_div(N, TN); ++j) {
                    for (int64_t row = 0; row < std::min<int64_t>(TM, M - i * TM); ++row) {
                        // y = alloc([TM, TN], init=0.0)
                        float *const y_row = y + row * TN;
                        #pragma omp simd
                        for (int64_t lane = 0; lane < std::min<int64_t>(TN, N - j * TN); ++lane) {
                            y_row[lane] = 0.0f;
                        }
                    }
                    // for k in range(ceil(K, TK)):
                    for (int64_t k = 0; k < sketch::ceil_div(K, TK); ++k) {
                        // load(X[i*TM:(i+1)*TM, k*TK:(k+1)*TK] -> x)
                        // load(W[j*TN:(j+1)*TN, k*TK:(k+1)*TK] -> w)
                        // gemm(x, w, y, trans_b=True)
                        sketch::multiply(
                            std::min<int64_t>(TM, M - i * TM), std::min<int64_t>(TN, N - j * TN),
                                std::min<int64_t>(TK, K - k * TK),
                            sketch::matrix<const float>{X + K * TM * i + TK * k, K, 1},
                            sketch::matrix<const float>{W + K * TN * j + TK * k, 1, K},
                            sketch::matrix<float>{y, TN, 1},
                            x_panels, w_panels);
                    }
                    for (int64_t row = 0; row < std::min<int64_t>(TM, M - i * TM); ++row) {
                        // load(BIAS[j*TN:(j+1)*TN] -> bias)
                        // add(y, bias, y)
                        // gelu(y, y)
                        // store(y -> Y[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
                        const float *const y_row_2 = y + row * TN;
                        const float *const BIAS_row = BIAS + j * TN;
                        for (int64_t block = 0; block < std::min<int64_t>(TN, N - j * TN); block +=
                            1024) {
                            const int64_t block_end = std::min<int64_t>(std::min<int64_t>(TN, N - j
                                * TN), block + 1024);
                            alignas(64) float Y_block[1024];
                            float *const Y_row = Y_streams ? Y_block : Y + ((i * TM + row) * N + j *
                                TN + block);
                            #pragma omp simd
                            for (int64_t lane = block; lane < block_end; ++lane) {
                                const float y_value = y_row_2[lane];
                                const float bias = BIAS_row[lane];
                                const float y_value_2 = y_value + bias;
                                const float y_value_3 = sketch::gelu(y_value_2);
                                Y_row[lane - block] = y_value_3;
                            }
                            if (Y_streams) {
                                sketch::stream(Y + ((i * TM + row) * N + j * TN + block), Y_block,
                                    block_end - block);
                            }
                        }
                    }
                }
            }
            sketch::end_streams();
        }
    }
    return 0;
}
