"""Split a symbolic tile axis over the grid, where nothing crosses its lanes."""

from __future__ import annotations

import itertools
from typing import assert_never

import attrs
import networkx

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.show import show
from sketchc.ir.walk import is_plain, laid_out
from sketchc.lowering.passes.place_tiles import depends_on_launch, tiles_used
from sketchc.lowering.plan import Plan
from sketchc.ops.table import OPS, Category

Axis = tuple[str, int]  # (tile, axis)


@attrs.frozen
class StripMine:
    """Rewrite `alloc([T, D2])` with `0:D2` accesses into blocks of D2 and one more parallel loop.

    Why: a tile axis as wide as a symbol costs one compiled variant per power of two and may not fit
    the scratch; if no operation crosses its lanes, blocks of it are independent (LOWERING 2).
    Requires: an elaborated sketch whose domains have not been inferred yet. Ensures: every group of
    tile axes that flow into one another, whose extent is the same run-time expression, which all
    accesses touch in full, over which nothing reduces, scans, sorts or rearranges, which no index
    tile and no atomic update uses, and on which every store of the nest lies,
    has a compile-time extent; a new parallel loop runs over its blocks. Meaning is unchanged, and
    the proofs run again on the result. Targets with run-time extents keep the sketch.
    """

    def run(self, plan: Plan) -> Plan:
        """See `Pass`."""
        sketch = plan.sketch
        if plan.capabilities.symbolic_extents:
            return plan
        block = plan.hardware.aims.inner_elements
        for index in range(len(sketch.phases)):
            for group in _groups(sketch, sketch.phases[index]):
                sketch = self._split(sketch, index, group, block)
        return attrs.evolve(plan, sketch=sketch)

    def _split(
        self, sketch: ir.Sketch, index: int, group: frozenset[Axis], block: int
    ) -> ir.Sketch:
        """The sketch with the axes in `group` split into blocks, of `block` elements by default."""
        tile, axis = min(group)
        extent = sketch.tile(tile).extents[axis]
        constant, variable = _names(sketch, extent)
        size = ir.Ref(constant, ir.NameKind.CONSTANT)
        counter = ir.Ref(variable, ir.NameKind.LOOP)
        body = _rewrite(sketch.phases[index].body, group, counter, size)
        loop_text = f"for {variable} in range(cdiv({show(extent)}, {constant})):"
        phases = list(sketch.phases)
        count = ir.Binary("cdiv", extent, size)
        phases[index] = attrs.evolve(phases[index], body=_wrap(body, variable, count, loop_text))
        inner = walk.statements(_innermost(body))
        deeper = {statement.tile for statement in inner if isinstance(statement, ir.Alloc)}
        resized = (_resize(tile, group, size) for tile in sketch.tiles)
        return attrs.evolve(
            sketch,
            constants=(
                *sketch.constants,
                ir.Constant(constant, DType.I64, block, tunable=True, chosen_by="plan"),
            ),
            tiles=tuple(
                attrs.evolve(tile, depth=tile.depth + (tile.name in deeper)) for tile in resized
            ),
            phases=tuple(phases),
        )


def _names(sketch: ir.Sketch, extent: ir.Expr) -> tuple[str, str]:
    """A free constant name and a free loop variable for blocks of `extent`."""
    stem = extent.name if isinstance(extent, ir.Ref) else "AXIS"
    taken = set(walk.declared_names(sketch))
    constant, variable = f"{stem}_BLOCK", f"{stem.lower()}_block"
    while constant in taken or variable in taken:
        constant, variable = constant + "_", variable + "_"
    return constant, variable


def _groups(sketch: ir.Sketch, phase: ir.Phase) -> list[frozenset[Axis]]:
    """The groups of axes that can be split, in a deterministic order."""
    statements = list(walk.statements(phase.body))
    if not any(isinstance(s, ir.For) and s.parallel for s in phase.body):
        return []
    graph: networkx.Graph[Axis] = networkx.Graph()
    barred: set[Axis] = set()
    stores: list[set[Axis]] = []
    inner = list(walk.statements(_innermost(phase.body)))
    for statement in statements:
        if statement not in inner:
            barred |= _touched(sketch, statement)
        barred |= _indexing(sketch, statement)
        match statement:
            case ir.Alloc(name):
                graph.add_nodes_from((name, axis) for axis in range(_rank(sketch, name)))
            case ir.Load(access, tile):
                barred |= _partial(sketch, access, tile)
            case ir.Store(tile, access):
                barred |= _partial(sketch, access, tile)
                stores.append({(tile, axis) for axis in range(_rank(sketch, tile))})
            case ir.Atomic():
                barred |= _touched(sketch, statement)
            case ir.Compute():
                _connect(sketch, statement, graph, barred)
            case ir.Bind() | ir.For() | ir.If() | ir.Fetch():
                pass
            case _:
                assert_never(statement)
    found = []
    for component in networkx.connected_components(graph):
        group = frozenset(
            a for a in component if depends_on_launch(sketch.tile(a[0]).extents[a[1]])
        )
        extents = {sketch.tile(name).extents[axis] for name, axis in group}
        if len(extents) == 1 and not group & barred and all(group & axes for axes in stores):
            found.append(group)
    return sorted(found, key=min)


def _innermost(body: tuple[ir.Statement, ...]) -> tuple[ir.Statement, ...]:
    """The body of the innermost loop of the chain of parallel loops."""
    parallel = [s for s in body if isinstance(s, ir.For) and s.parallel]
    return _innermost(parallel[0].body) if len(parallel) == 1 else body


def _touched(sketch: ir.Sketch, statement: ir.Statement) -> set[Axis]:
    """All axes of the tiles that a statement reads or writes."""
    tiles = tiles_used(statement)
    return {(tile, axis) for tile in tiles for axis in range(_rank(sketch, tile))}


def _indexing(sketch: ir.Sketch, statement: ir.Statement) -> set[Axis]:
    """All axes of the tiles that a statement uses with index tiles, strides, `pad=` or `where=`, or
    as index tiles: their lane numbers count along the whole axis."""
    match statement:
        case ir.Load(pad=pad, where=where, access=access) if (
            pad is not None or where is not None or not is_plain(access)
        ):
            return _touched(sketch, statement)
        case ir.Store(where=where, access=access) if where is not None or not is_plain(access):
            return _touched(sketch, statement)
        case ir.Bind() | ir.Fetch():
            return _touched(sketch, statement)
        case ir.Compute(operands=operands) if any(isinstance(o, ir.IndexOperand) for o in operands):
            return _touched(sketch, statement)
        case _:
            return set()


def _rank(sketch: ir.Sketch, tile: str) -> int:
    return len(sketch.tile(tile).extents)


def _partial(sketch: ir.Sketch, access: ir.Access, tile: str) -> set[Axis]:
    """The tile's axes whose slice is not the whole tensor axis."""
    slices = [
        (subscript, extent)
        for subscript, extent in zip(access.subscripts, sketch.extents(access.tensor), strict=True)
        if isinstance(subscript, ir.SliceSubscript)
    ]
    tile_extents = sketch.tile(tile).extents
    return {
        (tile, axis)
        for axis, (subscript, extent) in enumerate(slices)
        if subscript.lower != ir.Literal(0)
        or subscript.upper != extent
        or tile_extents[axis] != extent
    }


def _connect(
    sketch: ir.Sketch, statement: ir.Compute, graph: networkx.Graph[Axis], barred: set[Axis]
) -> None:
    """Join axes that an element-wise operation pairs; bar all axes of anything else."""
    tiles = [o for o in statement.operands if isinstance(o, ir.TileOperand)]
    row = OPS[statement.operation]
    if row.category is not Category.ELEMENTWISE:
        barred |= _touched(sketch, statement)
        return
    rank = _rank(sketch, statement.destination)
    for operand in tiles:
        extents = sketch.tile(operand.tile).extents
        places = laid_out(enumerate(extents), operand.layout, (-1, ir.Literal(1)))
        shift = rank - len(places)
        for place, (axis, extent) in enumerate(places):
            if extent != ir.Literal(1):
                graph.add_edge((operand.tile, axis), (statement.destination, place + shift))


def _resize(tile: ir.Tile, group: frozenset[Axis], size: ir.Expr) -> ir.Tile:
    extents = tuple(
        size if (tile.name, axis) in group else extent for axis, extent in enumerate(tile.extents)
    )
    return attrs.evolve(tile, extents=extents)


def _rewrite(
    body: tuple[ir.Statement, ...], group: frozenset[Axis], counter: ir.Expr, size: ir.Expr
) -> tuple[ir.Statement, ...]:
    """Replace the full slices of the group's axes by those of one block."""
    lower = ir.Binary("*", counter, size)
    upper = ir.Binary("*", ir.Binary("+", counter, ir.Literal(1)), size)

    def access(old: ir.Access, tile: str) -> ir.Access:
        axes = itertools.count()
        subscripts = tuple(
            ir.SliceSubscript(lower, upper)
            if isinstance(subscript, ir.SliceSubscript) and (tile, next(axes)) in group
            else subscript  # index tiles: not in any group
            for subscript in old.subscripts
        )
        return attrs.evolve(old, subscripts=subscripts)

    def rewritten(statement: ir.Statement) -> ir.Statement:
        match statement:
            case ir.Load() | ir.Store():
                return attrs.evolve(statement, access=access(statement.access, statement.tile))
            case ir.For():
                return attrs.evolve(statement, body=tuple(map(rewritten, statement.body)))
            case ir.If():
                then, orelse = (
                    tuple(map(rewritten, b)) for b in (statement.body, statement.orelse)
                )
                return attrs.evolve(statement, body=then, orelse=orelse)
            case ir.Alloc() | ir.Compute() | ir.Bind() | ir.Atomic() | ir.Fetch():
                return statement
            case _:
                assert_never(statement)

    return tuple(map(rewritten, body))


def _wrap(
    body: tuple[ir.Statement, ...], variable: str, count: ir.Expr, text: str
) -> tuple[ir.Statement, ...]:
    """Put the new parallel loop around what the innermost loop of the parallel chain runs."""
    parallel = [s for s in body if isinstance(s, ir.For) and s.parallel]
    if len(parallel) == 1:
        loop = parallel[0]
        inner = attrs.evolve(loop, body=_wrap(loop.body, variable, count, text))
        return tuple(inner if s is loop else s for s in body)
    new = ir.For(
        variable, ir.Literal(0), count, ir.Literal(1), body,
        parallel=True, hints=("parallel",), text=text,
    )  # fmt: skip
    return (new,)
