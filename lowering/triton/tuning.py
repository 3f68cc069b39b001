"""How deep pipelines are, which loops are unrolled, and the text of launch options: from tile sizes
and the chip's facts. Launch options belong to the wrapper, never to an autotuner (LOWERING 13).
"""

from __future__ import annotations

from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import known_value
from sketchc.lowering.launches import (
    ELEMENTS_PER_WARP,
    LARGEST_WARPS,
    element_wise_warps,
    product_options,
    size_of,
    widest_tile,
)
from sketchc.lowering.plan import PhasePlan, Plan, has_product, is_product
from sketchc.lowering.python_host.expressions import Names

#: Fewer stages than this were slower than none, measured on an H200 (docs/BENCHMARKS.md).
FEWEST_STAGES = 4
MOST_LOOP_STAGES = 6


#: What "async" asks for at least: one load on its way while another is worked on.
FEWEST_ASYNC_STAGES = 2

#: Loops of more iterations are not unrolled: code grows with each.
MOST_UNROLLED = 16


def stages_of(plan: Plan, loop: ir.For, hazard: bool) -> int | None:
    """The depth of a loop's software pipeline, or None for Triton's own choice. `hazard`: the loop
    stores a tensor that it loads, so that no load may run ahead.

    For loops hinted "pipeline" or "async" that stream tiles: as many stages as were asked for, or
    as the chip's `pipeline_bytes` hold of what one iteration loads; one program then keeps enough
    bytes in flight, however few programs there are. Triton pipelines the operands of dots by
    itself, and loops that contain loops are left alone.
    """
    if hazard:
        return 1
    asked = plan.options.get("num_stages")
    if loop.stages is not None:
        return asked or loop.stages
    aim = plan.hardware.aims.pipeline_bytes
    wanted = {"pipeline", "async"} & set(loop.hints)
    if aim is None or not wanted or contains_product(loop):
        return None
    loaded = 0
    for statement in loop.body:
        match statement:
            case ir.Load(_, tile):
                elements, buckets = size_of(plan.tiles[tile])
                if buckets:
                    return asked
                loaded += elements * plan.tiles[tile].tile.dtype.bytes
            case ir.For():
                return None
    if asked:
        return asked
    stages = min(int(aim) // loaded, MOST_LOOP_STAGES) if loaded else 0
    if "async" in wanted and loaded:
        return max(stages, FEWEST_ASYNC_STAGES)
    return stages if stages >= FEWEST_STAGES else None


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


def contains_product(loop: ir.For) -> bool:
    """Whether a matrix product stands directly in the loop."""
    return any(is_product(statement) for statement in loop.body)


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
