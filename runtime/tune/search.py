"""The search for the fastest of many points, which knows nothing of kernels.

A `Problem` has points as vectors, predicts the time of a point and measures points. A strategy
ranks the points that are still open; the `Search` takes the first legal ones of that ranking, a
batch at a time, and measures them by successive halving: all of a batch and the best point so far
in turn, a few times each, then again the faster half. Whoever else has an idea of which points to
try, a person or a language model, is one more strategy.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import attrs
import numpy as np

from sketchc.runtime.tune.surrogate import Floats, improvement_scores, standardised

#: How many points of a batch there are, of the first one and of each further one.
FIRST_BATCH = 8
BATCH = 4
#: Samples of each point that is still in the race, round after round.
_ROUNDS = (3, 4, 8)
#: A point that takes so many times as long as the fastest one leaves the race at once.
_HOPELESS = 1.5
#: The most points at a time among which a strategy chooses.
_MOST_OPEN = 4096
#: Points that are fewer steps apart are neighbours, of which a prediction knows little.
_APART = 2.0


class Problem(Protocol):
    """Points, numbered from 0, and what can be known of them."""

    #: The points as vectors: points by axes.
    vectors: Floats

    def predict(self, point: int) -> float:
        """The time of a point by a model, in seconds or any other unit that is the same for all
        points; infinite for a point that is illegal."""

    def prepare(self, points: Sequence[int]) -> None:
        """Begin what can be done for points that may be measured next, if that disturbs no
        measurement."""

    def measure(self, points: Sequence[int], samples: int) -> Mapping[int, float]:
        """Time the points in turn, `samples` times each; returns the median seconds of each point
        over all samples ever taken, infinite for a point that failed."""


@attrs.define
class Pool:
    """What is known of the points: predictions (infinite: illegal) and times (infinite: failed)."""

    problem: Problem
    random: np.random.Generator
    predictions: dict[int, float] = attrs.field(factory=dict)
    times: dict[int, float] = attrs.field(factory=dict)

    def legal(self, point: int) -> bool:
        """Whether a point may be measured; it is predicted for that, once."""
        if point not in self.predictions:
            self.predictions[point] = self.problem.predict(point)
        return math.isfinite(self.predictions[point])

    @property
    def open(self) -> list[int]:
        """The points, in order, that are neither measured nor known to be illegal."""
        return [
            point
            for point in range(len(self.problem.vectors))
            if point not in self.times and math.isfinite(self.predictions.get(point, 0.0))
        ]

    @property
    def ranking(self) -> list[int]:
        """The points that were measured and did not fail, the fastest first."""
        found = [point for point, seconds in self.times.items() if math.isfinite(seconds)]
        return sorted(found, key=lambda point: (self.times[point], point))


class Strategy(Protocol):
    """A way to choose the next points."""

    def rank(self, pool: Pool) -> Iterable[int]:
        """The open points, the most promising first."""


@attrs.frozen
class Everything:
    """All points: those that are predicted, the best first, then the others."""

    def rank(self, pool: Pool) -> Iterable[int]:
        """See `Strategy`."""
        return sorted(pool.open, key=lambda point: (pool.predictions.get(point, math.inf), point))


@attrs.define
class Random:
    """All points in one random order."""

    _order: list[int] | None = None

    def rank(self, pool: Pool) -> Iterable[int]:
        """See `Strategy`."""
        if self._order is None:
            self._order = _shuffled(pool)
        still = set(pool.open)
        return [point for point in self._order if point in still]


@attrs.frozen
class LikelihoodFree:
    """Likelihood-free Bayesian optimisation (see `surrogate`), whose first points are those with
    the best predictions and some at random. The prediction is one more axis for the surrogate."""

    def rank(self, pool: Pool) -> Iterable[int]:
        """See `Strategy`."""
        shuffled = _shuffled(pool)
        if len(pool.ranking) < FIRST_BATCH // 2:
            predicted = [point for point in shuffled if point in pool.predictions]
            best = sorted(predicted, key=lambda point: pool.predictions[point])
            apart = itertools.islice(spread(best, pool.problem.vectors), FIRST_BATCH - 2)
            return dict.fromkeys([*apart, *shuffled])
        some = shuffled[:_MOST_OPEN]
        if not some:
            return []
        features = standardised(_features(pool))
        known = list(pool.times)
        scores = improvement_scores(features[known], _log_times(pool, known), features[some])
        order = np.argsort(-scores, kind="stable")
        return [some[place] for place in order]


def spread(ranked: Iterable[int], vectors: Floats) -> Iterator[int]:
    """The points in the order of a ranking, those last that have a neighbour before them: one that
    is fewer than `_APART` steps away, a step being a factor of two of one axis."""
    taken: list[int] = []
    left: list[int] = []
    for point in ranked:
        steps = np.abs(vectors[taken] - vectors[point]).sum(axis=1)
        if (steps >= _APART).all():
            taken.append(point)
            yield point
        else:
            left.append(point)
    yield from left


def _shuffled(pool: Pool) -> list[int]:
    return [int(point) for point in pool.random.permutation(np.array(pool.open, np.int64))]


def _features(pool: Pool) -> Floats:
    """The vectors of all points, with the logarithms of predictions as one more axis; the middle of
    the known ones stands for those that are not known."""
    vectors = pool.problem.vectors
    known = {p: math.log(v) for p, v in pool.predictions.items() if 0 < v < math.inf}
    middle = float(np.median(list(known.values()))) if known else 0.0
    column = np.array([known.get(point, middle) for point in range(len(vectors))])
    return np.concatenate([vectors, column[:, None]], axis=1)


def _log_times(pool: Pool, points: Sequence[int]) -> Floats:
    """The logarithms of times; a point that failed counts as slower than all others."""
    finite = [value for value in pool.times.values() if 0 < value < math.inf]
    worst = 2.0 * max(finite, default=1.0)
    values = (min(max(pool.times[point], 1e-12), worst) for point in points)
    return np.log(np.fromiter(values, np.float64))


STRATEGIES: Mapping[str, type[Strategy]] = {
    "lfbo": LikelihoodFree,
    "random": Random,
    "all": Everything,
}


@attrs.define
class Search:
    """One search. `done` says when to stop, `looked` when no more points are to be predicted before
    the first one is measured; `start` are the points to be measured first. Deterministic for
    a `seed`, as far as times are."""

    problem: Problem
    strategy: Strategy
    seed: int
    start: Sequence[int] = ()
    done: Callable[[], bool] = lambda: False
    looked: Callable[[], bool] = lambda: False
    pool: Pool = attrs.field(init=False)
    _ahead: list[int] = attrs.field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        self.pool = Pool(self.problem, np.random.default_rng(self.seed))

    def run(self, known: Mapping[int, float] | None = None) -> Pool:
        """Search until the points end or `done`; `known` are times from earlier. At least the
        points of `start` are measured."""
        self.pool.times.update(known or {})
        for point in _shuffled(self.pool):
            if self.looked():
                break
            self.pool.legal(point)
        first = [p for p in self.start if p not in self.pool.times and self.pool.legal(p)]
        size = BATCH if self.pool.times else FIRST_BATCH
        batch = first if self.done() else self._batch(first, size)
        while batch:
            self.problem.prepare([*batch, *self._ahead])
            self._race(batch)
            batch = [] if self.done() else self._batch([], BATCH)
        return self.pool

    def finals(self, count: int, samples: int) -> list[int]:
        """The `count` fastest points so far, timed in turn once more; the fastest first."""
        best = self.pool.ranking[:count]
        self._measure(best, samples)
        return sorted(
            (point for point in best if math.isfinite(self.pool.times[point])),
            key=lambda point: (self.pool.times[point], point),
        )

    def _batch(self, first: Sequence[int], size: int) -> list[int]:
        """`first`, and the next legal points of the strategy's ranking, `size` in all. As many
        that follow are prepared: they are likely to come next."""
        found = list(first)
        for point in self.strategy.rank(self.pool):
            if len(found) >= size + BATCH or (self.done() and (found or self.pool.times)):
                break
            if point not in found and self.pool.legal(point):
                found.append(point)
        self._ahead = found[size:]
        return found[:size]

    def _race(self, batch: Sequence[int]) -> None:
        """Measure a batch beside the best point so far, by successive halving."""
        racing = list(dict.fromkeys([*self.pool.ranking[:1], *batch]))
        for samples in _ROUNDS:
            self._measure(racing, samples)
            racing = [point for point in self.pool.ranking if point in set(racing)]
            if len(racing) < 2 or self.done():
                return
            limit = _HOPELESS * self.pool.times[racing[0]]
            half = racing[: max(2, math.ceil(len(racing) / 2))]
            racing = [point for point in half if self.pool.times[point] <= limit]

    def _measure(self, points: Sequence[int], samples: int) -> None:
        if points:
            self.pool.times.update(self.problem.measure(points, samples))
