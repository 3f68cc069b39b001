"""Tuning for several sizes at once: the fewest points such that each size is near its best.

One size after the other is searched, each with an equal share of the time, and each beginning with
the best points of those before. Then the fastest points of every search are timed at every size, in
turn, in a fresh process for each size. What serves all sizes is chosen from that table (`cover`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing

import attrs
import numpy as np

from sketchc.base.diagnostics import refuse
from sketchc.lowering.passes.space import Point
from sketchc.runtime.bench import driver
from sketchc.runtime.bench.driver import MeasurementFailedError
from sketchc.runtime.bench.prepared import OutputCheck
from sketchc.runtime.tune.building import Builder
from sketchc.runtime.tune.cover import TOLERANCE, cover
from sketchc.runtime.tune.rule import Rule, Served, learn
from sketchc.runtime.tune.surrogate import Floats
from sketchc.runtime.tune.timing import PointTimer
from sketchc.runtime.tune.tuner import Dropped, Kernels, Limits, Request, search_of

#: How many of the fastest points of each size are timed at all sizes, and with how many samples.
_FROM_EACH = 3
_SAMPLES = 15


@attrs.frozen
class SizeResult:
    """What was found for one size. `seconds` are the medians of the table's points (None: failed),
    `chosen` is the place of the point that serves the size; `tried` points were measured in its own
    search, `known` of them by an earlier one."""

    symbols: Mapping[str, int]
    seconds: tuple[float | None, ...]
    chosen: int
    tried: int
    known: int

    @property
    def best_seconds(self) -> float:
        """The median of the fastest point of the table."""
        return min(value for value in self.seconds if value is not None)

    @property
    def chosen_seconds(self) -> float:
        """The median of the point that serves the size."""
        found = self.seconds[self.chosen]
        assert found is not None
        return found


@attrs.frozen
class SizesTuning:
    """What a search for several sizes found.

    `points` are the columns of the table, the plan's own choice first; `chosen` the places of those
    that serve all sizes. `dropped` points failed at some size, `rejected` ones did not pass
    verification. `seconds` is the time of all searches."""

    sketch: str
    target: str
    hardware: str
    device: str
    threads: int
    limits: Limits
    points: tuple[Point, ...]
    chosen: tuple[int, ...]
    sizes: tuple[SizeResult, ...]
    dropped: tuple[Dropped, ...]
    rejected: tuple[Dropped, ...]
    seconds: float

    @property
    def rule(self) -> Rule:
        """Which of the chosen points to take at other sizes, by a few questions."""
        return learn([self._served(row) for row in self.sizes])

    def _served(self, row: SizeResult) -> Served:
        """The size with the chosen points that serve it, the fastest first."""
        limit = (1.0 + TOLERANCE) * row.best_seconds
        times = {place: row.seconds[place] for place in self.chosen}
        near = {place: value for place, value in times.items() if value and value <= limit}
        return Served(row.symbols, tuple(sorted(near, key=lambda place: near[place])))


@attrs.frozen
class _Searched:
    """The search of one size that has ended: its kernels and timer, the points that it found, the
    fastest first, and how many were tried and known."""

    kernels: Kernels
    timer: PointTimer
    ranked: Sequence[int]
    tried: int
    known: int


def tune_sizes(requests: Sequence[Request]) -> SizesTuning:
    """Search for each of `requests`, which differ in sizes alone, then choose. `limits.budget` is
    for all of them together. Raises `MeasurementFailedError` where no point passes that could be
    measured at a size, `UsageError` and `TaskFailure`."""
    first = requests[0]
    if len({tuple(one.prepared.symbols.items()) for one in requests}) < len(requests):
        refuse("--sizes names the same sizes twice; say each of them once")
    settings, plan = first.prepared.settings, first.prepared.candidate.plan
    driver.prepare(settings.threads)
    toolchain = first.prepared.candidate.toolchain
    started = time.monotonic()
    builder = Builder(toolchain, first.folder, settings.device, settings.threads)
    with closing(builder):
        done: list[_Searched] = []
        for number, request in enumerate(requests, 1):
            say = _counting(request.say, number, len(requests))
            done.append(_searched(attrs.evolve(request, say=say), builder, done, len(requests)))
        seconds = time.monotonic() - started
        places = [0, *(place for one in done for place in one.ranked[:_FROM_EACH])]
        places = list(dict.fromkeys(places))
        table = _measured(done, places)
        table, chosen, rejected = _chosen(first, places, table)
    rows = []
    for one, request, row in zip(done, requests, table, strict=True):
        serves = min(chosen, key=lambda place: float(row[place]))
        times = tuple(float(value) if np.isfinite(value) else None for value in row)
        rows.append(SizeResult(dict(request.prepared.symbols), times, serves, one.tried, one.known))
    return SizesTuning(
        *(plan.sketch.name, plan.target, plan.hardware.name, first.device),
        *(settings.threads, first.limits),
        points=tuple(dict(first.space.points[place]) for place in places),
        chosen=chosen,
        sizes=tuple(rows),
        dropped=tuple({str(d.point): d for one in done for d in one.kernels.dropped()}.values()),
        rejected=rejected,
        seconds=seconds,
    )


def _counting(say: Callable[[str], None], number: int, of: int) -> Callable[[str], None]:
    return lambda doing: say(f"size {number} of {of} {doing}")


def _searched(
    request: Request, builder: Builder, before: Sequence[_Searched], of: int
) -> _Searched:
    """Search one of `of` sizes, beginning with the plan's own choice and the best points of the
    sizes `before`."""
    prepared = request.prepared
    check = OutputCheck(prepared, prepared.length())
    timer = request.timer(check, builder)
    sizes = (prepared.symbols, prepared.binding.params, prepared.settings.threads)
    with closing(timer):
        kernels = Kernels(request.space, *sizes, builder, timer, request.record)
        limits = attrs.evolve(request.limits, budget=request.limits.budget / of)
        start = dict.fromkeys([0, *(one.ranked[0] for one in before if one.ranked)])
        search = search_of(kernels, limits, list(start))
        search.run(known := kernels.remember(request.known))
    ranked = search.pool.ranking
    return _Searched(kernels, timer, ranked, len(search.pool.times), len(known))


def _measured(done: Sequence[_Searched], places: Sequence[int]) -> Floats:
    """The medians of points at all sizes, sizes by points, of samples in turn."""
    table = np.full((len(done), len(places)), np.inf)
    for row, one in enumerate(done):
        with closing(one.timer):
            legal = [p for p in places if np.isfinite(one.kernels.predict(p))]
            found = one.kernels.measure(legal, _SAMPLES)
        for column, place in enumerate(places):
            table[row, column] = found.get(place, np.inf)
    return table


def _chosen(
    request: Request, places: Sequence[int], table: Floats
) -> tuple[Floats, tuple[int, ...], tuple[Dropped, ...]]:
    """The table without points that do not pass verification, the columns that serve all sizes, and
    the points that did not pass. Raises `MeasurementFailedError` where a size has none left."""
    table = table.copy()
    passed: set[int] = set()
    rejected: list[Dropped] = []
    while True:
        if not np.isfinite(table.min(axis=1)).all():
            why = rejected[0].reason if rejected else "none could be measured at one of the sizes"
            raise MeasurementFailedError(f"no point passes: {why}", "rejected" if rejected else "")
        chosen = cover(table)
        fresh = [column for column in chosen if column not in passed]
        if not fresh:
            return table, chosen, tuple(rejected)
        request.say("verifies the points that serve all sizes")
        point = request.space.points[places[fresh[0]]]
        if reason := request.verify(point):
            rejected.append(Dropped(point, "rejected", reason))
            table[:, fresh[0]] = np.inf
        else:
            passed.add(fresh[0])
