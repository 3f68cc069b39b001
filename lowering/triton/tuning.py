"""How deep pipelines are, which loops are unrolled, and with how many warps a kernel is launched:
from tile sizes and the chip's facts.

Launch options belong to the wrapper, never to an autotuner (LOWERING 13). Element-wise programs get
eight elements per thread (two 16-byte accesses of f32: enough bytes in flight for the memory's
latency); matrix products at most 64 accumulator elements per thread.
"""

from __future__ import annotations

from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.evaluate import known_value
from sketchc.lowering.plan import (
    PhasePlan,
    Plan,
    TilePlan,
    has_product,
    is_product,
)
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


def size_of(tile: TilePlan) -> tuple[int, list[str]]:
    """Compile-time elements of a tile, and the buckets to multiply them by."""
    elements, buckets = 1, []
    for extent in tile.extents:
        if extent.value is None:
            buckets.append(extent.name)
        else:
            elements *= extent.value
    return elements, buckets


ELEMENTS_PER_THREAD = 8
ACCUMULATORS_PER_THREAD = 64
THREADS_PER_WARP = 32
LARGEST_WARPS = 16
#: Stages of a loop with products; with more, no further latency is hidden.
MOST_STAGES = 4


def launch_options(plan: Plan, phase: PhasePlan, names: Names) -> list[str]:
    """`num_warps=...` and, where it matters, `num_stages=...`: as was asked for, or by rule."""
    asked = plan.options
    if has_product(phase.body):
        by_rule = _product_options(plan, phase)
        return [f"{name}={asked.get(name, number)}" for name, number in by_rule.items()]
    return [f"num_warps={asked.get('num_warps') or _element_wise_warps(plan, phase, names)}"]


def _element_wise_warps(plan: Plan, phase: PhasePlan, names: Names) -> str:
    """The warps of a launch without products, as an expression of the host."""
    fixed, bucketed = 1, ""
    for name in dict.fromkeys(
        tile
        for statement in walk.statements(phase.body)
        for tile in (*walk.writes(statement), *walk.reads(statement))
    ):
        elements, buckets = size_of(plan.tiles[name])
        if not buckets:
            fixed = max(fixed, elements)
        elif not bucketed or len(buckets) > bucketed.count("*"):
            factors = [names[name] for name in buckets]
            bucketed = " * ".join([str(elements), *factors] if elements > 1 else factors)
    per_warp = ELEMENTS_PER_THREAD * THREADS_PER_WARP
    if bucketed:
        return f"min(max({bucketed} // {per_warp}, 1), {LARGEST_WARPS})"
    return str(min(max(fixed // per_warp, 1), LARGEST_WARPS))


def _product_options(plan: Plan, phase: PhasePlan) -> dict[str, int]:
    largest, per_stage = 1, 1
    for statement in walk.statements(phase.body):
        if not is_product(statement):
            continue
        largest = max(largest, size_of(plan.tiles[statement.destination])[0])
        tiles = [plan.tiles[name] for name in operands(statement)]
        stage = sum(size_of(tile)[0] * tile.tile.dtype.bytes for tile in tiles)
        per_stage = max(per_stage, stage)
    warps = largest // (ACCUMULATORS_PER_THREAD * THREADS_PER_WARP)
    shared = plan.hardware.facts["memory"]["shared"]["bytes"]
    # A block may take all shared memory.
    stages = min(max(shared // per_stage, 1), MOST_STAGES)
    stages = min(stages, _stages_that_fit(phase))
    return {"num_warps": min(max(warps, 4), 8), "num_stages": stages}


def _stages_that_fit(phase: PhasePlan) -> int:
    """How many stages shared memory has room for: n stages take n - 1 copies of the tiles that a
    loop loads for its products, and the plan has counted one copy of each."""
    streamed = {
        statement.tile
        for loop in walk.statements(phase.body)
        if isinstance(loop, ir.For) and has_product(loop.body)
        for statement in walk.statements(loop.body)
        if isinstance(statement, ir.Load)
    }
    fits = MOST_STAGES
    for use in phase.memory_use:
        each = sum(size for name, size in use.parts if name in streamed)
        if use.memory == "shared" and each:
            fits = min(fits, max(2 + (use.capacity - use.bytes) // each, 1))
    return fits


def operands(statement: ir.Compute) -> list[str]:
    """The tiles that a statement reads."""
    return [o.tile for o in statement.operands if isinstance(o, ir.TileOperand)]
