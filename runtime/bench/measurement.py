"""The result of a measurement, with all data that a claim needs: medians with bootstrap intervals,
speedups, and derived quantities.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from sketchc.runtime.bench.driver import Run
from sketchc.runtime.bench.judgement import Problem
from sketchc.runtime.bench.machine import Machine
from sketchc.runtime.bench.roofline import Floor, Precision, Work
from sketchc.runtime.bench.schedule import Settings
from sketchc.runtime.tasks.description import Scalar
from sketchc.runtime.verify.compare import Comparison

#: The least number of samples for a reliable median; a measurement of fewer is flagged.
ENOUGH_SAMPLES = 30


@attrs.frozen
class Summary:
    """Statistics of samples in seconds: `low` and `high` bound the median with 95 % confidence."""

    samples: int
    median: float
    low: float
    high: float
    mean: float
    minimum: float


@attrs.frozen
class Speedup:
    """Baseline over candidate: of the medians with its 95 % interval, and of the means (Eq. 5 of
    arXiv 2512.23424)."""

    of_medians: float
    low: float
    high: float
    of_means: float


_RESAMPLES = 2000


def _bootstrap_medians(samples: np.ndarray, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    picks = random.integers(0, samples.size, (_RESAMPLES, samples.size))
    medians: np.ndarray = np.median(samples[picks], axis=1)
    return medians


def summarise(samples: Sequence[float]) -> Summary:
    """The statistics of `samples` (at least one), deterministic: the bootstrap has a fixed seed."""
    values = np.asarray(samples, np.float64)
    low, high = np.quantile(_bootstrap_medians(values, 0), [0.025, 0.975])
    return Summary(
        values.size,
        float(np.median(values)),
        float(low),
        float(high),
        float(values.mean()),
        float(values.min()),
    )


def speedup(baseline: Sequence[float], candidate: Sequence[float]) -> Speedup:
    """The speedup of `candidate` over `baseline`, given their samples in seconds, which are
    resampled independently of each other."""
    base, other = np.asarray(baseline, np.float64), np.asarray(candidate, np.float64)
    ratios = _bootstrap_medians(base, 1) / _bootstrap_medians(other, 2)
    low, high = np.quantile(ratios, [0.025, 0.975])
    return Speedup(
        float(np.median(base) / np.median(other)),
        float(low),
        float(high),
        float(base.mean() / other.mean()),
    )


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean of positive numbers (at least one)."""
    return float(np.exp(np.mean(np.log(np.asarray(values, np.float64)))))


def fast_p(speedups: Sequence[float | None], threshold: float) -> float:
    """The share of tasks whose kernel is correct and more than `threshold` times as fast as the
    baseline (KernelBench, arXiv 2502.10517). A speedup of None, as of a failed kernel, never counts
    as fast."""
    if not speedups:
        return 0.0
    return sum(gain is not None and gain > threshold for gain in speedups) / len(speedups)


@attrs.frozen
class Baseline:
    """One baseline: its class of precision, its times, and the kernel's speedup over it. `speedup`
    is None where the classes differ, and where the baseline is `idle`: it only makes a view.
    `roofline` is the time of a perfect kernel over the median. `comparisons` are of one sample's
    outputs."""

    name: str
    precision: str
    times: Summary
    speedup: Speedup | None
    roofline: float
    comparisons: tuple[Comparison, ...]
    idle: bool = False


@attrs.frozen
class Measurement:
    """The result of a measurement, times in seconds. `roofline` is the time of a perfect kernel
    over the median. `comparisons` are of the outputs of timed samples; `problems` say why the times
    do not count, if they do not. `task_text` is the text of the task's file when it was checked;
    `own_list` names the one of the task's lists of inputs that was measured, "" for the default."""

    sketch: str
    target: str
    hardware: str
    task: str
    kernel_file: str
    source: str
    sketch_text: str
    machine: Machine
    symbols: Mapping[str, int]
    shapes: Mapping[str, tuple[int, ...]]
    constants: Mapping[str, Scalar]
    params: Mapping[str, Scalar]
    settings: Settings
    input_sets: int
    precision: Precision
    kernel: Summary
    baselines: Mapping[str, Baseline]
    work: Work
    floor: Floor
    roofline: float
    comparisons: tuple[Comparison, ...]
    problems: tuple[Problem, ...]
    run: Run
    surroundings: Mapping[str, Any]
    versions: Mapping[str, str]
    notes: tuple[str, ...] = ()
    task_text: str = attrs.field(default="", repr=False)
    own_list: str = ""

    @property
    def passed(self) -> bool:
        """Whether the measurement counts: it has no `problems`."""
        return not self.problems

    @property
    def failure(self) -> str:
        """The class of the first problem; "" for none."""
        return self.problems[0].failure if self.problems else ""

    @property
    def believable(self) -> bool:
        """Whether the times can be believed, whatever the outputs are: no problem is of the class
        "policy"."""
        return all(problem.failure != "policy" for problem in self.problems)

    @property
    def disputed(self) -> bool:
        """Whether only the times are a problem: all outputs are right, and nothing was changed."""
        right = all(comparison.passed for comparison in self.comparisons)
        return bool(self.problems) and right and not self.run.changes

    @property
    def too_few(self) -> bool:
        """Whether there are fewer than `ENOUGH_SAMPLES` samples of the kernel."""
        return self.kernel.samples < ENOUGH_SAMPLES

    @property
    def eager(self) -> Summary:
        """The times of the eager baseline."""
        return self.baselines["eager"].times

    @property
    def speedup(self) -> Speedup | None:
        """The speedup over eager; None where eager has another class of precision, or is idle."""
        return self.baselines["eager"].speedup

    @property
    def sol_score(self) -> float | None:
        """The share, from 0 to 1, that the kernel saves of eager's time beyond a perfect kernel's
        (`floor.roofline`); None where no speedup may be quoted, or eager is as fast as that."""
        eager, least = self.eager.median, self.floor.roofline
        if self.speedup is None or eager <= least:
            return None
        return min(1.0, max(0.0, (eager - self.kernel.median) / (eager - least)))

    @property
    def bytes(self) -> int:
        """The bytes that a perfect kernel moves."""
        return self.work.moved

    @property
    def flops(self) -> int:
        """The number of floating-point operations that a perfect kernel computes."""
        return self.work.operations

    @property
    def samples(self) -> dict[str, list[float]]:
        """The seconds of all samples, by contender."""
        names = (*self.run.baselines, "kernel")
        return {name: self.run.seconds(name) for name in names}


def surroundings() -> dict[str, Any]:
    """The machine's load averages, this process's processors, and their governors and clock
    frequencies, as JSON-able data."""

    def told(name: str) -> list[str]:
        found = []
        for path in sorted(Path("/sys/devices/system/cpu").glob(f"cpu[0-9]*/cpufreq/{name}")):
            with contextlib.suppress(OSError):
                found.append(path.read_text().strip())
        return found

    return {
        "load": list(os.getloadavg()),
        "processors": sorted(os.sched_getaffinity(0)),
        "governors": sorted(set(told("scaling_governor"))),
        "kilohertz": [int(text) for text in told("scaling_cur_freq")],
    }
