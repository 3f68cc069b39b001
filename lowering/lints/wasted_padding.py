"""Tiles whose padded extents waste more than half of their lanes (SK0657)."""

from __future__ import annotations

import math
from collections.abc import Iterator

from sketchc.base.diagnostics import Diagnostic, warning
from sketchc.ir import nodes as ir
from sketchc.ir.show import show
from sketchc.ir.symbolic import Definitions, constant_value, normalize
from sketchc.lowering.plan import Plan, TilePlan


def wasted_padding(plan: Plan) -> Iterator[Diagnostic]:
    """Warn about tiles padded to more than twice their lanes; run-time extents are not judged."""
    constants = {c.name: normalize(ir.Literal(c.value)) for c in plan.sketch.constants}
    for placed in plan.tiles.values():
        sizes = _sizes(placed, constants)
        if sizes is None:
            continue
        logical, physical = sizes
        if math.prod(physical) > 2 * math.prod(logical):
            yield _report(plan, placed, logical, physical)


def _sizes(placed: TilePlan, constants: Definitions) -> tuple[list[int], list[int]] | None:
    logical: list[int] = []
    physical: list[int] = []
    for extent, planned in zip(placed.tile.extents, placed.extents, strict=True):
        value = constant_value(extent, constants)
        if value is None or planned.value is None:
            return None
        logical.append(max(value, 1))
        physical.append(planned.value)
    return logical, physical


def _report(plan: Plan, placed: TilePlan, logical: list[int], physical: list[int]) -> Diagnostic:
    tile = placed.tile
    share = 100 - 100 * math.prod(logical) // math.prod(physical)
    shown = ", ".join(
        f"{size}" if show(extent) == str(size) else f"{show(extent)} = {size}"
        for extent, size in zip(tile.extents, logical, strict=True)
    )
    return warning(
        tile.span,
        "SK0657",
        f"on {plan.target} `{tile.source_name}` is padded to {physical}: {share} % of its lanes "
        "do nothing",
        f"[{shown}]",
        notes=("this target's tile extents are powers of two",),
        help="choose extents that are powers of two, or flatten the small axes into one",
    )
