"""Values of the host's scalars where sizes are estimated before they are known."""

from __future__ import annotations

from collections.abc import Mapping

from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import constants_of, sample_let

#: Host values by name.
Values = Mapping[str, int | float | bool]
#: What an unbounded symbol counts as while sizes are estimated.
SAMPLE = 1024


def sample_values(sketch: ir.Sketch) -> dict[str, int | float | bool]:
    """Host values for size estimates: the upper bound of a symbol or `let`, or `SAMPLE`; params
    default to 1."""
    symbols = {s.name: SAMPLE if s.upper_bound is None else s.upper_bound for s in sketch.symbols}
    values: dict[str, int | float | bool] = {**constants_of(sketch), **symbols}
    values |= {p.name: 1 if p.default is None else p.default for p in sketch.params}
    for let in sketch.lets:
        bound = let.upper_bound
        values[let.name] = sample_let(let, values) if bound is None else bound
    return values
