"""Two runs of a suite side by side: what one passes and the other does not, and which is faster.

Both are paired by task. The test on passes is McNemar's, exact; with several samples of a task, the
run with the larger share of right ones wins it, and the same test counts wins. The test on times is
the sign test on which kernel is faster. Both are two-sided: p is the chance of a difference that
large between runs that are alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs
import numpy as np

from sketchc.agents.suites.metrics import ALL, TaskResult
from sketchc.agents.suites.run import Results
from sketchc.runtime.bench.measurement import geometric_mean

#: Below this p a difference is called significant.
LEVEL = 0.05
_RESAMPLES = 2000


@attrs.frozen
class Speeds:
    """Tasks that both runs measured: how many times faster the second's kernels are by geometric
    mean, with its 95 % interval, and on how many tasks which is faster."""

    tasks: int
    ratio: float
    low: float
    high: float
    faster: int
    slower: int
    p: float


@attrs.frozen
class Difference:
    """One category. `gained` are the tasks that the second run wins, `lost` those that the first
    does; `first` and `second` count tasks that passed."""

    category: str
    tasks: int
    first: int
    second: int
    gained: tuple[str, ...]
    lost: tuple[str, ...]
    p: float
    speeds: Speeds | None

    @property
    def significant(self) -> bool:
        """Whether the passes of the two differ by more than chance does."""
        return self.p < LEVEL


@attrs.frozen
class Compared:
    """`rows` are by category and over all at the end. `unpaired` tasks are in one run only, or are
    not the same file in both."""

    rows: tuple[Difference, ...]
    unpaired: tuple[str, ...]


def sign_test(wins: int, losses: int) -> float:
    """The two-sided p of so many wins and losses, if either is as likely: McNemar's exact test on
    the tasks that only one of two runs passes."""
    trials = wins + losses
    tail = sum(math.comb(trials, place) for place in range(min(wins, losses) + 1))
    every: int = 2**trials
    return min(1.0, 2 * tail / every)


def compare(first: Results, second: Results) -> Compared:
    """Two runs compared on all tasks that are the same in both."""
    others = {task.name: task for task in second.tasks}
    pairs = [
        (task, others[task.name])
        for task in first.tasks
        if task.name in others and _digest(task) == _digest(others[task.name])
    ]
    names = {task.name for task, _ in pairs}
    unpaired = dict.fromkeys(t.name for t in (*first.tasks, *second.tasks) if t.name not in names)
    categories = dict.fromkeys(task.category for task, _ in pairs)
    parts = [(name, [pair for pair in pairs if pair[0].category == name]) for name in categories]
    rows = tuple(_difference(name, part) for name, part in (*parts, (ALL, pairs)))
    return Compared(rows, tuple(unpaired))


def _digest(task: TaskResult) -> str:
    return task.samples[0].digest


def _difference(category: str, pairs: Sequence[tuple[TaskResult, TaskResult]]) -> Difference:
    # Cross-multiplied: shares of right samples, of which the runs may have different numbers.
    signs = [
        (one.name, two.right * len(one.samples) - one.right * len(two.samples))
        for one, two in pairs
    ]
    gained = tuple(name for name, sign in signs if sign > 0)
    lost = tuple(name for name, sign in signs if sign < 0)
    return Difference(
        category,
        len(pairs),
        sum(one.best.passed for one, _ in pairs),
        sum(two.best.passed for _, two in pairs),
        gained,
        lost,
        sign_test(len(gained), len(lost)),
        _speeds(pairs),
    )


def _speeds(pairs: Sequence[tuple[TaskResult, TaskResult]]) -> Speeds | None:
    """The speeds of the second runs over the first; None where no task was measured in both."""
    ratios = [
        two.speedup / one.speedup
        for one, two in pairs
        if one.speedup is not None and two.speedup is not None
    ]
    if not ratios:
        return None
    logs = np.log(np.asarray(ratios, np.float64))
    picks = np.random.default_rng(0).integers(0, logs.size, (_RESAMPLES, logs.size))
    low, high = np.exp(np.quantile(logs[picks].mean(axis=1), [0.025, 0.975]))
    faster, slower = sum(ratio > 1 for ratio in ratios), sum(ratio < 1 for ratio in ratios)
    return Speeds(
        len(ratios),
        geometric_mean(ratios),
        float(low),
        float(high),
        faster,
        slower,
        sign_test(faster, slower),
    )
