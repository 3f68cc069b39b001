// conv_transpose2d: a C++ kernel for cpu, made from a sketch.

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

template <class T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
constexpr T floor_mod(T a, T b)
{
    return static_cast<T>(a - b * floor_div(a, b));
}
constexpr int64_t floor_mod(int64_t a, int b) { return floor_mod(a, int64_t{b}); }
constexpr int64_t floor_mod(int a, int64_t b) { return floor_mod(int64_t{a}, b); }

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
//    1  OH >= 0
//    2  OW >= 0
//    3  stride >= 1 and dilation >= 1 and padding >= 0 and output_padding >= 0
//    4  OH*OW >= 1
//    5  OW >= 1
//    6  OH >= 1
//    7  KH*KW >= 1
//    8  KW >= 1
//    9  KH >= 1
//   10  N >= 0 and C >= 0 and H >= 0 and W >= 0 and O >= 0 and KH >= 0 and KW >= 0
//   11  fewer than 2**48 elements in each tensor
//   12  integers that stay within 64 bits
extern "C" int64_t conv_transpose2d(
    const float *__restrict X, const float *__restrict WEIGHT, float *__restrict Y, int64_t N,
    int64_t C, int64_t H, int64_t W, int64_t O, int64_t KH, int64_t KW, int64_t stride, int64_t
    padding, int64_t output_padding, int64_t dilation)
{
    constexpr int64_t TP = 128;
    constexpr int64_t TO = 64;
    constexpr int64_t TK = 64;

    if (N < 0 || C < 0 || H < 0 || W < 0 || O < 0 || KH < 0 || KW < 0) {
        return 10;
    }
    if (stride < 1 || dilation < 1 || padding < 0 || output_padding < 0) {
        return 3;
    }
    if (KH * KW < 1) {
        return 7;
    }
    if (KW < 1) {
        return 8;
    }
    if (KH < 1) {
        return 9;
    }
    [[maybe_unused]] const int64_t OH = (H - 1) * stride - 2 * padding + dilation * (KH - 1) +
        output_padding + 1;
    if (OH < 0) {
        return 1;
    }
    if (OH < 1) {
        return 6;
    }
    [[maybe_unused]] const int64_t OW = (W - 1) * stride - 2 * padding + dilation * (KW - 1) +
        output_padding + 1;
    if (OW < 0) {
        return 2;
    }
    if (OH * OW < 1) {
        return 4;
    }
    if (OW < 1) {
        return 5;
    }
    if (sketch::too_large({N, C, H, W}) || sketch::too_large({C, O, KH, KW}) ||
        sketch::too_large({N, O, OH, OW})) {
        return 11;
    }
    if ((sketch::natural(H) * stride + sketch::natural(KH) * dilation + sketch::natural(KW) *
        dilation + sketch::natural(W) * stride + dilation + output_padding + sketch::natural(2) *
        padding + stride).reaches(UINT64_C(9223090561878065152))) {
        return 12;
    }
    {
        // Scratch memory of each thread.
        sketch::arena arena;
        const int64_t y_place = arena.add(sizeof(float), {TP, TO});
        const int64_t x_place = arena.add(sizeof(float), {TP, TK});
        const int64_t w_place = arena.add(sizeof(float), {TK, TO});
        const int64_t x_panels_place = arena.add(sizeof(float), {std::min<int64_t>(TK, 256), TP +
            16});
        const int64_t w_panels_place = arena.add(sizeof(float), {std::min<int64_t>(TK, 256), TO +
            64});
        if (!arena.allocate(omp_get_max_threads())) {
            return -1;
        }
        #pragma omp parallel
        {
            float *const __restrict y = arena.at<float>(y_place, omp_get_thread_num());
            float *const __restrict x = arena.at<float>(x_place, omp_get_thread_num());
            float *const __restrict w = arena.at<float>(w_place, omp_get_thread_num());
            float *const __restrict x_panels = arena.at<float>(x_panels_place,
                omp_get_thread_num());
            float *const __restrict w_panels = arena.at<float>(w_panels_place,
                omp_get_thread_num());
            #pragma omp for collapse(2) schedule(static)
            for (int64_t i = 0; i < sketch::ceil_div(N * OH * OW, TP); ++i) {
                for (int64_t j = 0; j < sketch::ceil_div(O, TO); ++j) {
                    // p = iota(TP, i*TP, N*OH*OW)
                    // n = p//(OH*OW)
                    // oh = p//OW % OH
                    // ow = p % OW
                    // o = iota(TO, j*TO, O)
                    for (int64_t row = 0; row < std::min<int64_t>(TP, N * OH * OW - i * TP);
                        ++row) {
                        // y = alloc([TP, TO], init=0.0)
                        float *const y_row = y + row * TO;
                        #pragma omp simd
                        for (int64_t lane = 0; lane < std::min<int64_t>(TO, O - j * TO); ++lane) {
                            y_row[lane] = 0.0f;
                        }
                    }
                    // for k0 in range(0, C*KH*KW, TK):
                    for (int64_t k0 = 0; k0 < C * KH * KW; k0 += TK) {
                        // k = iota(TK, k0, C*KH*KW)
                        // c = k//(KH*KW)
                        // kh = k//KW % KH
                        // kw = k % KW
                        // up = (oh+padding)[:, None] - (kh*dilation)[None, :]
                        // left = (ow+padding)[:, None] - (kw*dilation)[None, :]
                        // on_grid = up % stride == 0 and left % stride == 0
                        for (int64_t row = 0; row < std::min<int64_t>(TP, N * OH * OW - i * TP);
                            ++row) {
                            // load(X[n[:, None], c[None, :], up//stride, left//stride] -> x, pad=0, where=on_grid)
                            const int64_t part = sketch::floor_div(i * TP + row, OH * OW);
                            const int64_t part_2 = sketch::floor_mod(sketch::floor_div(i * TP + row,
                                OW), OH) + padding;
                            const int64_t part_3 = sketch::floor_mod(i * TP + row, OW) + padding;
                            float *const x_row = x + row * TK;
                            #pragma omp simd
                            for (int64_t lane = 0; lane < std::min<int64_t>(TK, C * KH * KW - k0);
                                ++lane) {
                                const int64_t X_index = sketch::floor_div(k0 + lane, KH * KW);
                                const int64_t X_index_2 = sketch::floor_div(part_2 -
                                    sketch::floor_mod(sketch::floor_div(k0 + lane, KW), KH) *
                                    dilation, stride);
                                const int64_t X_index_3 = sketch::floor_div(part_3 -
                                    sketch::floor_mod(k0 + lane, KW) * dilation, stride);
                                const float x_value = (sketch::floor_mod(part_2 -
                                    sketch::floor_mod(sketch::floor_div(k0 + lane, KW), KH) *
                                    dilation, stride) == 0 && sketch::floor_mod(part_3 -
                                    sketch::floor_mod(k0 + lane, KW) * dilation, stride) == 0 && 0
                                    <= X_index_2 && X_index_2 < H && 0 <= X_index_3 && X_index_3 <
                                    W) ? X[((part * C + X_index) * H + X_index_2) * W + X_index_3] :
                                    0.0f;
                                x_row[lane] = x_value;
                            }
                        }
                        for (int64_t row = 0; row < std::min<int64_t>(TK, C * KH * KW - k0);
                            ++row) {
                            // load(WEIGHT[c[:, None], o[None, :], kh[:, None], kw[:, None]] -> w)
                            const int64_t part = sketch::floor_div(k0 + row, KH * KW);
                            const int64_t part_2 = sketch::floor_mod(sketch::floor_div(k0 + row,
                                KW), KH);
                            const int64_t part_3 = sketch::floor_mod(k0 + row, KW);
                            float *const w_row = w + row * TO;
                            #pragma omp simd
                            for (int64_t lane = 0; lane < std::min<int64_t>(TO, O - j * TO);
                                ++lane) {
                                const float w_value = WEIGHT[((part * O + (j * TO + lane)) * KH +
                                    part_2) * KW + part_3];
                                w_row[lane] = w_value;
                            }
                        }
                        // gemm(x, w, y)
                        sketch::multiply(
                            std::min<int64_t>(TP, N * OH * OW - i * TP), std::min<int64_t>(TO, O - j
                                * TO), std::min<int64_t>(TK, C * KH * KW - k0),
                            sketch::matrix<const float>{x, TK, 1},
                            sketch::matrix<const float>{w, TO, 1},
                            sketch::matrix<float>{y, TO, 1},
                            x_panels, w_panels);
                    }
                    for (int64_t row = 0; row < std::min<int64_t>(TP, N * OH * OW - i * TP);
                        ++row) {
                        // store(y -> Y[n[:, None], o[None, :], oh[:, None], ow[:, None]])
                        const int64_t part = sketch::floor_div(i * TP + row, OH * OW);
                        const int64_t part_2 = sketch::floor_mod(sketch::floor_div(i * TP + row,
                            OW), OH);
                        const int64_t part_3 = sketch::floor_mod(i * TP + row, OW);
                        const float *const y_row_2 = y + row * TO;
                        #pragma omp simd
                        for (int64_t lane = 0; lane < std::min<int64_t>(TO, O - j * TO); ++lane) {
                            const float y_value = y_row_2[lane];
                            Y[((part * O + (j * TO + lane)) * OH + part_2) * OW + part_3] = y_value;
                        }
                    }
                }
            }
        }
    }
    return 0;
}
