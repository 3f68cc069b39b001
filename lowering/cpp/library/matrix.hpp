// The matrix product: packed panels and a register-blocked kernel in vector extensions.
//
// The scheme is that of Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication"
// (ACM TOMS 34(3), 2008): panels of both operands are packed contiguously (widened to the
// accumulator's type), and a block of rows by two vectors stays in registers along the depth.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

#include "numbers.hpp"

namespace sketch {

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

} // namespace sketch
