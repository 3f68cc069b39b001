"""Tuning: the fastest point of a sketch's space on this machine, found by measuring.

The space is the plan's (`lowering.passes.space`), the search knows nothing of kernels (`search`),
kernels are built beside measurements where that disturbs none (`building`) and timed in turn in one
process that checks their outputs (`timing`). Every batch is handed on to be recorded. The winner
must pass verification, and is measured once more beside the plan's own choice, in a fresh process.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from statistics import median

import attrs
import numpy as np

from sketchc.base.diagnostics import Diagnostic, DiagnosticError
from sketchc.base.types import Scalar
from sketchc.ir.evaluate import host_values
from sketchc.lowering.cost.predict import predict
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.passes.descent import strain
from sketchc.lowering.passes.space import Point, Space
from sketchc.lowering.registry import load_target
from sketchc.runtime.bench import driver
from sketchc.runtime.bench.driver import MeasurementFailedError
from sketchc.runtime.bench.measurement import Speedup, Summary, speedup, summarise
from sketchc.runtime.bench.prepared import OutputCheck, Prepared
from sketchc.runtime.cases.planned import known_sizes
from sketchc.runtime.store.tunings import KILLED, PointRow
from sketchc.runtime.tune.building import Builder
from sketchc.runtime.tune.search import STRATEGIES, Search
from sketchc.runtime.tune.surrogate import Floats
from sketchc.runtime.tune.timing import PointTimer, Timed

#: The share of the budget in which points may be planned before the first one is measured.
_PLANNING = 0.15
#: How many of the fastest points are timed once more, and how many samples each of them gets.
_FINALISTS = 4
_FINAL_SAMPLES = 15
#: Samples of the winner and of the plan's own choice in a fresh process.
_LAST_SAMPLES = 31

#: How many points are verified, one after the other, before none is thought to pass.
_MOST_VERIFIED = 8
#: The class of a point that plans, and whose code the target refuses.
_ILLEGAL = "illegal"

Say = Callable[[str], None]


@attrs.frozen
class Limits:
    """How a search is held: its strategy (of `STRATEGIES`), seconds, and seed."""

    strategy: str
    budget: float
    seed: int


@attrs.frozen
class Dropped:
    """A point that does not count, with the class of failure and a sentence."""

    point: Point
    failure: str
    reason: str


@attrs.frozen
class Illegal:
    """Why points do not plan: the code of a diagnostic, how many points have it, and its message
    for the first of them."""

    code: str
    points: int
    example: str


@attrs.frozen
class Tuning:
    """What a search found, for a sketch at sizes on a device.

    `points` is the size of the space, `planned` how many of them were planned, `illegal` says why
    some do not plan, `tried` were measured (`known` of them by an earlier search),
    `dropped` failed, and `rejected` did not pass verification. `trace` pairs seconds since the
    start with the best median so far. `ended` is "budget" or "space" (no points are left).
    `default_times` and `best_times` are from one fresh process, `gain` is of the latter; the plan's
    own choice has no times where it fails."""

    sketch: str
    target: str
    hardware: str
    device: str
    symbols: Mapping[str, int]
    threads: int
    limits: Limits
    default: Point
    best: Point
    gain: Speedup | None
    default_times: Summary | None
    best_times: Summary
    points: int
    planned: int
    illegal: tuple[Illegal, ...]
    tried: int
    known: int
    dropped: tuple[Dropped, ...]
    trace: tuple[tuple[float, float], ...]
    seconds: float
    ended: str
    rejected: tuple[Dropped, ...] = ()


def named(point: Point) -> str:
    """A point as text: its key for processes and for what was recorded."""
    return json.dumps(dict(point), sort_keys=True)


@attrs.define
class Kernels:
    """The points of a space as a `Problem` of the search, at the sizes `symbols` on so many
    `threads`. `record` takes the points of each batch as they were measured, with the samples that
    are new."""

    space: Space
    symbols: Mapping[str, int]
    params: Mapping[str, Scalar]
    threads: int
    builder: Builder
    timer: PointTimer
    record: Callable[[Sequence[PointRow]], None]
    started: float = attrs.field(factory=time.monotonic)
    illegal: dict[str, Illegal] = attrs.field(factory=dict)
    planned: int = 0
    trace: list[tuple[float, float]] = attrs.field(factory=list)
    vectors: Floats = attrs.field(init=False)
    _kernels: dict[int, Kernel] = attrs.field(factory=dict)
    _names: dict[str, int] = attrs.field(init=False)
    #: How many samples of a point were handed on, by its name.
    _recorded: dict[str, int] = attrs.field(factory=dict)
    #: The names of points whose process was killed in an earlier search.
    _killed: set[str] = attrs.field(factory=set)

    def __attrs_post_init__(self) -> None:
        self._names = {named(point): n for n, point in enumerate(self.space.points)}
        rows = [self.space.vector(point) for point in self.space.points]
        self.vectors = np.array(rows, np.float64).reshape(len(rows), len(self.space.axes))

    def predict(self, point: int) -> float:
        """See `Problem`; the reasons of illegal points are counted. What exceeds registers or
        stages, which the model knows little of, counts as twice as long for each power of two."""
        self.planned += 1
        self.timer.tell(f"plans points, {self.planned} of {len(self.space.points)}")
        try:
            plan = self.space.plan(self.space.points[point]).plan
            values = host_values(plan.sketch, self.symbols, self.params)
            beyond = math.pow(2.0, strain(plan, values))
            return predict(plan, values, self.threads).seconds * beyond
        except DiagnosticError as error:
            self._count(error.diagnostics[0])
            return math.inf

    def at_sizes(self) -> list[int]:
        """The point that the plan chooses for these sizes, if it is one of the space."""
        name = named(self.space.at_sizes(known_sizes(self.symbols, self.params)))
        return [self._names[name]] if name in self._names else []

    def _count(self, why: Diagnostic) -> None:
        before = self.illegal.get(why.code, Illegal(why.code, 0, why.message))
        self.illegal[why.code] = attrs.evolve(before, points=before.points + 1)

    def prepare(self, points: Sequence[int]) -> None:
        """See `Problem`."""
        if self.builder.beside:
            for point in points:
                self._start(point)

    def measure(self, points: Sequence[int], samples: int) -> Mapping[int, float]:
        """See `Problem`."""
        names = [named(self.space.points[point]) for point in points]
        self.timer.tell(f"builds {len(points)} points")
        for point in points:
            self._start(point)
        self.builder.settle(names)
        found = self.timer.measure(names, samples)
        # A point whose code the target refuses is found out again in no time.
        self.record([self._new(*one) for one in found.items() if one[1].failure != _ILLEGAL])
        if math.isfinite(best := self.timer.best):
            self.trace.append((time.monotonic() - self.started, best))
        return {self._names[name]: timed.seconds for name, timed in found.items()}

    def remember(self, rows: Sequence[PointRow]) -> dict[int, float]:
        """Take over what an earlier search measured; returns the times of points by number. Points
        that were killed are not among them."""
        found = {}
        for row in rows:
            name = named(row.point)
            if row.failure == KILLED:
                self._killed.add(name)
            elif name in self._names:
                samples = list(row.samples)
                self.timer.known[name] = Timed(samples, row.failure, row.reason)
                self._recorded[name] = len(samples)
                found[self._names[name]] = self.timer.known[name].seconds
        return found

    def dropped(self) -> tuple[Dropped, ...]:
        """The points that do not count, in the order in which they were tried."""
        known = self.timer.known.items()
        return tuple(
            Dropped(json.loads(name), timed.failure, timed.reason)
            for name, timed in known
            if timed.failure and timed.failure != _ILLEGAL
        )

    def _new(self, name: str, timed: Timed) -> PointRow:
        """What is new of a point; one that is killed for the second time has failed for good."""
        samples = tuple(timed.samples[self._recorded.get(name, 0) :])
        self._recorded[name] = len(timed.samples)
        again = timed.failure == KILLED and name in self._killed
        return PointRow(
            json.loads(name), samples, "launch" if again else timed.failure, timed.reason
        )

    def kernel(self, point: int) -> Kernel:
        """The kernel of a legal point. Raises `DiagnosticError` for what the target refuses."""
        if point not in self._kernels:
            plan = self.space.plan(self.space.points[point]).plan
            self._kernels[point] = load_target(plan.target).emit(plan)
        return self._kernels[point]

    def _start(self, point: int) -> None:
        name = named(self.space.points[point])
        if name in self.timer.known and self.timer.known[name].failure:
            return
        try:
            self.builder.start(name, self.kernel(point))
        except DiagnosticError as error:
            self._count(error.diagnostics[0])
            self.timer.known[name] = Timed([], _ILLEGAL, error.diagnostics[0].message)


@attrs.frozen
class Request:
    """What is tuned and how: a space, and the task with inputs at the sizes to tune for.

    `device` is the name of what kernels run on, with a last cache of `cache_bytes`; builds go into
    `folder`. `known` are points of earlier searches, `record` takes those of each batch; `verify`
    says why a point does not pass, "" where it does; `say` is called with what is being done."""

    space: Space
    prepared: Prepared
    device: str
    cache_bytes: int
    folder: Path
    limits: Limits
    verify: Callable[[Point], str]
    record: Callable[[Sequence[PointRow]], None] = lambda rows: None
    known: Sequence[PointRow] = ()
    say: Say = lambda doing: None

    def timer(self, check: OutputCheck, builder: Builder) -> PointTimer:
        """A process that times points, which starts when the first one is measured."""
        return PointTimer(self.prepared, check, self.cache_bytes, builder.built, self.say)


def tune(request: Request) -> Tuning:
    """Search, verify and measure again. Raises `MeasurementFailedError` where no point passes,
    `UsageError` and `TaskFailure`."""
    prepared, say, space = request.prepared, request.say, request.space
    settings, limits, plan = prepared.settings, request.limits, prepared.candidate.plan
    driver.prepare(settings.threads)
    check = OutputCheck(prepared, prepared.length())
    toolchain, folder = prepared.candidate.toolchain, request.folder
    builder = Builder(toolchain, folder, settings.device, settings.threads)
    with closing(builder), closing(request.timer(check, builder)) as timer:
        sizes = (prepared.symbols, prepared.binding.params, settings.threads)
        kernels = Kernels(space, *sizes, builder, timer, request.record)
        search = search_of(kernels, limits, [0])
        search.run(times := kernels.remember(request.known))
        seconds = time.monotonic() - kernels.started
        say("times the fastest points once more")
        ranked = search.finals(_FINALISTS, _FINAL_SAMPLES)
        ranked += [point for point in search.pool.ranking if point not in ranked]
        timer.close()
        best, rejected = _verified(kernels, ranked, request.verify, say)
        say("measures the winner again, in a fresh process")
        with closing(request.timer(check, builder)) as last:
            default_times, best_times = _measured_again(last, space.points[0], space.points[best])
        slower = bool(default_times) and median(default_times) <= median(best_times)
        # The plan's own choice has to pass, too, where it is the faster one after all.
        if slower and best and not request.verify(space.points[0]):
            best, best_times = 0, default_times
    return Tuning(
        *(plan.sketch.name, plan.target, plan.hardware.name, request.device),
        *(dict(prepared.symbols), settings.threads, limits),
        default=dict(space.default),
        best=dict(space.points[best]),
        gain=speedup(default_times, best_times) if default_times else None,
        default_times=summarise(default_times) if default_times else None,
        best_times=summarise(best_times),
        points=len(space.points),
        planned=kernels.planned,
        illegal=tuple(kernels.illegal.values()),
        tried=len(search.pool.times),
        known=len(times),
        dropped=kernels.dropped(),
        trace=tuple(kernels.trace),
        seconds=seconds,
        ended="budget" if seconds >= limits.budget else "space",
        rejected=rejected,
    )


def _measured_again(
    timer: PointTimer, default: Point, best: Point
) -> tuple[list[float], list[float]]:
    """The samples of the plan's own choice and of the winner, in turn; none of a choice that fails.
    Raises `MeasurementFailedError` where the winner does."""
    names = [named(default), named(best)]
    found = timer.measure(list(dict.fromkeys(names)), _LAST_SAMPLES)
    last = found[names[1]]
    if last.failure:
        raise MeasurementFailedError(f"the winner, measured again: {last.reason}", last.failure)
    first = found[names[0]]
    return ([] if first.failure else first.samples), last.samples


def search_of(kernels: Kernels, limits: Limits, start: Sequence[int]) -> Search:
    """The search, which begins with the points `start` and the cost model's choice at these sizes,
    and whose clock is that of `kernels`."""

    def after(share: float) -> Callable[[], bool]:
        return lambda: time.monotonic() - kernels.started >= share * limits.budget

    strategy = STRATEGIES[limits.strategy]()
    first = list(dict.fromkeys([*start, *kernels.at_sizes()]))
    return Search(kernels, strategy, limits.seed, first, after(1.0), after(_PLANNING))


def _verified(
    kernels: Kernels, ranked: Sequence[int], verify: Callable[[Point], str], say: Say
) -> tuple[int, tuple[Dropped, ...]]:
    """The first of the `ranked` points that passes, and those that did not. Raises
    `MeasurementFailedError` where none does."""
    rejected: list[Dropped] = []
    for point in ranked[:_MOST_VERIFIED]:
        say("verifies the winner")
        found = kernels.space.points[point]
        reason = verify(found)
        if not reason:
            return point, tuple(rejected)
        rejected.append(Dropped(found, "rejected", reason))
    dropped = [*rejected, *kernels.dropped()]
    why = dropped[0].reason if dropped else "none could be measured"
    raise MeasurementFailedError(f"no point passes: {why}", dropped[0].failure if dropped else "")


def settings_text(point: Mapping[str, Scalar]) -> str:
    """A point as `--set` takes it."""
    return ",".join(f"{name}={_plain(value)}" for name, value in point.items())


def _plain(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
