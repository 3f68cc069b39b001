"""What a plan adds to the conditions of a launch: limits of the target, one list for all that have
them. They concern one phase and are checked where it is launched, for they may depend on what the
host fetched or counts by then; `sketchc/launch/conditions.py` has those of the sketch itself.
"""

from __future__ import annotations

from sketchc.ir import nodes as ir
from sketchc.ir.show import show
from sketchc.launch.conditions import Condition, Kind
from sketchc.launch.magnitudes import never_negative
from sketchc.lowering.plan import PhasePlan, Plan


def programs(plan: Plan, phase: PhasePlan) -> ir.Expr:
    """How many programs a launch of the phase has."""
    known: dict[str, bool] = {c.name: c.value >= 0 for c in plan.sketch.constants}
    total: ir.Expr | None = None
    for axis in phase.grid:
        count = axis.count
        if not never_negative(count, known):
            count = ir.Binary("max", count, ir.Literal(0))
        total = count if total is None else ir.Binary("*", total, count)
    return ir.Literal(1) if total is None else total


def bucket_limit(plan: Plan, value: ir.Expr) -> Condition | None:
    """That an axis whose extent is known at launch is not wider than a tile may be; None where the
    bound of a symbol says so."""
    limit = plan.capabilities.maximum_elements
    bounds = {symbol.name: symbol.upper_bound for symbol in plan.sketch.symbols}
    bound = bounds.get(value.name) if isinstance(value, ir.Ref) else None
    if bound is not None and bound <= limit:
        return None
    holds = ir.Binary("<=", value, ir.Literal(limit))
    return Condition(Kind.BUCKET, holds, f"{show(value)} <= {limit}, the widest tile")


def program_limit(plan: Plan, phase: PhasePlan) -> Condition | None:
    """That a launch has fewer programs than the target can count; None where any number is fine."""
    bits = plan.capabilities.program_bits
    if bits is None:
        return None
    holds = ir.Binary("<", programs(plan, phase), ir.Literal(2**bits))
    return Condition(Kind.PROGRAMS, holds, f"fewer than 2**{bits} programs")
