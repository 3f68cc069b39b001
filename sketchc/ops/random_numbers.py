"""Philox4x32-10, the counter-based generator behind rand and randn, for the NumPy module given.

Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011. Every lane's
numbers follow from the seed and the lane's offset alone, whatever the tiling and whatever the
target, so the integers are the same everywhere.
"""

from __future__ import annotations

from typing import Any

Array = Any

#: Multipliers and Weyl steps of the published generator.
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
STEPS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10

_LOW = 0xFFFF_FFFF


def philox(
    np: Any, counter: tuple[Array, Array, Array, Array], key: tuple[Array, Array]
) -> tuple[Array, Array, Array, Array]:
    """The four output words. All arguments hold 32-bit words and broadcast; so does the result."""
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
    """The generator at a seed and offsets (i64, negative ones as their 64 bits)."""
    low, high = _halves(np, offset)
    return philox(np, (low, high, 0, 0), _halves(np, seed))


def uniform(np: Any, seed: Array, offset: Array) -> Array:
    """float64 multiples of 2**-24 in [0, 1), exact in f32 as well."""
    return _top(np, words(np, seed, offset)[0]) * 2.0**-24


def normal(np: Any, seed: Array, offset: Array) -> Array:
    """sqrt(-2 ln u1) * cos(2 pi u2) with u1 in (0, 1] and u2 in [0, 1), in float64."""
    first, second, _, _ = words(np, seed, offset)
    radius = np.sqrt(-2.0 * np.log((_top(np, first) + 1.0) * 2.0**-24))
    return radius * np.cos(2.0 * np.pi * (_top(np, second) * 2.0**-24))


def _top(np: Any, word: Array) -> Array:
    """The upper 24 bits as a float64."""
    return (word >> np.uint32(8)).astype(np.float64)


def _halves(np: Any, value: Array) -> tuple[Array, Array]:
    bits = np.asarray(value).astype(np.int64).view(np.uint64)
    return bits & np.uint64(_LOW), bits >> np.uint64(32)
