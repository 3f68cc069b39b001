"""Device functions that generated kernels carry with them, first half: those that work across the
lanes of a tile. `python_host.library` reads this file, and `device_functions.py` after it.

Only `triton.language` primitives that run under Triton's interpreter, on CUDA and on Ascend (no
libdevice).
"""

# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def nan_maximum(a, b):
    """The larger of a and b; NaN if one of them is NaN."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def nan_minimum(a, b):
    """The smaller of a and b; NaN if one of them is NaN."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def product(a, b):
    """The combine function of a product over an axis."""
    return a * b


@triton.jit
def lanes_along(a, AXIS: tl.constexpr):
    """The numbers of the lanes along an axis, an i32 that broadcasts with a."""
    lanes = tl.arange(0, a.shape[AXIS])
    for axis in tl.static_range(len(a.shape)):
        if axis != AXIS:
            lanes = tl.expand_dims(lanes, axis)
    return lanes


@triton.jit
def integer_product(a, AXIS: tl.constexpr):
    """The product over an axis: Triton-Ascend takes integer sums, but no integer products."""
    lanes = lanes_along(a, AXIS)
    result = tl.sum(tl.where(lanes == 0, a, 0), axis=AXIS)
    for lane in range(1, a.shape[AXIS]):
        result *= tl.sum(tl.where(lanes == lane, a, 0), axis=AXIS)
    return result


@triton.jit
def mantissa_and_exponent(x, DOUBLE: tl.constexpr):
    """An f32, or f64 (DOUBLE), as a number from 1 to 2 and a power of two; a 0, infinity or NaN as
    it is, and 0."""
    if DOUBLE:
        tiny = tl.abs(x) < 2.2250738585072014e-308
        bits = tl.where(tiny, x * 18014398509481984.0, x).to(tl.int64, bitcast=True)
        exponent = ((bits >> 52) & 2047).to(tl.int32) - tl.where(tiny, 1077, 1023)
        size = (bits & -9218868437227405313) | 0x3FF0000000000000
        size = size.to(tl.float64, bitcast=True)
    else:
        tiny = tl.abs(x) < 1.1754943508222875e-38
        bits = tl.where(tiny, x * 16777216.0, x).to(tl.int32, bitcast=True)
        exponent = ((bits >> 23) & 255) - tl.where(tiny, 151, 127)
        size = ((bits & -2139095041) | 0x3F800000).to(tl.float32, bitcast=True)
    regular = (x != 0) & (tl.abs(x) < float("inf"))
    return tl.where(regular, size, x), tl.where(regular, exponent, 0)


@triton.jit
def times_power(x, exponent, DOUBLE: tl.constexpr):
    """x * 2**exponent, rounded once where x is within 1/16 and 16."""
    if DOUBLE:
        exponent = tl.minimum(tl.maximum(exponent, -2044), 2046).to(tl.int64)
        half = exponent >> 1
        x *= ((half + 1023) << 52).to(tl.float64, bitcast=True)
        x *= ((exponent - half + 1023) << 52).to(tl.float64, bitcast=True)
    else:
        exponent = tl.minimum(tl.maximum(exponent, -252), 254)
        half = exponent >> 1
        x *= ((half + 127) << 23).to(tl.float32, bitcast=True)
        x *= ((exponent - half + 127) << 23).to(tl.float32, bitcast=True)
    return x


@triton.jit
def near_products(x, AXIS: tl.constexpr, REVERSE: tl.constexpr):
    """`running_product` of f64 along an axis of at most 1,024 lanes: products of so many numbers
    from 3/4 to 3/2 stay within the range. Few tiles have a product that leaves it at all."""
    size, exponent = mantissa_and_exponent(x, True)
    high = (tl.abs(size) >= 1.5) & (tl.abs(size) < 2.0)
    size = tl.cumprod(tl.where(high, size * 0.5, size), AXIS, reverse=REVERSE)
    exponent = tl.cumsum(exponent + high.to(tl.int32), AXIS, reverse=REVERSE)
    own = ((size.to(tl.int64, bitcast=True) >> 52) & 2047).to(tl.int32) - 1023
    reached = tl.where((size != 0) & (own < 1024), own + exponent, 0)
    if tl.max(tl.abs(reached)) > 1023:
        left = (reached > 1023) | (reached < -1075)
        count = tl.cumsum(left.to(tl.int32), AXIS, reverse=REVERSE)
        first = left & (count == 1) & (reached > 0)
        infinite = tl.cumsum(first.to(tl.int32), AXIS, reverse=REVERSE)
        end = tl.where(infinite > 0, float("inf"), 0.0)
        size = tl.where(count == 0, size, size * end)
    return times_power(size, exponent, True)


@triton.jit
def running_product(x, AXIS: tl.constexpr, REVERSE: tl.constexpr, DOUBLE: tl.constexpr):
    """Running products of f32, or f64 (DOUBLE), along an axis. `tl.cumprod` may multiply pairs of
    lanes, which may overflow where no product from the first lane on does, and f32 overflows where
    f64, in which the language defines it, does not; so exponents are summed apart, and of what is
    left, a power of two is taken wherever the sum of its logarithms has reached the next whole
    number: products stay near 1. One that leaves the range of f64 stays 0 or infinite."""
    if DOUBLE and x.shape[AXIS] <= 1024:
        running = near_products(x, AXIS, REVERSE)
    else:
        size, exponent = mantissa_and_exponent(x, DOUBLE)
        regular = (size != 0) & (tl.abs(size) < float("inf"))
        # Of 12 bits of a logarithm f32 has twice as many, and its logarithm is one instruction.
        magnitude = tl.where(regular, tl.abs(size), 1.0).to(tl.float32)
        part = (tl.log2(magnitude) * 4096.0).to(tl.int32)
        total = tl.cumsum(part, AXIS, reverse=REVERSE)
        doubled = (total >> 12) - ((total - part) >> 12)
        size = tl.cumprod(times_power(size, -doubled, DOUBLE), AXIS, reverse=REVERSE)
        exponent = tl.cumsum(exponent + doubled, AXIS, reverse=REVERSE)
        left = (
            (size != 0) & (tl.abs(size) < float("inf")) & ((exponent > 1023) | (exponent < -1075))
        )
        count = tl.cumsum(left.to(tl.int32), AXIS, reverse=REVERSE)
        first = left & (count == 1) & (exponent > 0)
        infinite = tl.cumsum(first.to(tl.int32), AXIS, reverse=REVERSE)
        end = tl.where(infinite > 0, float("inf"), 0.0)
        running = tl.where(count == 0, times_power(size, exponent, DOUBLE), size * end)
    return running


@triton.jit
def whole_product(x, AXIS: tl.constexpr, DOUBLE: tl.constexpr):
    """The product of f32, or f64 (DOUBLE), over an axis, as the last running one: `tl.reduce`
    multiplies pairs."""
    running = running_product(x, AXIS, False, DOUBLE)
    last = lanes_along(x, AXIS) == x.shape[AXIS] - 1
    return tl.sum(tl.where(last, running, 0.0), AXIS)


@triton.jit
def product_sum(a, b):
    """The sum of a * b over axis 1. The added zero keeps Triton from fusing product and
    sum into a tf32 dot, which is less exact, and wrong below its smallest depth."""
    return tl.sum(a * b + 0.0, axis=1)


@triton.jit
def looped_product(a, b):
    """a @ b as a sum of outer products, of one column of a and one row of b at a time."""
    columns = tl.arange(0, a.shape[1])[None, :]
    rows = tl.arange(0, b.shape[0])[:, None]
    result = tl.sum(tl.where(columns == 0, a, 0), axis=1)[:, None]
    result = result * tl.sum(tl.where(rows == 0, b, 0), axis=0)[None, :]
    for k in range(1, a.shape[1]):
        column = tl.sum(tl.where(columns == k, a, 0), axis=1)[:, None]
        result += column * tl.sum(tl.where(rows == k, b, 0), axis=0)[None, :]
    return result


@triton.jit
def bfloat16_parts(x):
    """Three numbers in bf16 whose sum is an f32: the leading bits, never rounded up to infinity,
    and what they leave, twice. The sum is exact from 2**-110 on, below within 2**-134."""
    bits = (x + 0.0).to(tl.uint32, bitcast=True)  # NaN has its leading bit set
    leading = (bits & 0xFFFF0000).to(tl.float32, bitcast=True)
    rest = x - leading
    middle = rest.to(tl.bfloat16)
    last = (rest - middle.to(tl.float32)).to(tl.bfloat16)
    return leading.to(tl.bfloat16), middle, last


@triton.jit
def split_product(a, b):
    """a @ b of f32, by six products of parts in bf16; those left out are at most 2**-22 of |a| @
    |b|. Matrix units drop the bits that a sum has no room for, always towards 0: the caller adds
    what this returns, rounded, to the sum. Infinity and NaN are those of the leading parts: the
    rest of infinity is NaN."""
    a_leading, a_middle, a_last = bfloat16_parts(a)
    b_leading, b_middle, b_last = bfloat16_parts(b)
    result = tl.dot(a_last, b_leading)
    result = tl.dot(a_leading, b_last, result)
    result = tl.dot(a_middle, b_middle, result)
    result = tl.dot(a_middle, b_leading, result)
    result = tl.dot(a_leading, b_middle, result)
    result = tl.where(result == result, result, 0.0)
    return tl.dot(a_leading, b_leading, result)


@triton.jit
def take(x, index, AXIS: tl.constexpr, WORDS: tl.constexpr):
    """x (f32, f64, i32 or i64) at the lanes `index` of AXIS.

    WORDS: the target gathers floats of up to 32 bits only; integers travel as such words.
    """
    if WORDS:
        if x.dtype == tl.int64:
            low = x.to(tl.int32).to(tl.float32, bitcast=True)
            high = (x >> 32).to(tl.int32).to(tl.float32, bitcast=True)
            low = tl.gather(low, index, AXIS).to(tl.int32, bitcast=True).to(tl.int64)
            high = tl.gather(high, index, AXIS).to(tl.int32, bitcast=True).to(tl.int64)
            result = (high << 32) | (low & 0xFFFFFFFF)
        elif x.dtype == tl.int32:
            words = x.to(tl.float32, bitcast=True)
            result = tl.gather(words, index, AXIS).to(tl.int32, bitcast=True)
        else:
            result = tl.gather(x, index, AXIS)
    else:
        result = tl.gather(x, index, AXIS)
    return result


@triton.jit
def float_key(x):
    """Integers in the order of the floats x; both zeros are 0, and NaN is the largest."""
    bits = x.to(tl.int32, bitcast=True)
    key = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return tl.where(x == 0, 0, tl.where(x != x, 0x7FFFFFFF, key))


@triton.jit
def double_key(x):
    """Integers in the order of the doubles x; both zeros are 0, and NaN is the largest."""
    bits = x.to(tl.int64, bitcast=True)
    key = bits ^ ((bits >> 63) & 0x7FFFFFFFFFFFFFFF)
    return tl.where(x == 0, 0, tl.where(x != x, 0x7FFFFFFFFFFFFFFF, key))


@triton.jit
def float_extremum_lane(x, lanes, AXIS: tl.constexpr, LARGEST: tl.constexpr):
    """The first lane of AXIS with the largest (else smallest) value, where NaN wins.

    Void lanes hold the worst value and the lane number x.shape[AXIS]; -1 where all are void.
    """
    best = tl.reduce(x, AXIS, nan_maximum) if LARGEST else tl.reduce(x, AXIS, nan_minimum)
    hit = (x == tl.expand_dims(best, AXIS)) | (x != x)
    found = tl.min(tl.where(hit, lanes, x.shape[AXIS]), axis=AXIS)
    return tl.where(found == x.shape[AXIS], -1, found)


@triton.jit
def integer_extremum_lane(x, lanes, AXIS: tl.constexpr, LARGEST: tl.constexpr):
    """As `float_extremum_lane`, for integers."""
    best = tl.max(x, axis=AXIS) if LARGEST else tl.min(x, axis=AXIS)
    hit = x == tl.expand_dims(best, AXIS)
    found = tl.min(tl.where(hit, lanes, x.shape[AXIS]), axis=AXIS)
    return tl.where(found == x.shape[AXIS], -1, found)


@triton.jit
def sorted_lanes(key, tie, lanes, AXIS: tl.constexpr, TIES: tl.constexpr, WORDS: tl.constexpr):
    """The lanes of AXIS in the order of (key, tie, lane), by a bitonic network.

    `lanes` numbers the lanes of key's shape, a power of two along AXIS. TIES: `tie` matters.
    """
    place = lanes
    for stage in tl.static_range(20):
        if (2 << stage) <= key.shape[AXIS]:
            for step in range(stage + 1):
                distance = (1 << stage) >> step
                partner = lanes ^ distance
                other = take(key, partner, AXIS, WORDS)
                other_place = take(place, partner, AXIS, WORDS)
                before = other_place < place
                if TIES:
                    other_tie = take(tie, partner, AXIS, WORDS)
                    before = (other_tie < tie) | ((other_tie == tie) & before)
                before = (other < key) | ((other == key) & before)
                # Runs of twice the distance rise and fall in turn.
                keeps_first = ((lanes & distance) == 0) == ((lanes & (2 << stage)) == 0)
                swap = before == keeps_first
                key = tl.where(swap, other, key)
                place = tl.where(swap, other_place, place)
                if TIES:
                    tie = tl.where(swap, other_tie, tie)
    return place


@triton.jit
def unsigned_order(x, LAST: tl.constexpr):
    """Signed numbers in the order of x read as unsigned, where -1 is the largest; the inverse is
    the function itself. LAST is the largest number of x's type."""
    return x - LAST - 1


@triton.jit
def first_lane(
    key,
    tie,
    alive,
    lanes,
    LAST_KEY: tl.constexpr,
    LAST_TIE: tl.constexpr,
    AXIS: tl.constexpr,
):
    """(key, tie, lane) of the first entry along AXIS that is alive, as tiles with an extent of 1
    along AXIS; the lane is key.shape[AXIS] where no entry is alive."""
    best = tl.expand_dims(tl.min(tl.where(alive != 0, key, LAST_KEY), axis=AXIS), AXIS)
    hit = (alive != 0) & (key == best)
    best_tie = tl.expand_dims(tl.min(tl.where(hit, tie, LAST_TIE), axis=AXIS), AXIS)
    hit = hit & (tie == best_tie)
    lane = tl.min(tl.where(hit, lanes, key.shape[AXIS]), axis=AXIS)
    return best, best_tie, tl.expand_dims(lane, AXIS)


@triton.jit
def select_top(
    key,
    tie,
    word,
    alive,
    lanes,
    top_key,
    top_tie,
    top_word,
    top_alive,
    top_lanes,
    COUNT,
    LAST_KEY: tl.constexpr,
    LAST_TIE: tl.constexpr,
    AXIS: tl.constexpr,
):
    """The COUNT first words and ties of the source and the old best (top_*), selected one by one.

    An entry is alive (1) until it is taken; void ones are 0 from the start.
    """
    words, ties = top_word, top_tie
    for position in range(COUNT):
        best, best_tie, lane = first_lane(key, tie, alive, lanes, LAST_KEY, LAST_TIE, AXIS)
        old, old_tie, old_lane = first_lane(
            top_key, top_tie, top_alive, top_lanes, LAST_KEY, LAST_TIE, AXIS
        )
        fresh = (best < old) | ((best == old) & (best_tie < old_tie))
        hit = fresh & (lanes == lane)
        old_hit = (fresh == 0) & (top_lanes == old_lane)
        value = tl.sum(tl.where(hit, word, 0), axis=AXIS)
        value += tl.sum(tl.where(old_hit, top_word, 0), axis=AXIS)
        here = top_lanes == position
        words = tl.where(here, tl.expand_dims(value, AXIS).to(words.dtype), words)
        ties = tl.where(here, tl.where(fresh, best_tie, old_tie), ties)
        alive = tl.where(hit, 0, alive)
        top_alive = tl.where(old_hit, 0, top_alive)
    return words, ties


@triton.jit
def joined(top, x, lanes, LAST: tl.constexpr, AXIS: tl.constexpr, WORDS: tl.constexpr):
    """The lanes of `top`, then those of x, then LAST, along AXIS; `lanes` numbers the result."""
    count = top.shape[AXIS]
    behind = tl.minimum(tl.maximum(lanes - count, 0), x.shape[AXIS] - 1)
    rest = take(x, behind, AXIS, WORDS)
    rest = tl.where(lanes < count + x.shape[AXIS], rest, LAST)
    front = take(top, tl.minimum(lanes, count - 1), AXIS, WORDS)
    return tl.where(lanes < count, front, rest)


@triton.jit
def merge_top(
    key,
    tie,
    word,
    top_key,
    top_tie,
    top_word,
    lanes,
    top_lanes,
    LAST_KEY: tl.constexpr,
    LAST_TIE: tl.constexpr,
    AXIS: tl.constexpr,
    WORDS: tl.constexpr,
):
    """The first words and ties of the source and the old best (top_*), by one sort of both.

    `lanes` numbers a power of two of lanes with room for both. Void entries have the last key and
    the last tie; the old best has more entries than are wanted, all in front of them.
    """
    keys = joined(top_key, key, lanes, LAST_KEY, AXIS, WORDS)
    ties = joined(top_tie, tie, lanes, LAST_TIE, AXIS, WORDS)
    words = joined(top_word, word, lanes, 0, AXIS, WORDS)
    order = take(sorted_lanes(keys, ties, lanes, AXIS, True, WORDS), top_lanes, AXIS, WORDS)
    return take(words, order, AXIS, WORDS), take(ties, order, AXIS, WORDS)
