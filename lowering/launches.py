"""Warps and stages of a GPU's launches by rule, from tile sizes and the chip's facts, as numbers:
for the emitter and for the cost model.

Element-wise programs get eight elements per thread (two 16-byte accesses of f32: enough bytes in
flight for the memory's latency), sixteen where a loop streams elements of 16 bits, two where lanes
step over elements; matrix products at most 64 accumulator elements per thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.evaluate import evaluate
from sketchc.lowering.crowding import THREADS_PER_WARP, crowding
from sketchc.lowering.plan import (
    LaunchOption,
    PhasePlan,
    PhysicalExtent,
    Plan,
    TilePlan,
    has_product,
    is_product,
)
from sketchc.lowering.sample_sizes import Values, sample_values
from sketchc.ops.table import OPS, Category

#: Fewer stages than this were slower than none, measured on an H200 (docs/BENCHMARKS.md); with
#: more, loops that store what they have loaded were slower, others faster.
FEWEST_STAGES = 4
MOST_LOOP_STAGES = 6
#: What "async" asks for at least: one load on its way while another is worked on.
FEWEST_ASYNC_STAGES = 2

#: Rows of blocks that run together in the grouped order of a matrix product.
GROUP = 8
ACCUMULATORS_PER_THREAD = 64
#: Bytes that a thread loads of a tile, and its elements at least; those of one whose neighbouring
#: lanes step over elements.
_BYTES_PER_THREAD, _ELEMENTS_PER_THREAD, _LEAPING_PER_THREAD = 32, 8, 2
LARGEST_WARPS = 16
#: Tiles of a known extent with so many lanes, which are rows that a program keeps, have twice as
#: many warps: with fewer, a thread's registers would not hold its share twice.
_WIDEST, _WIDEST_WARPS = 1 << 15, 32
#: Where rows side by side are combined in a tile of so many lanes, warps wait for each other: fewer
#: with more elements each were faster on an H200 (docs/BENCHMARKS.md).
_WIDE_ACROSS, _ACROSS_PER_WARP, _FEWEST_ACROSS = 1 << 12, 32 * THREADS_PER_WARP, 4
#: So do warps that combine one row; of scans in f64, one warp has the most to do by itself.
_COMBINED_PER_WARP, _FEWEST_COMBINED = 16 * THREADS_PER_WARP, 8
#: The warps of a launch with products.
_FEWEST, _MOST = 4, 8
#: Elements of a product that at most two instructions of matrix units make, and the bytes that one
#: warp loads of an operand's row then: further warps would only do the same again. (Measured with
#: 16 rows, 8 columns and depths of 256 and 512 on an H200, docs/BENCHMARKS.md.)
_SMALL, _BYTES_OF_ROW = 256, 512
#: Stages of a loop with products; with more, no further latency is hidden.
MOST_STAGES = 4
#: Values of options that have been measured with products.
_WITH_PRODUCTS = {"num_warps": (4, 8), "num_stages": (2, 3, 4)}


def warps_of(plan: Plan, phase: PhasePlan, values: Values) -> int | None:
    """The warps of a launch where the host's scalars have these `values`; None for a target whose
    launches are not told."""
    if not any(option.name == "num_warps" for option in plan.capabilities.launch_options):
        return None
    if asked := plan.options.get("num_warps"):
        return asked
    if has_product(phase.body):
        return product_options(plan, phase)["num_warps"]
    elements, extents = widest_tile(plan, phase)
    if not extents:
        return known_warps(plan, phase)
    lanes = _lanes(elements, extents, values)
    return element_wise_warps(lanes, elements_per_warp(plan, phase))


def stages_at(plan: Plan, phase: PhasePlan, loop: ir.For) -> int | None:
    """The stages of a loop's pipeline, 1 where nothing is loaded ahead; None for a target whose
    launches are not told."""
    if not any(option.name == "num_stages" for option in plan.capabilities.launch_options):
        return None
    if contains_product(loop) and loop.stages is None:
        by_rule = product_options(plan, phase)["num_stages"]
        return plan.options.get("num_stages", by_rule)
    return stages_of(plan, loop, hazard=False) or 1


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
    stores = any(isinstance(statement, ir.Store) for statement in loop.body)
    most = FEWEST_STAGES if stores else MOST_LOOP_STAGES
    stages = min(int(aim) // loaded, most) if loaded else 0
    if "async" in wanted and loaded:
        return max(stages, FEWEST_ASYNC_STAGES)
    return stages if stages >= FEWEST_STAGES else None


def loads_ahead(statement: ir.Statement) -> bool:
    """Whether a statement is a loop that a target may pipeline."""
    if not isinstance(statement, ir.For):
        return False
    hinted = statement.stages is not None or {"pipeline", "async"} & set(statement.hints)
    return bool(hinted) or has_product(statement.body)


def contains_product(loop: ir.For) -> bool:
    """Whether a matrix product stands directly in the loop."""
    return any(is_product(statement) for statement in loop.body)


def runs_in_groups(phase: PhasePlan) -> bool:
    """Whether the two innermost axes of a launch run in groups of `GROUP` rows, where the target
    orders programs of products."""
    return len(phase.grid) >= 2 and has_product(phase.body)


def elements_per_warp(plan: Plan, phase: PhasePlan) -> int:
    """The elements of a tile that a warp has in a launch without a product: more of 16 bits, where
    a loop streams them (measured for products of a matrix and a vector, docs/BENCHMARKS.md); few
    where lanes step over elements, for a thread's lanes are neighbours, and those of a warp then
    lie far apart."""
    bindings = {s.name: s.value for s in walk.statements(phase.body) if isinstance(s, ir.Bind)}
    loads = (s for s in walk.statements(phase.body) if isinstance(s, ir.Load))
    ends = (load.access.subscripts[-1] for load in loads if load.access.subscripts)
    if any(_leaps(each, bindings) for each in ends):
        return _LEAPING_PER_THREAD * THREADS_PER_WARP
    loops = (each for each in walk.statements(phase.body) if isinstance(each, ir.For))
    read = {s.access.tensor for loop in loops for s in loop.body if isinstance(s, ir.Load)}
    bases = {view.name: view.base for view in plan.sketch.views}
    streamed = {bases.get(name, name) for name in read}
    sizes = [tensor.dtype.bytes for tensor in plan.sketch.tensors if tensor.name in streamed]
    widest = max(sizes, default=_BYTES_PER_THREAD)
    return max(_BYTES_PER_THREAD // max(widest, 2), _ELEMENTS_PER_THREAD) * THREADS_PER_WARP


def element_wise_warps(lanes: int, of_warp: int) -> int:
    """The warps for tiles of so many lanes, without a product, `of_warp` elements for each."""
    return min(max(lanes // of_warp, 1), LARGEST_WARPS)


def _leaps(subscript: ir.Subscript, bindings: Mapping[str, ir.Expr]) -> bool:
    """Whether neighbouring lanes of a subscript are several elements apart, as far as a factor
    shows it."""
    match subscript:
        case ir.SliceSubscript(step=ir.Literal(int(step))):
            return abs(step) > 1
        case ir.IndexSubscript(value):
            return any(
                any(isinstance(each, ir.Literal) and abs(each.value) > 1 for each in pair)
                and any(walk.has_lanes(each, bindings) for each in pair)
                for part in walk.parts(value)
                if isinstance(part, ir.Binary) and part.operator == "*"
                for pair in ((part.left, part.right),)
            )
        case _:
            return False


def known_warps(plan: Plan, phase: PhasePlan) -> int:
    """The warps of a launch without products whose tiles have known extents."""
    lanes, _ = widest_tile(plan, phase)
    if lanes >= _WIDEST:
        return _WIDEST_WARPS
    warps = element_wise_warps(lanes, elements_per_warp(plan, phase))
    combined = [s for s in walk.statements(phase.body) if _combines(s)]
    across = any(_is_across_rows(plan, statement) for statement in combined)
    if across and lanes >= _WIDE_ACROSS:
        return min(warps, max(lanes // _ACROSS_PER_WARP, _FEWEST_ACROSS))
    if any(_has_doubles(plan, statement) for statement in combined):
        return min(warps, max(lanes // _COMBINED_PER_WARP, 1))
    return min(warps, max(lanes // _COMBINED_PER_WARP, _FEWEST_COMBINED)) if combined else warps


def _combines(statement: ir.Statement) -> bool:
    """Whether a statement is a reduction or a scan."""
    categories = (Category.REDUCTION, Category.SCAN)
    return isinstance(statement, ir.Compute) and OPS[statement.operation].category in categories


def _has_doubles(plan: Plan, statement: ir.Statement) -> bool:
    """Whether a statement is a scan in f64."""
    match statement:
        case ir.Compute(operation, destinations=(name, *_)):
            scans = OPS[operation].category is Category.SCAN
            return scans and plan.tiles[name].tile.dtype is DType.F64
    return False


def _is_across_rows(plan: Plan, statement: ir.Statement) -> bool:
    """Whether a statement combines the rows of a tile, which lie side by side along its last
    axis."""
    match statement:
        case ir.Compute(operation, operands=(ir.TileOperand(name), *_), axes=axes):
            rank = len(plan.tiles[name].extents)
            reduces = OPS[operation].category is Category.REDUCTION
            return reduces and rank > 1 and rank - 1 not in axes
    return False


def widest_tile(plan: Plan, phase: PhasePlan) -> tuple[int, list[PhysicalExtent]]:
    """The compile-time elements of the largest tile of a launch, and the extents known at launch to
    multiply them by: of the tile with most of these, where there are any, and of several the
    largest at sample sizes."""
    fixed, bucketed, most = 1, (1, list[PhysicalExtent]()), (0, 0)
    sampled = sample_values(plan.sketch)
    for name in dict.fromkeys(
        tile
        for statement in walk.statements(phase.body)
        for tile in (*walk.writes(statement), *walk.reads(statement))
    ):
        elements, buckets = size_of(plan.tiles[name])
        if not buckets:
            fixed = max(fixed, elements)
        elif (size := (len(buckets), _lanes(elements, buckets, sampled))) > most:
            bucketed, most = (elements, buckets), size
    return bucketed if bucketed[1] else (fixed, [])


def _lanes(elements: int, extents: list[PhysicalExtent], values: Values) -> int:
    """The elements of a tile at the host's `values`."""
    for extent in extents:
        assert extent.bucket_of is not None
        elements *= 1 << max(int(evaluate(extent.bucket_of, values)) - 1, 0).bit_length()
    return elements


def product_options(plan: Plan, phase: PhasePlan) -> dict[str, int]:
    """`num_warps` and `num_stages` of a launch with products."""
    per_stage = 1
    for statement in filter(is_product, walk.statements(phase.body)):
        tiles = [plan.tiles[name] for name in operands(statement)]
        stage = sum(size_of(tile)[0] * tile.tile.dtype.bytes for tile in tiles)
        per_stage = max(per_stage, stage)
    largest = max(map(partial(_accumulators, plan), walk.bodies(phase.body)), default=1)
    warps = min(max(largest // (ACCUMULATORS_PER_THREAD * THREADS_PER_WARP), _FEWEST), _MOST)
    values = sample_values(plan.sketch)
    warps = min(warps, _warps_of_small(plan, phase, values))
    if crowding(plan, phase.body, values, warps) > crowding(plan, phase.body, values, _MOST):
        warps = _MOST
    shared = plan.hardware.facts["memory"]["shared"]["bytes"]
    # A block may take all shared memory.
    stages = min(max(shared // per_stage, 1), MOST_STAGES)
    stages = min(stages, _stages_that_fit(phase))
    return {"num_warps": warps, "num_stages": stages}


def _warps_of_small(plan: Plan, phase: PhasePlan, values: Values) -> int:
    """The warps of a launch all whose products are small ones of 16-bit numbers; else the most."""
    most = 0
    for product in filter(is_product, walk.statements(phase.body)):
        left, to = plan.tiles[operands(product)[0]], plan.tiles[product.destination]
        if left.tile.dtype.bytes != 2 or _lanes(*size_of(to), values) > _SMALL:
            return _MOST
        depth = left.extents[-2 if product.attributes.get("trans_a") else -1]
        most = max(most, (depth.value or 0) * left.tile.dtype.bytes)
    return min(max(most // _BYTES_OF_ROW, 1), _MOST) if most else _MOST


def _accumulators(plan: Plan, body: tuple[ir.Statement, ...]) -> int:
    """The sums that the products of one body hold at once, and at least those of the largest one: a
    power of two where no extent is a bucket."""
    held = {s.destination: size_of(plan.tiles[s.destination])[0] for s in filter(is_product, body)}
    adding = {s.destination for s in filter(is_product, body) if OPS[s.operation].accumulates}
    together = sum(held[name] for name in adding)
    return max(1 << max(together - 1, 0).bit_length(), *held.values(), 1)


def stages_fit(plan: Plan, phase: PhasePlan) -> bool:
    """Whether the stages that were asked for fit in shared memory: of loops with products, and of
    others that load ahead, which keep one iteration's loads less than there are stages."""
    asked = plan.options.get("num_stages", 1)
    if has_product(phase.body):
        return asked <= _stages_that_fit(phase)
    most = plan.hardware.facts["memory"].get("shared", {"bytes": 0})["bytes"]
    return all(
        (asked - 1) * _loaded(plan, loop) <= most
        for loop in walk.statements(phase.body)
        if isinstance(loop, ir.For) and loads_ahead(loop)
    )


def _loaded(plan: Plan, loop: ir.For) -> int:
    """The compile-time bytes that one iteration of a loop loads itself."""
    tiles = [plan.tiles[s.tile] for s in loop.body if isinstance(s, ir.Load)]
    return sum(size_of(tile)[0] * tile.tile.dtype.bytes for tile in tiles)


def worth_trying(plan: Plan, option: LaunchOption) -> tuple[int, ...]:
    """The values of an option among which the cost model may choose, 0 for the rule first: for
    launches with products those that recorded tuning spaces have."""
    products = any(has_product(phase.body) for phase in plan.phases)
    known = _WITH_PRODUCTS.get(option.name, option.values) if products else option.values
    return (0, *(value for value in option.values if value in known))


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


def size_of(tile: TilePlan) -> tuple[int, list[PhysicalExtent]]:
    """Compile-time elements of a tile, and the extents known at launch to multiply them by."""
    elements, buckets = 1, list[PhysicalExtent]()
    for extent in tile.extents:
        if extent.value is None:
            buckets.append(extent)
        else:
            elements *= extent.value
    return elements, buckets


def operands(statement: ir.Compute) -> list[str]:
    """The tiles that a statement reads."""
    return [o.tile for o in statement.operands if isinstance(o, ir.TileOperand)]
