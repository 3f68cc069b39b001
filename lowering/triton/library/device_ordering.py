"""Device functions of argmax, argmin, sort and topk; `library` reads this file as text.

Values are ordered by integer keys, of which the smaller comes first: comparisons of integers have
no NaN and no zero with a sign, and both Triton targets and the interpreter agree on them.
"""

# mypy: ignore-errors

import triton
import triton.language as tl

from sketchc.lowering.triton.library.functions import nan_maximum, nan_minimum


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
    """(key, tie, lane) of the first entry along AXIS among those alive, each with an extent of 1
    there; the lane is key.shape[AXIS] where none is."""
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
    """The COUNT first words and ties of the source and of the old best together, one by one.

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
    """The first words and ties of the source and of the old best together, by one sort.

    `lanes` numbers a power of two of lanes with room for both. Void entries have the last key and
    the last tie; the old best has more entries than are wanted, all in front of them.
    """
    keys = joined(top_key, key, lanes, LAST_KEY, AXIS, WORDS)
    ties = joined(top_tie, tie, lanes, LAST_TIE, AXIS, WORDS)
    words = joined(top_word, word, lanes, 0, AXIS, WORDS)
    order = take(sorted_lanes(keys, ties, lanes, AXIS, True, WORDS), top_lanes, AXIS, WORDS)
    return take(words, order, AXIS, WORDS), take(ties, order, AXIS, WORDS)
