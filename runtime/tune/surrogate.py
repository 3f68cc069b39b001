"""A surrogate for likelihood-free Bayesian optimisation: which open points may be faster than most.

After "A General Recipe for Likelihood-free Bayesian Optimization" (Song et al., ICML 2022): a
classifier that tells fast points from all points, where each fast point weighs as much as it is
faster than the threshold, ranks open points as their expected improvement does. The classifier here
is a logistic regression on radial basis functions around the measured points: a space of tile sizes
is small and smooth, and some tens of points decide.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

#: The share of the measured points that counts as fast.
_FAST = 0.3
#: The width of a radial basis function, for each axis, in standard deviations of the axis.
_WIDTH = 1.0
#: How much large weights cost.
_RIDGE = 0.1
#: The most points that are taken into account: the work grows with their cube.
_MOST_KNOWN = 192
#: Newton steps; some six suffice.
_STEPS = 12


def standardised(features: Floats) -> Floats:
    """Each column with mean 0 and standard deviation 1; constant columns are 0."""
    deviation = features.std(axis=0)
    scaled: Floats = (features - features.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    return scaled


def improvement_scores(known: Floats, times: Floats, open_points: Floats) -> Floats:
    """A score of each open point, larger where it promises more; `known` are the features of points
    (points by axes, standardised) that took `times` (their logarithms). Of many known points the
    fastest half of `_MOST_KNOWN` and an even choice of the others count."""
    if len(times) > _MOST_KNOWN:
        order = np.argsort(times, kind="stable")
        half = _MOST_KNOWN // 2
        others = np.linspace(half, len(times) - 1, half).astype(np.int64)
        kept = order[np.concatenate([np.arange(half), others])]
        known, times = known[kept], times[kept]
    number = len(times)
    fast = max(1, int(np.ceil(_FAST * number)))
    threshold = np.sort(times)[min(fast, number - 1)]
    gains: Floats = np.maximum(threshold - times, 0.0)
    gains = np.asarray(gains / gains.mean(), np.float64) if gains.any() else np.ones(number)
    # In the basis of the kernel's Cholesky factor the ridge on weights is that of the kernel.
    gram = _kernel(known, known) + 1e-6 * np.eye(number)
    factor: Floats = np.asarray(np.linalg.cholesky(gram), np.float64)
    weights = _logistic(factor, gains)
    basis = np.linalg.solve(factor, _kernel(known, open_points)).T
    scores: Floats = basis @ weights[:-1] + weights[-1]
    return scores


def _kernel(left: Floats, right: Floats) -> Floats:
    axes = max(left.shape[1], 1)
    distance = ((left[:, None, :] - right[None, :, :]) ** 2).sum(axis=-1)
    found: Floats = np.exp(-distance / (2.0 * _WIDTH**2 * axes))
    return found


def _logistic(basis: Floats, gains: Floats) -> Floats:
    """The weights, the intercept last, that tell points weighted by `gains` from all points."""
    number = len(gains)
    rows = np.concatenate([basis, basis])
    rows = np.concatenate([rows, np.ones((2 * number, 1))], axis=1)
    labels = np.concatenate([np.ones(number), np.zeros(number)])
    counts = np.concatenate([gains, np.ones(number)])
    ridge = np.diag(np.concatenate([np.full(number, _RIDGE), [1e-6]]))
    weights: Floats = np.zeros(number + 1)
    for _ in range(_STEPS):
        likely = 1.0 / (1.0 + np.exp(-np.clip(rows @ weights, -30.0, 30.0)))
        slope = rows.T @ (counts * (likely - labels)) + ridge @ weights
        curvature = (rows * (counts * likely * (1.0 - likely))[:, None]).T @ rows + ridge
        weights = weights - np.linalg.solve(curvature + 1e-9 * np.eye(number + 1), slope)
    return weights
