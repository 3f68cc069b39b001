"""Spaces of points whose times are known, shaped as those of tile sizes are: a valley along each
axis, a product of sizes that suits the caches, a cliff where they overflow, slower odd places,
roughness, and a prediction that is right by and large."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import attrs
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

#: The shares of points that cannot be measured: they do not plan.
ILLEGAL = 0.1


@attrs.define
class SyntheticProblem:
    """A `Problem` of the search. `asked` are the points that were measured, in order, with the
    number of samples that each got; those of `failing` turn out to be wrong."""

    vectors: Floats
    times: Floats
    predictions: Floats
    failing: frozenset[int] = frozenset()
    asked: dict[int, int] = attrs.field(factory=dict)
    batches: list[tuple[int, ...]] = attrs.field(factory=list)

    def predict(self, point: int) -> float:
        return float(self.predictions[point])

    def prepare(self, points: Sequence[int]) -> None:
        assert all(math.isfinite(self.predictions[point]) for point in points)

    def measure(self, points: Sequence[int], samples: int) -> Mapping[int, float]:
        assert all(math.isfinite(self.predictions[point]) for point in points)
        self.batches.append(tuple(points))
        for point in points:
            self.asked[point] = self.asked.get(point, 0) + samples
        return {p: math.inf if p in self.failing else float(self.times[p]) for p in points}

    @property
    def best(self) -> float:
        """The time of the fastest legal point."""
        return float(self.times[np.isfinite(self.predictions)].min())

    def evaluations(self, share: float) -> int | None:
        """After how many points one was measured that has at least this share of the best speed."""
        good = self.times * share <= self.best
        return next((n for n, point in enumerate(self.asked, 1) if good[point]), None)

    def reached(self, share: float) -> Callable[[], bool]:
        """Whether such a point was measured."""
        return lambda: self.evaluations(share) is not None


def synthetic(seed: int, *, informed: bool = True, most: int = 3000) -> SyntheticProblem:
    """A space of 60 to `most` points. Without `informed`, all legal points have one prediction."""
    random = np.random.default_rng(seed)
    sizes = [1]
    while not 60 <= math.prod(sizes) <= most:
        sizes = [int(size) for size in random.integers(3, 9, random.integers(2, 5))]
    axes = len(sizes)
    points = np.array(list(itertools.product(*map(range, sizes))), np.float64)
    aims = np.array([random.uniform(0, size - 1) for size in sizes])
    log = np.abs(points - aims) @ random.uniform(0.05, 0.5, axes)
    total = points @ random.uniform(0.3, 1.0, axes)
    suits = random.uniform(0.3, 0.7) * total.max()
    log += random.uniform(0.1, 0.4) * np.abs(total - suits) / 1.5
    overflow = total > random.uniform(0.55, 0.95) * total.max()
    log += np.where(overflow, random.uniform(0.3, 1.5), 0.0)
    odd = points[:, random.integers(axes)] % 2 == 1
    log += np.where(odd, random.uniform(0.0, 0.3), 0.0)
    log += random.normal(0.0, 0.03, len(log))
    guess = log * random.uniform(0.3, 0.9) + random.normal(0.0, random.uniform(0.2, 0.6), len(log))
    guess += points @ random.normal(0.0, 0.08, axes)
    predictions = np.exp(guess) if informed else np.ones(len(log))
    predictions[random.random(len(log)) < ILLEGAL] = math.inf
    return SyntheticProblem(points, np.exp(log), predictions)
