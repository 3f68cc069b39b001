// The factors of a block's matrix product, its sums, and the steps in which they are added up.
#pragma once

#include <cstdint>

#include "block.hpp"

namespace sketch {

// Where the first element of a matrix lies in a tensor: along the axes of its rows and columns, and
// along those between the two and before them, as if they were one axis each.
struct window {
    int64_t row;
    int64_t column;
    int64_t between;
    int64_t before;
};

// The operands of a product, from its first element on, and its extents; their windows where the
// tensors have maps.
template <class L, class R> struct factors {
    int64_t rows;
    int64_t columns;
    int64_t depth;
    matrix<const L> left;
    matrix<const R> right;
    window left_at{};
    window right_at{};
};

// The same product from a row and a column on.
template <class L, class R>
__device__ inline factors<L, R> factors_from(factors<L, R> whole, int64_t row, int64_t column)
{
    whole.rows -= row;
    whole.columns -= column;
    whole.left.data += row * whole.left.row;
    whole.right.data += column * whole.right.column;
    whole.left_at.row += row;
    whole.right_at.column += column;
    return whole;
}

// Sums begin with the elements of a matrix, or at 0 where they are `begun`, and end there.
template <class S, bool begun> struct sums_in {
    using type = S;
    static constexpr int width = 2;
    static constexpr bool whole = true;
    matrix<S> to;
    __device__ S start(int64_t row, int64_t column) const
    {
        return begun ? S{0} : to.data[row * to.row + column * to.column];
    }
    // Takes a thread's sums of neighbouring columns, of which so many are left in the row.
    template <int count, class Left>
    __device__ void take(int64_t row, int64_t column, Left left, const lanes<S, count> &sums) const
    {
        S *const place = to.data + row * to.row + column * to.column;
#pragma unroll
        for (int part = 0; part < count; ++part) {
            if (part < left) {
                place[part * to.column] = sums[part];
            }
        }
    }
};

// Sums begin at 0, and `use` takes a thread's sums of neighbouring columns, `wide` of which may be read
// and written at once in all rows if they are `whole`.
template <class S, int wide, class F> struct sums_used {
    using type = S;
    static constexpr int width = wide;
    bool whole;
    F use;
    __device__ S start(int64_t, int64_t) const { return S{0}; }
    template <int count, class Left>
    __device__ void take(int64_t row, int64_t column, Left left, const lanes<S, count> &sums) const
    {
        if (0 < left) {
            use(row, column, left, sums);
        }
    }
};

template <class S, int wide, class F>
__device__ inline sums_used<S, wide, F> sums_for(bool whole, F use)
{
    return {whole, use};
}

// From pairs of neighbouring columns that a thread has in `count` tiles of eight columns, all that the
// four threads of a row have in one of them, or a half of it: they exchange the others.
template <int count> __device__ inline lanes<float, 2 * count> gathered(const float *const *pairs)
{
    if constexpr (count == 1) {
        return {pairs[0][0], pairs[0][1]};
    } else {
        const auto low = gathered<count / 2>(pairs);
        const auto high = gathered<count / 2>(pairs + count / 2);
        const bool upper = (threadIdx.x & (count / 2)) != 0;
        lanes<float, 2 * count> found;
#pragma unroll
        for (int part = 0; part < count; ++part) {
            const float sent = upper ? low[part] : high[part];
            const float got = __shfl_xor_sync(0xffffffffU, sent, count / 2);
            found[part] = upper ? got : low[part];
            found[count + part] = upper ? high[part] : got;
        }
        return found;
    }
}

// The sums of a thread as matrix units leave them: in `blocks` of 16 rows, `step` rows apart, it has two
// rows, and in them two neighbouring columns in each of so many tiles of eight. `pair` gives the two, by
// block, row and tile. The first of them lie `top` and `first` behind the block's first sum.
template <int blocks, int step, int tiles, class Pair> struct sums_in_tiles {
    int64_t rows;
    int64_t columns;
    int64_t block_row;
    int64_t block_column;
    int top;
    int first;
    Pair pair;
    __device__ int row(int block, int lower) const
    {
        return top + block * step + lower * 8 + threadIdx.x % 32 / 4;
    }
    // The column of a thread's first sum in `count` tiles, of which it has one or a part.
    template <int count> __device__ int column(int tile) const
    {
        const int place = threadIdx.x % 4;
        return first + tile * 8 + place % count * 8 + place / count * 2 * count;
    }
    template <class To> __device__ void begin(const To &to) const
    {
#pragma unroll
        for (int part = 0; part < blocks * tiles * 2; ++part) {
            const int block = part / 2 / tiles, tile = part / 2 % tiles;
            const int64_t down = row(block, part % 2), across = column<1>(tile);
            const int64_t left = down < rows ? columns - across : 0;
            float *const two = pair(block, part % 2, tile);
            two[0] = left > 0 ? to.start(block_row + down, block_column + across) : 0.0F;
            two[1] = left > 1 ? to.start(block_row + down, block_column + across + 1) : 0.0F;
        }
    }
    // Lets `to` take the sums of `count` tiles at a time.
    template <int count, bool complete, class To> __device__ void give(const To &to) const
    {
#pragma unroll
        for (int part = 0; part < blocks * tiles * 2 / count; ++part) {
            const int block = part / 2 / (tiles / count), tile = part / 2 % (tiles / count) * count;
            const int64_t down = row(block, part % 2), across = column<count>(tile);
            const float *pairs[count];
#pragma unroll
            for (int each = 0; each < count; ++each) {
                pairs[each] = pair(block, part % 2, tile + each);
            }
            const auto sums = gathered<count>(pairs);
            if constexpr (complete) {
                to.take(block_row + down, block_column + across, enough{}, sums);
            } else {
                const int64_t left = down < rows ? columns - across : 0;
                to.take(block_row + down, block_column + across, left, sums);
            }
        }
    }
    // The same, of as many as may be read and written at once, if all sums exist.
    template <class To> __device__ void end(const To &to, bool complete) const
    {
        constexpr int count = To::width > 2 && tiles % (To::width / 2) == 0 ? To::width / 2 : 1;
        if (complete && to.whole) {
            give<count, true>(to);
        } else {
            give<1, false>(to);
        }
    }
};

template <int blocks, int step, int tiles, class L, class R, class Pair>
__device__ inline sums_in_tiles<blocks, step, tiles, Pair>
in_tiles(const factors<L, R> &now, int64_t row, int64_t column, int top, int first, Pair pair)
{
    return {now.rows, now.columns, row, column, top, first, pair};
}

// Steps along the depth of the products of several turns, one after the other; `at` gives a turn's,
// which is one step where turns are `single`.
template <bool single, class L, class R, class At> struct product_steps {
    int64_t turns;
    At at;
    int64_t row;
    int64_t column;
    int64_t turn;
    factors<L, R> now;
    // Goes to a turn of which some depth is left; false where there is none.
    __device__ bool find()
    {
        if constexpr (single) {
            if (turn < turns) {
                now = factors_from(at(turn), row, column);
            }
        } else {
            while (turn < turns && now.depth <= 0) {
                if (++turn < turns) {
                    now = factors_from(at(turn), row, column);
                }
            }
        }
        return turn < turns;
    }
    // Goes on along the depth.
    __device__ void take(int depth)
    {
        if constexpr (single) {
            ++turn;
        } else {
            now.depth -= depth;
            now.left.data += depth * now.left.column;
            now.right.data += depth * now.right.row;
            now.left_at.column += depth;
            now.right_at.row += depth;
        }
    }
};

} // namespace sketch
