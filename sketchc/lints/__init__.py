"""Advice that an expert would give about a correct sketch; none of it changes meaning.

A lint looks at one elaborated sketch with its domains and gives warnings; it never runs on a sketch
with errors. Lints that depend on the chip are in `lowering/lints`.
"""

from __future__ import annotations

from sketchc.base.diagnostics import Diagnostic
from sketchc.ir import nodes as ir
from sketchc.lints.narrow_accumulation import narrow_accumulation
from sketchc.lints.passes import fusable_launches, separate_passes
from sketchc.lints.repeated_load import repeated_loads
from sketchc.lints.scattered_lanes import scattered_lanes
from sketchc.lints.unused import unused_loads, unused_params, unused_tiles
from sketchc.parsing import syntax

#: All lints, in the order of their advice: functions of a sketch and the tree that it is made from.
LINTS = (
    unused_loads,
    unused_tiles,
    unused_params,
    narrow_accumulation,
    scattered_lanes,
    repeated_loads,
    separate_passes,
    fusable_launches,
)


def lint(sketch: ir.Sketch, tree: syntax.Sketch) -> tuple[Diagnostic, ...]:
    """All advice about a sketch, which was elaborated from `tree`, in the order of `LINTS`."""
    return tuple(dict.fromkeys(found for each in LINTS for found in each(sketch, tree)))
