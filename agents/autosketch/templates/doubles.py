"""Where the Designer's sketches hold in f64 what goes on from one part of a row to the next.

A running product leaves the range of f32 and comes back, and a sum of very many parts, added one
after the other, loses digits that PyTorch keeps: it adds pairs, and carries products in f64.
The terms of such a sum are f64, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import attrs

from sketchc.agents.autosketch.phase import Pass, Running
from sketchc.base.types import DType
from sketchc.ir.evaluate import evaluate
from sketchc.ir.walk import names

#: A sum of more terms is one of very many parts.
_MANY = 2**16


@attrs.frozen
class Doubles:
    """`exist`: whether the target has f64. `sizes`: of the symbols, in the task's own inputs."""

    exist: bool
    sizes: Mapping[str, int]

    def type_of(self, held: Pass | Running) -> DType:
        """The type in which a reduction or a scan goes on from part to part."""
        if isinstance(held, Running):
            needed = held.operation == "prod"
        else:
            needed = held.operation == "sum" and self._terms(held) > _MANY
        return DType.F64 if self.exist and needed and held.dtype is DType.F32 else held.dtype

    def _terms(self, total: Pass) -> int:
        """How many terms a reduction has; an extent that is not known counts as 1."""
        extents = (axis.extent for axis in total.over)
        known = (evaluate(e, self.sizes) for e in extents if self.sizes.keys() >= set(names(e)))
        return math.prod(map(int, known))
