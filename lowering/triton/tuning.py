"""Which loops are unrolled, and the text of launch options. Launch options belong to the wrapper,
never to an autotuner (LOWERING 13)."""

from __future__ import annotations

from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import known_value
from sketchc.lowering.launches import (
    ELEMENTS_PER_WARP,
    LARGEST_WARPS,
    element_wise_warps,
    product_options,
    widest_tile,
)
from sketchc.lowering.plan import PhasePlan, Plan, has_product
from sketchc.lowering.python_host.expressions import Names

#: Loops of more iterations are not unrolled: code grows with each.
MOST_UNROLLED = 16


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
        return str(element_wise_warps(elements))
    factors = [names[extent.name] for extent in extents]
    lanes = " * ".join([str(elements), *factors] if elements > 1 else factors)
    return f"min(max({lanes} // {ELEMENTS_PER_WARP}, 1), {LARGEST_WARPS})"
