"""Where the Designer's sketches hold in f64 what goes on from one part of a row to the next.

A running product leaves the range of f32 and comes back, and a sum of very many parts, added one
after the other, loses digits that PyTorch keeps: it adds pairs, and carries products in f64.
The terms of such a sum are f64, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import attrs

from sketchc.agents.autosketch.loops import Axis
from sketchc.agents.autosketch.means import is_of_differences
from sketchc.agents.autosketch.phase import Pass, Running
from sketchc.base.types import DType
from sketchc.ir.evaluate import evaluate
from sketchc.ir.walk import names

#: A sum of more terms is one of very many parts; so is one with more terms than the second number
#: that are added one after the other: of equal ones, what is lost grows with their number, what is
#: allowed with its root, and at 4,096 they meet. Of differences to one number, which may be much
#: larger than the others, a sum loses digits of that number's times their number: the third.
_MANY, _MANY_IN_A_ROW, _MANY_DIFFERENCES = 2**16, 2**12, 2**8


@attrs.frozen
class Doubles:
    """`exist`: whether the target has f64. `sizes`: the largest of the symbols in the
    task's own inputs."""

    exist: bool
    sizes: Mapping[str, int]

    def type_of(self, held: Pass | Running, loops: Sequence[Axis] = ()) -> DType:
        """The type in which a reduction or a scan goes on from part to part; `loops` are the axes
        whose terms are added one after the other."""
        if isinstance(held, Running):
            needed = held.operation == "prod"
        else:
            most = _MANY_DIFFERENCES if is_of_differences(held.body, held.over) else _MANY_IN_A_ROW
            long = self._terms(held.over) > _MANY or self._terms(loops) > most
            needed = held.operation == "sum" and long
        return DType.F64 if self.exist and needed and held.dtype is DType.F32 else held.dtype

    def _terms(self, over: Sequence[Axis]) -> int:
        """How many terms there are along axes; an extent that is not known counts as 1."""
        extents = (axis.extent for axis in over)
        known = (evaluate(e, self.sizes) for e in extents if self.sizes.keys() >= set(names(e)))
        return math.prod(map(int, known))
