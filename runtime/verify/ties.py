"""Indices that differ on a tie: argmax, argmin, topk and sort may name any of equal elements.

An integer output counts as indices of an input where the reference's indices select, along one
axis, the largest or smallest elements of that input, in order. Then another index is as good where
it selects an equal element, and where no element is named twice. Of values that the task computes
first (the two largest of a softmax), elements count as equal that are within tolerance: rounding
orders them, differently in each precision.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from sketchc.runtime.process.arrays import Array


def differs_on_ties_only(
    actual: Array, reference: Array, inputs: Iterable[Array], rtol: float = 0.0
) -> bool:
    """Whether `actual` (integers, of the reference's shape) is as good as the reference: indices
    into one of `inputs` that select equal elements everywhere, or as good as equal by `rtol` (of an
    element and of the root mean square)."""
    if reference.size == 0 or reference.dtype == np.bool_:
        return False
    for source in inputs:
        for values, wanted, found in _readings(source, reference, actual):
            if _selects_equal(values, wanted, found, rtol):
                return True
    return False


def _readings(
    source: Array, reference: Array, actual: Array
) -> Iterator[tuple[Array, Array, Array]]:
    """(input, reference, actual), each with the axis that the indices may be of at the end."""
    if source.ndim == 0:
        return
    if reference.size == 1:  # of the flattened input
        yield source.reshape(-1), reference.reshape(-1), actual.reshape(-1)
    for axis, extent in enumerate(source.shape):
        others = source.shape[:axis] + source.shape[axis + 1 :]
        moved = np.moveaxis(source, axis, -1)
        if reference.shape == others:
            yield moved, reference[..., None], actual[..., None]
        elif reference.ndim == source.ndim and reference.shape[axis] <= extent:
            ends = (np.moveaxis(reference, axis, -1), np.moveaxis(actual, axis, -1))
            if ends[0].shape[:-1] == others:
                yield moved, *ends


def _selects_equal(values: Array, reference: Array, actual: Array, rtol: float) -> bool:
    """Whether both select the same of `values` along the last axis, and the reference its extremes;
    no index may occur twice."""
    extent = values.shape[-1]
    for indices in (reference, actual):
        if indices.min() < 0 or indices.max() >= extent:
            return False
    in_order = np.sort(actual, axis=-1)
    if (in_order[..., 1:] == in_order[..., :-1]).any():
        return False
    wide = values.astype(np.float64) if values.dtype.kind not in "iub" else values
    wanted = np.take_along_axis(wide, reference.astype(np.int64), -1)
    found = np.take_along_axis(wide, actual.astype(np.int64), -1)
    if not _equal(wanted, found) and not (rtol and _near(wanted, found, values, rtol)):
        return False
    smallest = np.sort(wide, axis=-1)
    count = reference.shape[-1]
    # NaNs are sorted to the end, as torch has them: larger than everything.
    return _equal(wanted, smallest[..., :count]) or _equal(wanted, smallest[..., ::-1][..., :count])


def _near(wanted: Array, found: Array, values: Array, rtol: float) -> bool:
    """Whether elements of `values` are equal but for rounding."""
    with np.errstate(all="ignore"):
        finite = values[np.isfinite(values)].astype(np.float64)
        scale = float(np.sqrt(np.mean(finite * finite))) if finite.size else 0.0
        close = np.abs(wanted - found) <= rtol * (np.abs(wanted) + scale)
        same = (wanted == found) | (np.isnan(wanted) & np.isnan(found))
    return bool((close | same).all())


def _equal(first: Array, second: Array) -> bool:
    if first.dtype.kind == "f":
        return bool(np.array_equal(first, second, equal_nan=True))
    return bool(np.array_equal(first, second))
