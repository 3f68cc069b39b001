"""The task's outputs in float64, and what its own arithmetic makes of them.

The rule is calibrated so that the framework's own kernels pass. Where they do not, it asks for
more than the task delivers: in the tail of gelu, `1 + erf(x)` cancels in any float32; the float32
squares of denormal numbers are zero. So an element that breaks the rule is held against the task's
own result in the task's own precision. Where that breaks the rule, too,

- an element at most `FACTOR` times as far from the exact value as the task's own passes, and
- on inputs of extreme magnitude, the element is not judged (an infinity here, a large number there:
  neither is nearer to the truth).

The task is asked only when a candidate fails.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np

from sketchc.runtime.frontends.arrays import Array, numpy_dtype
from sketchc.runtime.frontends.torch_task import TaskFailure
from sketchc.runtime.verify.compare import Comparison, compare, wrong_elements
from sketchc.types import DType

#: How far from the exact value an element may be, in errors of the task's own.
FACTOR = 4.0
#: Kinds of inputs whose values may lie beyond what the task's own precision can carry.
EXTREME_KINDS = frozenset({"structured", "mixed_scale", "large"})


@attrs.define
class References:
    """`arrays` are the outputs in float64; `own` runs the task in its own precision on the same
    inputs, and is None where nothing is excused; `extreme`: the inputs are of extreme magnitude."""

    arrays: list[Array]
    own: Callable[[], list[Array]] | None = None
    extreme: bool = False
    _own_arrays: list[Array] | None = None

    def compare(
        self, position: int, name: str, actual: Array, dtype: DType, length: int
    ) -> Comparison:
        """`verify.compare.compare` for the output at `position`, with the excused left out."""
        reference = self.arrays[position]
        found = compare(name, actual, reference, dtype, length)
        if found.failure != "numerical" or not dtype.is_float or self.own is None:
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
        rounded = own.astype(numpy_dtype(dtype))
        excused = wrong_elements(rounded, reference, dtype, length)
        if not self.extreme:
            excused &= _as_near(actual, rounded, reference)
        if not excused.any():
            return found
        return compare(name, actual, reference, dtype, length, excused)


def _as_near(actual: Array, own: Array, reference: Array) -> Array:
    """Where `actual` is at most `FACTOR` times as far from the reference as `own`; finite values
    only."""
    with np.errstate(all="ignore"):
        error = np.abs(actual.astype(np.float64) - reference)
        allowed = FACTOR * np.abs(own.astype(np.float64) - reference)
        near: Array = np.isfinite(error) & np.isfinite(allowed) & (error <= allowed)
    return near
