"""What is counted of a suite: pass@k, shares, speedups; by category and over all.

Equations are those of arXiv 2512.23424. A task whose verdict is incomplete has not passed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import attrs

from sketchc.agents.suites.samples import Sample
from sketchc.runtime.bench.measurement import geometric_mean
from sketchc.runtime.verify.words import FAILED, INCOMPLETE, PASSED

#: fast_p is given for these p: those of table 3, and twice as fast.
THRESHOLDS = (0.8, 1.0, 2.0)
ALL = "all"
#: The heading of equation 11.
MEAN = "geometric mean"
#: How much of the way from eager to a perfect kernel's time was gone.
SCORE = "SOL score"


@attrs.frozen
class TaskResult:
    """One task with its samples, in their order."""

    name: str
    category: str
    samples: tuple[Sample, ...]

    @property
    def right(self) -> int:
        """How many samples passed."""
        return sum(sample.passed for sample in self.samples)

    @property
    def best(self) -> Sample:
        """The sample that speaks for the task: one that passed, the fastest of several, else one
        that is incomplete, else the first."""

        def rank(sample: Sample) -> tuple[bool, bool, float]:
            return sample.passed, sample.incomplete, sample.speedup or 0.0

        return max(self.samples, key=rank)

    @property
    def word(self) -> str:
        """passed, incomplete or failed, of the best sample."""
        best = self.best
        return PASSED if best.passed else INCOMPLETE if best.incomplete else FAILED

    @property
    def speedup(self) -> float | None:
        """The speedup of the best right kernel; None without one that was measured."""
        return self.best.speedup if self.best.passed else None


@attrs.frozen
class Totals:
    """What is counted of a category. `own_sizes` of the tasks that passed did so at their own
    sizes, not at smaller ones. `shapes` are the cases at other sizes of all kernels that are right
    at the task's sizes. `geometric_mean` and `sol_score`, a mean, are over the `measured` tasks
    alone; `fast` is over all."""

    category: str
    tasks: int
    passed: int
    incomplete: int
    failed: int
    pass_at: Mapping[int, float]
    own_sizes: int
    shapes: int
    shapes_passed: int
    measured: int
    fast: Mapping[float, float]
    geometric_mean: float | None
    sol_score: float | None
    seconds: float

    @property
    def shape_share(self) -> float | None:
        """The share of shape cases passed by kernels that pass their static case."""
        return self.shapes_passed / self.shapes if self.shapes else None


def headings(whole: Totals) -> list[str]:
    """The headings of the columns that `cells` fills; speeds only where something was measured."""
    found = ["tasks", "passed", "incomplete", "failed", "at own sizes"]
    found += [*(f"pass@{k}" for k in whole.pass_at), "shape cases"]
    return found + ([*(f"fast_{p:g}" for p in whole.fast), MEAN, SCORE] if whole.measured else [])


def cells(row: Totals, whole: Totals) -> list[str]:
    """A line of a table of totals, of which `whole` is the last."""
    counts = (row.tasks, row.passed, row.incomplete, row.failed, row.own_sizes)
    found = [*map(str, counts), *(f"{row.pass_at[k]:.1%}" for k in whole.pass_at)]
    found.append("" if row.shape_share is None else f"{row.shape_share:.1%} of {row.shapes}")
    if whole.measured:
        found += [f"{share:.1%}" for share in row.fast.values()]
        found.append("" if row.geometric_mean is None else f"{row.geometric_mean:.2f}x")
        found.append("" if row.sol_score is None else f"{row.sol_score:.2f}")
    return found


def pass_at(k: int, counts: Sequence[tuple[int, int]]) -> float:
    """pass@k (equation 4, unbiased) of tasks as (samples, right ones), each with `k` or more.

    Raises `ValueError` for a task with fewer.
    """
    if not counts:
        return 0.0
    if any(not 0 <= right <= samples or samples < k for samples, right in counts):
        raise ValueError(f"pass@{k} needs {k} samples of each task")
    # math.comb is exact, and 0 where fewer than k samples are wrong.
    missed = (math.comb(samples - right, k) / math.comb(samples, k) for samples, right in counts)
    return math.fsum(1.0 - share for share in missed) / len(counts)


def fast_share(speedups: Sequence[float | None], threshold: float) -> float:
    """Equation 6 of the paper: the share of tasks that are at least `threshold` times as fast as
    the baseline. None: no right kernel was measured, which never counts."""
    if not speedups:
        return 0.0
    return sum(gain is not None and gain >= threshold for gain in speedups) / len(speedups)


def totals(results: Sequence[TaskResult]) -> tuple[Totals, ...]:
    """The totals of each category, in the order in which they come, and over all at the end."""
    categories = dict.fromkeys(result.category for result in results)
    parts = [(name, [r for r in results if r.category == name]) for name in categories]
    return tuple(_total(name, part) for name, part in (*parts, (ALL, list(results))))


def _total(category: str, results: Sequence[TaskResult]) -> Totals:
    samples = [sample for result in results for sample in result.samples]
    words = [result.word for result in results]
    counts = [(len(result.samples), result.right) for result in results]
    most = min((count for count, _ in counts), default=0)
    gains = [result.speedup for result in results]
    known = [gain for gain in gains if gain is not None]
    scores = [s for r in results if r.speedup is not None and (s := r.best.sol_score) is not None]
    return Totals(
        category,
        len(results),
        passed=words.count(PASSED),
        incomplete=words.count(INCOMPLETE),
        failed=words.count(FAILED),
        pass_at={k: pass_at(k, counts) for k in sorted({1, most}) if 0 < k <= most},
        own_sizes=sum(result.best.passed and result.best.own for result in results),
        shapes=sum(sample.shapes for sample in samples if sample.static),
        shapes_passed=sum(sample.shapes_passed for sample in samples if sample.static),
        measured=len(known),
        fast={p: fast_share(gains, p) for p in THRESHOLDS},
        geometric_mean=geometric_mean(known) if known else None,
        sol_score=math.fsum(scores) / len(scores) if scores else None,
        seconds=sum(sample.seconds for sample in samples),
    )
