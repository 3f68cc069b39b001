"""How long a plan would take at its hardware's rates: whether a time-out is the plan's own doing.

The rates are rough on purpose: the answer is used as an order of magnitude only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from sketchc.ir.evaluate import evaluate, host_values

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
    """The estimate at these sizes; None where the plan does not say (a sketch without phases, a
    param without a value)."""
    if plan.flops is None or plan.traffic is None or not plan.sketch.phases:
        return None
    try:
        values = host_values(plan.sketch, symbols, params)
        moved = int(evaluate(plan.traffic, values))
        operations = int(evaluate(plan.flops, values))
    except (KeyError, ArithmeticError, ValueError):
        return None
    # The file's figure, not the machine's: a reason may stand in a prompt.
    cores = int(plan.hardware.facts.get("cores", plan.hardware.cores))
    seconds = max(moved / plan.hardware.memory_bandwidth, operations / OPERATIONS_PER_CORE / cores)
    return Estimate(moved, operations, seconds)
