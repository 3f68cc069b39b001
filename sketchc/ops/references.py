"""Reference semantics of the less trivial operations, as functions of the NumPy module.

They take and return float64 (or int64 / bool) arrays of any shape; the op table refers to them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Array = Any
Reference = Callable[..., Array]


def erf(np: Any, x: Array) -> Array:
    """The error function."""
    import math

    return np.vectorize(math.erf, otypes=[np.float64])(x)


def where_positive(np: Any, x: Array, other: Array) -> Array:
    """`x` where it is above 0 or NaN, else `other`."""
    return np.where(np.isnan(x), x, np.where(x > 0, x, other))


def softplus(np: Any, x: Array) -> Array:
    """log(1 + exp(x)); beyond 30 that is `x`."""
    return np.where(x > 30, x, np.log1p(np.exp(np.minimum(x, 30))))


SELU_SCALE = 1.0507009873554804934193349852946
SELU_ALPHA = 1.6732632423543772848170429916717


def to_integral(name: str) -> Reference:
    """A rounding function of NumPy; integers are left alone, also beyond 2**53."""
    return lambda np, x: x if x.dtype.kind in "iub" else getattr(np, name)(x)


def over_axes(name: str) -> Reference:
    """The reduction of NumPy called `name`; the reduced axes are kept with extent 1."""
    return lambda np, x, axis: getattr(np, name)(x, axis=axis, keepdims=True)


def clamp(np: Any, x: Array, low: Any = None, high: Any = None) -> Array:
    """`x` limited to `low` and `high`, which are first clamped to the range of an integer `x`."""
    lowest = x if low is None else np.maximum(x, _held(np, low, x.dtype))
    return lowest if high is None else np.minimum(lowest, _held(np, high, x.dtype))


def _held(np: Any, bound: Any, dtype: Any) -> Array:
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        bound = min(max(int(bound), limits.min), limits.max)
    return np.asarray(bound).astype(dtype)


def sigmoid(np: Any, x: Array) -> Array:
    """1 / (1 + exp(-x))."""
    return 1.0 / (1.0 + np.exp(-x))


def gelu(np: Any, x: Array, approximate: str = "none") -> Array:
    """x * Phi(x), or its approximation by tanh."""
    if approximate == "tanh":
        return 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1.0 + erf(np, x / np.sqrt(2.0)))


def scan(
    function: Callable[..., Array],
    start: int,
    np: Any,
    x: Array,
    axis: int,
    reverse: bool = False,
    exclusive: bool = False,
) -> Array:
    """`np.cumsum` or `np.cumprod` in the type of `x`: narrow integers wrap, they do not widen."""
    source = np.flip(x, axis) if reverse else x
    result = function(source, axis=axis, dtype=x.dtype)
    if exclusive and x.shape[axis]:
        kept = np.take(result, range(x.shape[axis] - 1), axis)
        first = np.full_like(np.take(result, [0], axis), start)
        result = np.concatenate((first, kept), axis)
    return np.flip(result, axis) if reverse else result


def sort(
    np: Any, values: Array, indices: Array, axis: int, descending: bool = False
) -> tuple[Array, Array]:
    """`values` sorted along `axis`, with `indices` in that order. The sort is stable in both
    directions; NaN is the largest value, as in NumPy."""
    source = np.flip(values, axis) if descending else values
    order = np.argsort(source, axis=axis, kind="stable")
    if descending:
        order = values.shape[axis] - 1 - np.flip(order, axis)
    return (
        np.take_along_axis(values, order, axis),
        np.take_along_axis(np.broadcast_to(indices, values.shape), order, axis),
    )


def rank(
    np: Any,
    values: Array,
    indices: Array,
    others: Array,
    their_indices: Array,
    axis: int,
    descending: bool = False,
) -> Array:
    """How many of `others` come before each of `values` along `axis` in the order of `sort`, the
    smaller index first where they are equal (i64)."""
    one, mine = (np.moveaxis(np.broadcast_to(a, values.shape), axis, -1) for a in (values, indices))
    two, theirs = (
        np.moveaxis(np.broadcast_to(a, others.shape), axis, -1) for a in (others, their_indices)
    )
    value, other = one[..., :, None], two[..., None, :]
    small, large = (value, other) if descending else (other, value)
    before = (small < large) | (np.isnan(large) & ~np.isnan(small))
    tied = (small == large) | (np.isnan(large) & np.isnan(small))
    first = theirs[..., None, :] < mine[..., :, None]
    return np.moveaxis((before | (tied & first)).sum(-1), -1, axis)


def topk(
    np: Any, values: Array, indices: Array, axis: int, largest: bool = True
) -> tuple[Array, Array]:
    """All `values` with their `indices` (i64), best first; the caller keeps the K first.

    Ties go to the smaller index. Read as unsigned, the negative index of a place that is not yet
    filled is larger than all others, so that a real -inf is preferred to such a place.
    """
    ranks = np.ascontiguousarray(indices).view(np.uint64)
    missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, np.bool_)
    if values.dtype.kind == "f":
        keys = np.where(missing, 0.0, values)
        keys = -keys if largest else keys
    else:
        keys = values.astype(np.int64) if values.dtype.kind == "b" else values
        keys = ~keys if largest else keys  # reverses the order and cannot overflow
    order = np.lexsort((ranks, keys, np.logical_xor(missing, largest)), axis=axis)
    return np.take_along_axis(values, order, axis), np.take_along_axis(indices, order, axis)


def softmax(np: Any, x: Array) -> Array:
    """The softmax of `x` over the last axis."""
    shifted = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return shifted / np.sum(shifted, axis=-1, keepdims=True)


def layer_norm(np: Any, x: Array, eps: float = 1e-5) -> Array:
    """(x - mean) / sqrt(variance + eps) over the last axis."""
    centred = x - np.mean(x, axis=-1, keepdims=True)
    return centred / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + eps)


def rms_norm(np: Any, x: Array, eps: float = 1e-5) -> Array:
    """x / sqrt(mean(x * x) + eps) over the last axis."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)


# ---------------------------------------------------------------- random numbers

#: Multipliers and Weyl steps of Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror
#: and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011. Every lane's numbers follow
#: from the seed and the lane's offset alone, whatever the tiling and the target, so the integers
#: are the same everywhere.
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
STEPS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10

_LOW = 0xFFFF_FFFF


def philox(
    np: Any, counter: tuple[Array, Array, Array, Array], key: tuple[Array, Array]
) -> tuple[Array, Array, Array, Array]:
    """The four output words of Philox4x32-10 for arrays of 32-bit words, which broadcast."""
    c0, c1, c2, c3 = (np.asarray(word).astype(np.uint64) for word in counter)
    k0, k1 = (np.asarray(word).astype(np.uint64) for word in key)
    m0, m1 = (np.uint64(word) for word in MULTIPLIERS)
    s0, s1 = (np.uint64(word) for word in STEPS)
    low, half = np.uint64(_LOW), np.uint64(32)
    for _ in range(ROUNDS):
        p0, p1 = m0 * c0, m1 * c2  # below 2**64: no wrap-around
        c0, c1, c2, c3 = (p1 >> half) ^ c1 ^ k0, p1 & low, (p0 >> half) ^ c3 ^ k1, p0 & low
        k0, k1 = (k0 + s0) & low, (k1 + s1) & low
    return tuple(word.astype(np.uint32) for word in (c0, c1, c2, c3))


def words(np: Any, seed: Array, offset: Array) -> tuple[Array, Array, Array, Array]:
    """The four Philox words of `seed` and `offset` (i64; of negative values, their 64 bits)."""
    low, high = _halves(np, offset)
    return philox(np, (low, high, 0, 0), _halves(np, seed))


def uniform(np: Any, seed: Array, offset: Array) -> Array:
    """Uniform float64 multiples of 2**-24 in [0, 1), exact in f32 as well."""
    return _top(np, words(np, seed, offset)[0]) * 2.0**-24


def normal(np: Any, seed: Array, offset: Array) -> Array:
    """Standard normal numbers: sqrt(-2 ln u1) * cos(2 pi u2) with u1 in (0, 1] and u2 in [0, 1),
    in float64."""
    first, second, _, _ = words(np, seed, offset)
    radius = np.sqrt(-2.0 * np.log((_top(np, first) + 1.0) * 2.0**-24))
    return radius * np.cos(2.0 * np.pi * (_top(np, second) * 2.0**-24))


def _top(np: Any, word: Array) -> Array:
    """The upper 24 bits of each 32-bit `word`, as float64."""
    return (word >> np.uint32(8)).astype(np.float64)


def _halves(np: Any, value: Array) -> tuple[Array, Array]:
    bits = np.asarray(value).astype(np.int64).view(np.uint64)
    return bits & np.uint64(_LOW), bits >> np.uint64(32)
