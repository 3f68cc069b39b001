"""How long a plan would take at its hardware's rates: whether a time-out is the plan's own doing.

Traffic is counted as the sketch loads and stores it, each time it does so, and operations as it
computes them; so a plan that reads its inputs over and over shows. The rates are rough on purpose:
the answer is used as an order of magnitude only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, assert_never

import attrs

from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.evaluate import evaluate, host_values
from sketchc.lowering.passes.map_grid import trip_count

if TYPE_CHECKING:
    from sketchc.lowering.plan import Plan

#: Operations per second and core that plain code reaches on any of the chips; no peak is meant.
OPERATIONS_PER_CORE = 1.0e9


@attrs.frozen
class Estimate:
    """Bytes loaded and stored, operations, and the larger of the two times they take (seconds)."""

    bytes: int
    operations: int
    seconds: float


def estimate(
    plan: Plan, symbols: Mapping[str, int], params: Mapping[str, int | float | bool]
) -> Estimate | None:
    """The estimate at these sizes; None where the plan does not say (a loop whose length depends
    on another loop, a sketch without phases, a param without a value)."""
    if plan.flops is None or not plan.sketch.phases:
        return None
    try:
        values = host_values(plan.sketch, symbols, params)
        moved = sum(
            _traffic(plan.sketch, phase.body, _launches(plan.sketch, index, values), values)
            for index, phase in enumerate(plan.sketch.phases)
        )
        operations = int(evaluate(plan.flops, values))
    except (KeyError, ArithmeticError, ValueError):
        return None
    # The file's figure, not the machine's: a reason may stand in a prompt.
    cores = int(plan.hardware.facts.get("cores", plan.hardware.cores))
    seconds = max(moved / plan.hardware.memory_bandwidth, operations / OPERATIONS_PER_CORE / cores)
    return Estimate(moved, operations, seconds)


def _launches(sketch: ir.Sketch, phase: int, values: Mapping[str, int | float | bool]) -> int:
    """How often the host launches a phase: branches count as taken."""
    total = 1
    for step in walk.around(sketch.steps, phase):
        if isinstance(step, ir.HostFor):
            total *= max(0, int(evaluate(trip_count(step), values)))
    return total


def _traffic(
    sketch: ir.Sketch,
    body: tuple[ir.Statement, ...],
    trips: int,
    values: Mapping[str, int | float | bool],
) -> int:
    """Bytes that the loads and stores of a body move, when it is run `trips` times."""
    total = 0
    for statement in body:
        match statement:
            case ir.For():
                inner = trips * max(0, int(evaluate(trip_count(statement), values)))
                total += _traffic(sketch, statement.body, inner, values)
            case ir.If():
                branches = (statement.body, statement.orelse)
                total += max(_traffic(sketch, part, trips, values) for part in branches)
            case ir.Load() | ir.Store() | ir.Atomic():
                tile = sketch.tile(statement.tile)
                size = tile.dtype.bytes * trips
                for extent in tile.extents:
                    size *= int(evaluate(extent, values))
                total += size * 2 if isinstance(statement, ir.Atomic) else size
            case ir.Fetch():
                total += statement.dtype.bytes * trips
            case ir.Compute() | ir.Alloc() | ir.Bind():
                pass
            case _:
                assert_never(statement)
    return total
