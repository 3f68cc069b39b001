"""Times many kernels of one sketch in one process, in turn, on the same inputs.

The process is one of `runtime.bench`'s (`server.Points`), with its clock, its cold caches and its
poisoned outputs. A kernel that is wrong, raises, ends the process or takes too long is dropped with
the reason; the process is started again without it, and the others go on.
"""

from __future__ import annotations

import math
import pickle
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import attrs
import numpy as np

from sketchc.runtime.bench.child import POINTS
from sketchc.runtime.bench.driver import MeasurementFailedError, Timer, turn_order
from sketchc.runtime.bench.prepared import OutputCheck, Prepared
from sketchc.runtime.bench.schedule import Variation, draw_variation
from sketchc.runtime.bench.text import seconds_text
from sketchc.runtime.process.messages import Raw
from sketchc.runtime.store.tunings import KILLED
from sketchc.runtime.tune.building import Built

#: Seconds that loading a kernel and warming it up may take, and one sample; of a sample also at
#: most so many times the fastest one.
_LOADING = 60.0
_SAMPLE = 5.0
_SLOWER = 50.0


@attrs.define
class Timed:
    """What is known of one kernel: the seconds of all its samples, or why it was dropped (`failure`
    is the class of failure, `KILLED` among them, "" for none)."""

    samples: list[float] = attrs.field(factory=list)
    failure: str = ""
    reason: str = ""

    @property
    def seconds(self) -> float:
        """The median; infinite for a kernel that was dropped."""
        if self.failure or not self.samples:
            return math.inf
        return statistics.median(self.samples)


@attrs.define
class PointTimer:
    """Times kernels by name; `built` gives a kernel, or raises `MeasurementFailedError`. To be
    closed."""

    prepared: Prepared
    check: OutputCheck
    cache_bytes: int
    built: Callable[[str], Built]
    say: Callable[[str], None] = lambda doing: None
    known: dict[str, Timed] = attrs.field(factory=dict)
    #: How often the process was started.
    starts: int = 0
    _timer: Timer | None = None
    _loaded: set[str] = attrs.field(factory=set)
    _checked: set[str] = attrs.field(factory=set)
    _random: np.random.Generator = attrs.field(init=False)
    _first: Variation = attrs.field(init=False)
    _number: int = 0

    def __attrs_post_init__(self) -> None:
        self._random = np.random.default_rng([self.prepared.settings.seed, 11])
        self._first = self._variation(0)

    def measure(self, names: Sequence[str], samples: int) -> Mapping[str, Timed]:
        """Time the kernels in turn, `samples` times each, after what they did at the first inputs
        was compared with the task. Raises `UsageError` and `TaskFailure` for what is no kernel's
        fault."""
        for name in names:
            self.known.setdefault(name, Timed())
            self._guarded(name, self._ready)
        for _ in range(samples):
            self._number += 1
            variation = self._variation(self._number)
            going = self._going(names)
            if not going:
                break
            self.tell(f"times {len(going)} points, round {self._number}")
            for name in turn_order(going, self._number):
                self._guarded(name, partial(self._sample, variation))
        return {name: self.known[name] for name in names}

    @property
    def best(self) -> float:
        """The median of the fastest kernel so far; infinite where there is none."""
        return min((timed.seconds for timed in self.known.values()), default=math.inf)

    def tell(self, doing: str) -> None:
        """Say what is being done, and the best so far."""
        best = f", best so far {seconds_text(self.best)}" if math.isfinite(self.best) else ""
        self.say(f"{doing}{best}")

    def close(self) -> None:
        """End the process."""
        if self._timer is not None:
            self._timer.close()
        self._timer = None
        self._loaded.clear()

    def _going(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if not self.known[name].failure]

    def _guarded(self, name: str, work: Callable[[str], None]) -> None:
        """Call `work`; a failure of the kernel drops it, and with it the process."""
        if self.known[name].failure:
            return
        try:
            work(name)
        except MeasurementFailedError as error:
            self._drop(name, error)
            self.close()

    def _drop(self, name: str, error: MeasurementFailedError) -> None:
        self.known[name].failure = KILLED if error.killed else error.failure or "launch"
        self.known[name].reason = str(error)

    def _variation(self, number: int) -> Variation:
        prepared = self.prepared
        sets = len(prepared.inputs.sets)
        return draw_variation(self._random, prepared.turned, sets, number % sets)

    # ------------------------------------------------------------ the process

    def _process(self) -> Timer:
        """The process that times, started where there is none."""
        if self._timer is None:
            settings, candidate = self.prepared.settings, self.prepared.candidate
            job = self.prepared.job(candidate.kernel, Path(), self.cache_bytes)
            deadline = time.monotonic() + settings.timeout
            self._timer = Timer(job, POINTS, deadline, settings.timeout)
            self._timer.begin(job, self.prepared.sent)
            self._timer.hear()
            self.starts += 1
        return self._timer

    def _ready(self, name: str) -> None:
        """Load the kernel, unless it is, and check its outputs, unless they were."""
        if name not in self._loaded:
            try:
                built = self.built(name)
            except MeasurementFailedError as error:
                self._drop(name, error)
                return
            process = self._process()
            self._within(process, _LOADING)
            content = pickle.dumps(built.kernel)
            pickled = Raw("uint8", (len(content),), memoryview(content))
            request = {"contender": name, "code": str(built.code), "kernel": pickled}
            process.tell({"do": "load", **request})
            process.hear()
            self._loaded.add(name)
        if name not in self._checked:
            self._check(name)
            self._checked.add(name)

    def _check(self, name: str) -> None:
        """Compare the outputs at the first inputs with the task's. Raises `MeasurementFailedError`
        with the class of failure where they are wrong."""
        self.tell("compares outputs with the task's")
        process = self._process()
        self._within(process, _LOADING)
        _, outputs, answer = process.sample(name, 0, self._first, keep=True)
        assert outputs is not None
        if answer["changes"]:
            raise MeasurementFailedError(answer["changes"][0], "policy")
        for comparison in self.check.compare(outputs):
            if not comparison.passed:
                msg = f"its outputs are wrong: {comparison.reason}"
                raise MeasurementFailedError(msg, comparison.failure or "numerical")

    def _sample(self, variation: Variation, name: str) -> None:
        self._ready(name)  # another kernel may have ended the process
        if self.known[name].failure:
            return
        process = self._process()
        slow = _SLOWER * self.best if math.isfinite(self.best) else _LOADING
        self._within(process, _SAMPLE + slow)
        sample, _, _ = process.sample(name, self._number, variation, keep=False)
        self.known[name].samples.append(sample.seconds)

    @staticmethod
    def _within(process: Timer, seconds: float) -> None:
        """Give what the process is asked next so many seconds."""
        process.deadline, process.timeout = time.monotonic() + seconds, seconds
