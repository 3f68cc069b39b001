"""How deep pipelines are, which loops are unrolled, and with how many warps a kernel is launched:
from tile sizes and the chip's facts. `answers` reports this for the hints of loops and tiles.

Launch options belong to the wrapper, never to an autotuner (LOWERING 13). Element-wise programs get
eight elements per thread (two 16-byte accesses of f32: enough bytes in flight for the memory's
latency); matrix products at most 64 accumulator elements per thread.
"""

from __future__ import annotations

from collections.abc import Iterator

from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.evaluate import known_value
from sketchc.lowering.plan import (
    HintAnswer,
    PhasePlan,
    Plan,
    TilePlan,
    has_product,
    is_product,
    source_loops,
    subject,
)
from sketchc.lowering.python_host.expressions import Names
from sketchc.lowering.triton.cross_lane import product_unit
from sketchc.lowering.triton.dialect import Dialect
from sketchc.lowering.triton.hazards import Hazards

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

    For loops hinted "pipeline" or "async" that stream tiles: as many stages as the chip's
    `pipeline_bytes` hold of what one iteration loads; one program then keeps enough bytes in
    flight, however few programs there are. Triton pipelines the operands of dots by itself, and
    loops that contain loops are left alone.
    """
    if hazard:
        return 1
    if loop.stages is not None:
        return loop.stages
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
    """`num_warps=...` and, where it matters, `num_stages=...`."""
    if has_product(phase.body):
        return _product_options(plan, phase)
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
        return [f"num_warps=min(max({bucketed} // {per_warp}, 1), {LARGEST_WARPS})"]
    return [f"num_warps={min(max(fixed // per_warp, 1), LARGEST_WARPS)}"]


def _product_options(plan: Plan, phase: PhasePlan) -> list[str]:
    largest, per_stage = 1, 1
    for statement in walk.statements(phase.body):
        if not is_product(statement):
            continue
        largest = max(largest, size_of(plan.tiles[statement.destination])[0])
        tiles = [plan.tiles[name] for name in _operands(statement)]
        stage = sum(size_of(tile)[0] * tile.tile.dtype.bytes for tile in tiles)
        per_stage = max(per_stage, stage)
    warps = largest // (ACCUMULATORS_PER_THREAD * THREADS_PER_WARP)
    shared = plan.hardware.facts["memory"]["shared"]["bytes"]
    # A block may take all shared memory.
    stages = min(max(shared // per_stage, 1), MOST_STAGES)
    stages = min(stages, _stages_that_fit(phase))
    return [f"num_warps={min(max(warps, 4), 8)}", f"num_stages={stages}"]


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


# ---------------------------------------------------------------- what hints became


def answers(plan: Plan, dialect: Dialect) -> tuple[HintAnswer, ...]:
    """One answer for each hint that only the emitter can answer, in program order."""
    found: list[HintAnswer] = []
    for phase in plan.phases:
        hazards = Hazards(plan.sketch).find(phase.body)
        for position, statement in enumerate(walk.statements(phase.body)):
            if isinstance(statement, ir.For):
                hazard = position in hazards.loops
                found += _loop(plan, statement, dialect, hazard=hazard, on_grid=False)
    on_grid = {axis.variable for phase in plan.phases for axis in phase.grid}
    for loop in source_loops(plan.sketch):
        if loop.variable in on_grid:
            found += _loop(plan, loop, dialect, hazard=False, on_grid=True)
    found += _tiles(plan, dialect)
    return tuple(found)


def _loop(
    plan: Plan, loop: ir.For, dialect: Dialect, *, hazard: bool, on_grid: bool
) -> Iterator[HintAnswer]:
    where = subject(plan, loop)
    for hint in loop.hints:
        match hint.split(".")[0]:
            case "tensor_core":
                yield from _units(plan, loop.body, hint, where, dialect)
            case "pipeline" | "async" | "unroll" if on_grid:
                why = "iterations of a grid axis are programs of their own"
                yield HintAnswer(hint, where, "not used", why)
            case "pipeline" | "async":
                yield HintAnswer(hint, where, *_stages(plan, loop, hazard, dialect))
            case "unroll":
                yield HintAnswer(hint, where, *_unrolling(plan, loop, dialect))
            case "vectorize" | "simd" | "warp" | "threadidx":
                became = "the lanes of tiles are spread over threads, iterations are not"
                why = "Triton programs are written for blocks; its compiler lays out threads"
                yield HintAnswer(hint, where, became, why)


def _stages(plan: Plan, loop: ir.For, hazard: bool, dialect: Dialect) -> tuple[str, str]:
    """What the emitted code does for `pipeline` or `async`, and why."""
    if not dialect.launch_options:
        return (
            "double buffering by the vendor's compiler",
            "it overlaps copies with work by default; the plan counts half of the buffer for it",
        )
    if hazard:
        return "num_stages=1", "the loop stores a tensor that it loads: loads must not run ahead"
    stages = stages_of(plan, loop, hazard)
    if stages is not None:
        why = "stages= of the sketch" if loop.stages is not None else "what the chip's loads need"
        return f"num_stages={stages}", why
    if contains_product(loop):
        return "num_stages of the launch", "Triton pipelines the operands of tl.dot by itself"
    if any(isinstance(statement, ir.For) for statement in loop.body):
        return "not used", "only innermost loops are pipelined"
    return "not used", "too few stages fit to be worth it, or tile sizes are known at launch only"


def _unrolling(plan: Plan, loop: ir.For, dialect: Dialect) -> tuple[str, str]:
    """What the emitted code does for `unroll`, and why."""
    if not dialect.launch_options:
        return "not used", "which loops are unrolled is the choice of the vendor's compiler"
    factor = unrolled(plan, loop)
    if factor is not None:
        return f"loop_unroll_factor={factor}", "all of its iterations"
    if iterations_of(plan, loop) is None:
        return "not used", "the number of its iterations is known at launch only"
    return "not used", f"only loops of 2 to {MOST_UNROLLED} iterations are unrolled"


def _units(
    plan: Plan, body: tuple[ir.Statement, ...], hint: str, where: str, dialect: Dialect
) -> Iterator[HintAnswer]:
    """The answers to a hint "tensor_core": what the matrix products in `body` run on."""
    products = [statement for statement in walk.statements(body) if is_product(statement)]
    if not products:
        yield HintAnswer(hint, where, "not used", "there is no matrix product in it")
    for product in products:
        became, why = product_unit(plan, product, dialect)
        yield HintAnswer(hint, where, became, why)


def _tiles(plan: Plan, dialect: Dialect) -> Iterator[HintAnswer]:
    for tile in plan.sketch.tiles:
        where = f"tile {tile.name}"
        if "tensor_core" in tile.hints:
            uses = tuple(
                statement
                for statement in walk.in_phases(plan.phases)
                if isinstance(statement, ir.Compute)
                and tile.name in (statement.destination, *_operands(statement))
            )
            yield from _units(plan, uses, "tensor_core", where, dialect)
        if "async" in tile.hints:
            yield HintAnswer("async", where, "as its loop is pipelined", "loops set the stages")


def _operands(statement: ir.Compute) -> list[str]:
    """The tiles that a statement reads."""
    return [o.tile for o in statement.operands if isinstance(o, ir.TileOperand)]
