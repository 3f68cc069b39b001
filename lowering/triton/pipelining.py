"""How deep the software pipeline of a streaming loop is, and which loops are unrolled."""

from __future__ import annotations

from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import constants_of, evaluate
from sketchc.lowering.plan import Plan, TilePlan, is_product

#: Fewer stages than this were slower than none, measured on an H200 (docs/BENCHMARKS.md).
FEWEST_STAGES = 4
MOST_STAGES = 6


#: What "async" asks for at least: one load on its way while another is worked on.
FEWEST_ASYNC_STAGES = 2

#: Loops of more iterations are not unrolled: code grows with each.
MOST_UNROLLED = 16


def stages_of(plan: Plan, loop: ir.For, hazard: bool) -> int | None:
    """The depth of a loop's software pipeline, or None for Triton's own choice. `hazard`: the loop
    stores a tensor that it loads, so that no load may run ahead."""
    if hazard:
        return 1
    return loop.stages if loop.stages is not None else loop_stages(plan, loop)


def loop_stages(plan: Plan, loop: ir.For) -> int | None:
    """The software pipeline's depth of a loop hinted "pipeline" or "async" that streams tiles, or
    None.

    As many stages as the chip's `pipeline_bytes` hold of what one iteration loads: one program then
    keeps enough bytes in flight, however few programs there are. Triton pipelines the operands of
    dots by itself, and loops in loops are left alone.
    """
    aim = plan.hardware.facts["tuning"].get("pipeline_bytes")
    wanted = {"pipeline", "async"} & set(loop.hints)
    if aim is None or not wanted or contains_product(loop):
        return None
    loaded = 0
    for statement in loop.body:
        match statement:
            case ir.Load(_, tile):
                elements, buckets = size_of(plan.tiles[tile])
                if buckets:
                    return None
                loaded += elements * plan.tiles[tile].tile.dtype.bytes
            case ir.For():
                return None
            case _:
                pass
    stages = min(int(aim) // loaded, MOST_STAGES) if loaded else 0
    if "async" in wanted and loaded:
        return max(stages, FEWEST_ASYNC_STAGES)
    return stages if stages >= FEWEST_STAGES else None


def iterations_of(plan: Plan, loop: ir.For) -> int | None:
    """The number of a loop's iterations where it is known when the kernel is compiled."""
    try:
        bounds = [
            int(evaluate(e, constants_of(plan.sketch))) for e in (loop.start, loop.stop, loop.step)
        ]
    except KeyError:
        return None
    return len(range(*bounds))


def unrolled(plan: Plan, loop: ir.For) -> int | None:
    """How many iterations of a loop hinted "unroll" are written out by Triton: all, or None."""
    if "unroll" not in loop.hints:
        return None
    count = iterations_of(plan, loop)
    return count if count is not None and 1 < count <= MOST_UNROLLED else None


def contains_product(loop: ir.For) -> bool:
    """Whether a matrix product stands directly in the loop."""
    return any(is_product(statement) for statement in loop.body)


def size_of(tile: TilePlan) -> tuple[int, list[str]]:
    """Compile-time elements of a tile, and the buckets to multiply them by."""
    elements, buckets = 1, []
    for extent in tile.extents:
        if extent.value is None:
            buckets.append(extent.name)
        else:
            elements *= extent.value
    return elements, buckets
