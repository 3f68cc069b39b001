"""The fewest points that serve several sizes, each within a tolerance of its best."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from sketchc.runtime.tune.surrogate import Floats

#: How much longer than the best point of a size one that serves it may take.
TOLERANCE = 0.05
#: The most sets of points that are compared; where there would be more, points are taken one after
#: the other, each time the one that serves most of the sizes that are left.
_MOST_SETS = 200_000


def cover(seconds: Floats) -> tuple[int, ...]:
    """The points, in order, of a smallest set that serves every size; of several such sets the one
    with the least time as a geometric mean over the sizes, then the first; where there are more
    than `_MOST_SETS` to compare, one that is near it. `seconds` are those of sizes by points,
    infinite for a point that failed; each size has a finite one."""
    best = seconds.min(axis=1, keepdims=True)
    near = seconds <= (1.0 + TOLERANCE) * best
    serves = [frozenset(map(int, column.nonzero()[0])) for column in near.T]
    sizes = frozenset(range(len(seconds)))
    points = list(_not_dominated(seconds, serves))
    for count in range(1, len(points) + 1):
        if math.comb(len(points), count) > _MOST_SETS:
            return _one_by_one(serves, sizes)
        if full := _full(points, count, serves, sizes):
            # A point that serves fewer sizes may be the faster one there.
            every = [point for point, own in enumerate(serves) if own]
            if math.comb(len(every), count) <= _MOST_SETS:
                full = _full(every, count, serves, sizes)
            return min(full, key=lambda chosen: _loss(seconds, chosen))
    raise AssertionError("the best point of each size serves it")


def _full(
    points: Sequence[int], count: int, serves: Sequence[frozenset[int]], sizes: frozenset[int]
) -> list[tuple[int, ...]]:
    """The sets of so many of the `points` that serve all `sizes`."""
    sets = itertools.combinations(points, count)
    return [s for s in sets if frozenset().union(*(serves[p] for p in s)) == sizes]


def _not_dominated(seconds: Floats, serves: Sequence[frozenset[int]]) -> Iterator[int]:
    """The points for which no other one serves all their sizes, and more of them or faster."""
    for point, own in enumerate(serves):
        others = (other for other in range(len(serves)) if other != point and own <= serves[other])
        if own and not any(_better(seconds, serves, other, point) for other in others):
            yield point


def _better(seconds: Floats, serves: Sequence[frozenset[int]], one: int, other: int) -> bool:
    """Whether a point that serves all sizes of the `other` one makes it superfluous."""
    if serves[one] != serves[other]:
        return True
    losses = (
        _loss(seconds[sorted(serves[one])], [one]),
        _loss(seconds[sorted(serves[one])], [other]),
    )
    return (losses[0], one) < (losses[1], other)


def _loss(seconds: Floats, chosen: Sequence[int]) -> float:
    """The sum over sizes of the logarithm of the time of the fastest `chosen` point."""
    return math.fsum(math.log(max(row[list(chosen)].min(), 1e-12)) for row in seconds)


def _one_by_one(serves: Sequence[frozenset[int]], sizes: frozenset[int]) -> tuple[int, ...]:
    chosen: list[int] = []
    while left := sizes - frozenset().union(*(serves[point] for point in chosen)):
        chosen.append(max(range(len(serves)), key=lambda point: len(serves[point] & left)))
    return tuple(sorted(chosen))
