"""Which loops are unrolled, and the text of launch options. Launch options belong to the wrapper,
never to an autotuner (LOWERING 13)."""

from __future__ import annotations

from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.evaluate import known_value
from sketchc.lowering.launches import (
    LARGEST_WARPS,
    contains_product,
    elements_per_warp,
    known_warps,
    product_options,
    widest_tile,
)
from sketchc.lowering.plan import PhasePlan, Plan, has_product
from sketchc.lowering.python_host.expressions import Names

#: Loops of more iterations are not unrolled: code grows with each.
MOST_UNROLLED = 16


def divisors(phase: PhasePlan) -> frozenset[str]:
    """The symbols and params by which each iteration of a loop with a matrix product divides
    indices, as convolutions do by the extents of a window and by their stride. Code is compiled for
    their values: a division by a constant is a multiplication, others take some thirty instructions
    for each lane."""
    own = (ir.NameKind.SYMBOL, ir.NameKind.PARAM)
    everything = walk.statements(phase.body)
    bindings = {each.name: each.value for each in everything if isinstance(each, ir.Bind)}
    found: set[str] = set()
    for loop in walk.statements(phase.body):
        if not (isinstance(loop, ir.For) and contains_product(loop)):
            continue
        expressions = (e for each in walk.statements(loop.body) for e in walk.expressions(each))
        for part in (part for each in expressions for part in walk.parts(each)):
            match part:
                case ir.Binary("//" | "%", left, right) if walk.has_lanes(left, bindings):
                    used = list(walk.references(right))
                    if all(each.kind in own for each in used):
                        found |= {each.name for each in used}
                case _:
                    pass
    return frozenset(found)


def iterations_of(plan: Plan, loop: ir.For) -> int | None:
    """The number of a loop's iterations where it is known when the kernel is compiled."""
    bounds = (loop.start, loop.stop, loop.step)
    start, stop, step = (known_value(bound, plan.sketch) for bound in bounds)
    if start is None or stop is None or step is None:
        return None
    return len(range(int(start), int(stop), int(step)))


def unrolled(plan: Plan, loop: ir.For) -> int | None:
    """How many iterations of a loop hinted "unroll" are written out by Triton: all, or None."""
    if "unroll" not in loop.hints:
        return None
    count = iterations_of(plan, loop)
    return count if count is not None and 1 < count <= MOST_UNROLLED else None


def launch_options(plan: Plan, phase: PhasePlan, names: Names) -> list[str]:
    """`num_warps=...` and, where it matters, `num_stages=...`: as was asked for, or by rule."""
    asked = plan.options
    if has_product(phase.body):
        by_rule = product_options(plan, phase)
        return [f"{name}={asked.get(name, number)}" for name, number in by_rule.items()]
    return [f"num_warps={asked.get('num_warps') or _element_wise_warps(plan, phase, names)}"]


def _element_wise_warps(plan: Plan, phase: PhasePlan, names: Names) -> str:
    """The warps of a launch without products, as an expression of the host."""
    elements, extents = widest_tile(plan, phase)
    if not extents:
        return str(known_warps(plan, phase))
    factors = [names[extent.name] for extent in extents]
    lanes = " * ".join([str(elements), *factors] if elements > 1 else factors)
    of_warp = elements_per_warp(plan, phase)
    return f"min(max({lanes} // {of_warp}, 1), {LARGEST_WARPS})"
