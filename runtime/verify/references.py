"""The task's outputs in float64, and what its own arithmetic makes of them.

The rule is calibrated so that the framework's own kernels pass. Where they do not, it asks for
more than the task delivers: in the tail of gelu, `1 + erf(x)` cancels in any float32; the float32
squares of denormal numbers are zero; large logits lose digits that exp then amplifies. So where a
candidate breaks the rule, and the task's own result in the task's own precision breaks it, too,
somewhere in the same output,

- an element passes whose error is at most `FACTOR` times the task's own largest error in its row
  (along the last axis: what amplifies an error is mostly shared there), and
- on inputs of extreme magnitude, an element is not judged that is wrong in the task's own result
  (an infinity here, a large number there: neither is nearer to the truth).

An integer that follows from floating-point numbers (a quantised value, a place) may lie on either
side of a border: it must equal the task's result in float64, or that in the task's own precision.
An index of the largest or smallest elements of an input may differ on a tie (`ties`).

The task is asked only when a candidate fails.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np

from sketchc.runtime.frontends.arrays import Array, numpy_dtype
from sketchc.runtime.frontends.torch_task import TaskFailure
from sketchc.runtime.verify.compare import Comparison, compare, wrong_elements
from sketchc.runtime.verify.ties import differs_on_ties_only
from sketchc.types import DType

#: How far from the exact value an element may be, in the task's own largest error in its row.
FACTOR = 4.0
#: Kinds of inputs whose values may lie beyond what the task's own precision can carry.
EXTREME_KINDS = frozenset({"structured", "mixed_scale", "large"})


@attrs.define
class References:
    """`arrays` are the outputs in float64; `own` runs the task in its own precision on the same
    inputs, and is None where nothing is excused; `extreme`: the inputs are of extreme magnitude;
    `inputs` are what indices may be of."""

    arrays: list[Array]
    own: Callable[[], list[Array]] | None = None
    extreme: bool = False
    inputs: tuple[Array, ...] = ()
    _own_arrays: list[Array] | None = None

    def compare(
        self, position: int, name: str, actual: Array, dtype: DType, length: int
    ) -> Comparison:
        """`verify.compare.compare` for the output at `position`, with the excused left out."""
        reference = self.arrays[position]
        found = compare(name, actual, reference, dtype, length)
        if found.failure != "numerical":
            return found
        if not dtype.is_float and differs_on_ties_only(actual, reference, self.inputs):
            reason = f"equal but for {found.wrong} indices of equal elements"
            return Comparison(name, "", reason, reference.size)
        if self.own is None:
            return found
        if self._own_arrays is None:
            try:
                self._own_arrays = self.own()
            except TaskFailure:  # the framework may have no kernel of that precision here
                self.own = None
                return found
        own = self._own_arrays[position]
        if own.shape != reference.shape:
            return found
        if not dtype.is_float:
            # Both are the task's results: what is right in either is right.
            either = np.where(actual == own, own, reference)
            return compare(name, actual, either.astype(reference.dtype), dtype, length)
        rounded = own.astype(numpy_dtype(dtype))
        own_wrong = wrong_elements(rounded, reference, dtype, length)
        if not own_wrong.any():
            return found
        excused = _as_near(actual, rounded, reference)
        if self.extreme:
            excused |= own_wrong
        return compare(name, actual, reference, dtype, length, excused)


def _as_near(actual: Array, own: Array, reference: Array) -> Array:
    """Where `actual` is at most `FACTOR` times as far from the reference as `own` is anywhere in
    the row; finite values only."""
    with np.errstate(all="ignore"):
        error = np.abs(actual.astype(np.float64) - reference)
        own_error = np.abs(own.astype(np.float64) - reference)
        own_error = np.where(np.isfinite(own_error), own_error, 0.0)
        largest = own_error.max(axis=-1, keepdims=True) if own_error.ndim else own_error
        near: Array = np.isfinite(error) & (error <= FACTOR * largest)
    return near
