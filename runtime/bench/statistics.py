"""Medians with bootstrap intervals, and what a speedup is."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

#: Fewer samples than this say too little about a median; a measurement of fewer is flagged.
ENOUGH_SAMPLES = 30


@attrs.frozen
class Summary:
    """Samples in seconds, reduced: `low` and `high` bound the median with 95 % confidence."""

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
    """Reduce samples (at least one); deterministic."""
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
    """How many times faster the candidate is. The two are resampled independently."""
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
    """Of positive numbers (at least one)."""
    return float(np.exp(np.mean(np.log(np.asarray(values, np.float64)))))


def fast_p(speedups: Sequence[float | None], threshold: float) -> float:
    """The share of tasks whose kernel is right and more than `threshold` times as fast as the
    baseline (KernelBench, arXiv 2502.10517). None: the kernel failed, which never counts."""
    if not speedups:
        return 0.0
    return sum(gain is not None and gain > threshold for gain in speedups) / len(speedups)
