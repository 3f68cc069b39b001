"""Launch options of a kernel: warps and pipeline stages, from tile sizes and the chip's facts.

They belong to the wrapper, never to an autotuner (LOWERING 13). Element-wise programs get eight
elements per thread (two 16-byte accesses of f32: enough bytes in flight for the memory's latency);
matrix products at most 64 accumulator elements per thread.
"""

from __future__ import annotations

from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.lowering.plan import PhasePlan, Plan, TilePlan, has_product, is_product
from sketchc.lowering.python_host.names import Names
from sketchc.lowering.triton.pipelining import size_of

ELEMENTS_PER_THREAD = 8
ACCUMULATORS_PER_THREAD = 64
THREADS_PER_WARP = 32
LARGEST_WARPS = 16
#: Of a loop with products: beyond, the latency is hidden already.
MOST_STAGES = 4


def launch_options(plan: Plan, phase: PhasePlan, names: Names) -> list[str]:
    """`num_warps=...` and, where it matters, `num_stages=...`."""
    if has_product(phase.body):
        return _product_options(plan, phase)
    fixed, bucketed = 1, ""
    for tile in _phase_tiles(plan, phase):
        elements, buckets = size_of(tile)
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
        operands = [o.tile for o in statement.operands if isinstance(o, ir.TileOperand)]
        stage = sum(size_of(plan.tiles[n])[0] * plan.tiles[n].tile.dtype.bytes for n in operands)
        per_stage = max(per_stage, stage)
    warps = largest // (ACCUMULATORS_PER_THREAD * THREADS_PER_WARP)
    shared = plan.hardware.facts["memory"]["shared"]["bytes"]
    # A block may take all shared memory.
    stages = min(max(shared // per_stage, 1), MOST_STAGES)
    stages = min(stages, _stages_that_fit(phase))
    return [f"num_warps={min(max(warps, 4), 8)}", f"num_stages={stages}"]


def _stages_that_fit(phase: PhasePlan) -> int:
    """How many stages shared memory has room for: one stage less than there are of the tiles that a
    loop loads for its products, where the plan has counted one of each."""
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


def _phase_tiles(plan: Plan, phase: PhasePlan) -> list[TilePlan]:
    """The tiles that the phase reads or writes."""
    used: dict[str, None] = {}
    for statement in walk.statements(phase.body):
        match statement:
            case ir.Load(tile=tile) | ir.Store(tile=tile) | ir.Atomic(tile=tile):
                used[tile] = None
            case ir.Compute(operands=operands):
                used.update(dict.fromkeys(statement.destinations))
                used.update({o.tile: None for o in operands if isinstance(o, ir.TileOperand)})
            case _:
                pass
    return [plan.tiles[name] for name in used]
