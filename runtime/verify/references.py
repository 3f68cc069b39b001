"""The task's outputs in float64, and the elements that the task's own arithmetic gets wrong.

A float32 sum of squares of denormal numbers is zero, in the task as in any kernel, while the
float64 reference is not. The rule is calibrated so that the framework's own kernels pass, so on
inputs of extreme magnitude an element is not judged where the task itself, in its own precision,
fails the very same rule. The task is asked only when a candidate fails, and never excuses anybody
on inputs of ordinary magnitude.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from sketchc.runtime.frontends.arrays import Array, numpy_dtype
from sketchc.runtime.frontends.torch_task import TaskFailure
from sketchc.runtime.verify.compare import Comparison, compare, wrong_elements
from sketchc.types import DType

#: Kinds of inputs whose values may lie beyond what the task's own precision can carry.
EXTREME_KINDS = frozenset({"structured", "mixed_scale", "large"})


@attrs.define
class References:
    """`arrays` are the outputs in float64; `own` runs the task in its own precision on the same
    inputs, and is None where nothing is excused."""

    arrays: list[Array]
    own: Callable[[], list[Array]] | None = None
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
        excused = wrong_elements(own.astype(numpy_dtype(dtype)), reference, dtype, length)
        if not excused.any():
            return found
        return compare(name, actual, reference, dtype, length, excused)
