"""Sizes that nobody knows in advance: drawn from the secret seed of a verdict.

A kernel that holds a list of the sizes that are tried is right at these and wrong elsewhere. So
for kernels that others wrote, the prime, one more size, and T where nothing says how the kernel is
tiled, follow from the seed; the same seed gives the same sizes. Where hints restrict a size, a
prime and one more size between their ends are drawn for every kernel, since the sizes around its
tiles may all lie outside.
"""

from __future__ import annotations

import math

import attrs
import numpy as np

from sketchc.runtime.tasks.hints import Domain

#: Sets the sizes apart from the inputs, which come from the same seed.
_STREAM = 0x512E5
#: T is one of these multiples of 32: a multiple of every small tile.
_TILE, _MULTIPLES = 32, (1, 2, 3)
#: How far above 2 T the prime may lie.
_BEYOND = 32
#: The largest size that is drawn, where the range of a size goes further; where nothing says how
#: far it goes, sizes up to the least of these are drawn in any case.
MOST, LEAST = 4096, 512
#: How often a size is drawn until one is a prime.
_TRIES = 64


def is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, math.isqrt(number) + 1))


def next_prime(number: int) -> int:
    """The smallest prime that is at least `number`."""
    candidate = max(number, 2)
    while not is_prime(candidate):
        candidate += 1
    return candidate


@attrs.frozen
class Draws:
    """The sizes of one verdict. Symbols have draws of their own, by their place in the sketch."""

    seed: int

    def _random(self, place: int, purpose: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, _STREAM, place, purpose])

    def tile(self, place: int) -> int:
        """What stands in for T where nothing says how a kernel is tiled."""
        return _TILE * int(self._random(place, 0).choice(_MULTIPLES))

    def prime(self, place: int, tile: int, limit: int | None = None) -> int:
        """A prime above `tile` + 1; one below it where `limit` leaves no other, and 1 where it
        leaves none at all."""
        high = 2 * tile + _BEYOND
        high = high if limit is None else min(high, limit)
        primes = [n for n in range(tile + 2, high + 1) if is_prime(n)]
        primes = primes or [n for n in range(2, high + 1) if is_prime(n)] or [1]
        return int(self._random(place, 1).choice(primes))

    def inner(self, place: int, domain: Domain, most: int = MOST, *, prime: bool = False) -> int:
        """A size of `domain` between its ends, rather a small one than a large one, up to `most` or
        near its lower end; a prime where one is found, if that is wanted. An end where there is
        nothing between them."""
        random = self._random(place, 3 if prime else 2)
        low, high = domain.whole
        low, high = max(low, 1), min(high, max(most, 4 * low))
        found = domain.near(low)
        for _ in range(_TRIES):
            drawn = low + int((high - low) * random.random() ** 2)
            size = domain.near(min(max(drawn, low + 1), max(high - 1, low)))
            if size not in domain.whole:
                found = size
                if not prime or is_prime(size):
                    break
        return found
