"""Several kernels against their tasks: the share that is faster, and the mean of the speedups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from sketchc.runtime.bench.measurement import Measurement, fast_p, geometric_mean
from sketchc.runtime.verify.words import INCOMPLETE

#: fast_p is given for these p: right at all, faster, twice as fast.
THRESHOLDS = (0.0, 1.0, 2.0)


@attrs.frozen
class Entry:
    """One kernel and its task: what was measured, or the class of failure and why not.

    A `broken` task is nobody's failure: the kernel is not counted. One that is "incomplete" is: it
    is not known to be right. `own_list`: which of several lists of the task's inputs it is.
    """

    kernel: str
    task: str
    measurement: Measurement | None = None
    failure: str = ""
    reason: str = ""
    broken: bool = False
    own_list: str = ""

    @property
    def name(self) -> str:
        """Of the kernel, and of the list where it is not the leading one."""
        return f"{self.kernel} ({self.own_list})" if self.own_list else self.kernel

    @property
    def passed(self) -> bool:
        return self.measurement is not None and self.measurement.passed

    @property
    def incomplete(self) -> bool:
        return self.failure == INCOMPLETE

    def gain(self, baseline: str) -> float | None:
        """The speedup of medians; None for a kernel that failed, or has no such baseline."""
        if self.measurement is None or not self.measurement.passed:
            return None
        found = self.measurement.baselines.get(baseline)
        return None if found is None or found.speedup is None else found.speedup.of_medians


@attrs.frozen
class Against:
    """All kernels against one baseline. `fast` maps p to fast_p, in which a kernel that failed, or
    may not be compared, counts as not fast; `geometric_mean` is of the `compared` ones alone."""

    baseline: str
    kernels: int
    compared: int
    fast: dict[float, float]
    geometric_mean: float | None
    incomplete: int = 0


def against(entries: Sequence[Entry], baselines: Sequence[str]) -> tuple[Against, ...]:
    """The summary for each baseline, of the kernels whose tasks do."""
    entries = [entry for entry in entries if not entry.broken]
    found = []
    for baseline in baselines:
        gains = [entry.gain(baseline) for entry in entries]
        known = [gain for gain in gains if gain is not None]
        found.append(
            Against(
                baseline,
                len(entries),
                len(known),
                {threshold: fast_p(gains, threshold) for threshold in THRESHOLDS},
                geometric_mean(known) if known else None,
                sum(entry.incomplete for entry in entries),
            )
        )
    return tuple(found)


def text(summary: Against) -> str:
    """One line."""
    shares = ", ".join(f"fast_{p:g} {share:.0%}" for p, share in summary.fast.items())
    beside = f" ({summary.incomplete} incomplete)" if summary.incomplete else ""
    mean = "none" if summary.geometric_mean is None else f"{summary.geometric_mean:.2f}x"
    return (
        f"against {summary.baseline}: {shares} of {summary.kernels} kernels{beside}; "
        f"geometric mean {mean} over {summary.compared}"
    )


def to_json(summary: Against) -> dict[str, Any]:
    """Plain data."""
    return {
        "baseline": summary.baseline,
        "kernels": summary.kernels,
        "compared": summary.compared,
        "incomplete": summary.incomplete,
        "fast_p": {f"{p:g}": share for p, share in summary.fast.items()},
        "geometric_mean": summary.geometric_mean,
    }
