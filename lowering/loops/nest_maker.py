"""Tile operations to loop nests: one method per kind of statement.

Reductions become three nests (initialise, accumulate, finish), so that fusion needs no special case
for them. Loads whose tensor is not written before the last use become reads of the tensor itself
(`forwarding.py`), so that a tile that is only loaded takes no memory at all.

What is neither element-wise, a reduction nor a product has a rule of its own (`RULES`). Operations
that scan or order lanes are calls of a function of the target's library on tiles in memory
(`nests.LibraryCall`). Their operands and results are temporaries: nests before and after move
values between those and the tiles, so that the tiles themselves are fused, forwarded or kept in
locals as with any other operation.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import assert_never

import attrs

from sketchc.base.diagnostics import InternalError
from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir.show import show
from sketchc.ir.symbolic import constant_value
from sketchc.ir.walk import laid_out
from sketchc.lowering.loops.nests import (
    ONE,
    Block,
    Kind,
    Lanes,
    LibraryCall,
    Nest,
    Product,
    Read,
    Reference,
    ScalarSource,
    Source,
    Term,
    axis_bounds,
)
from sketchc.lowering.loops.tiles import (
    Loops,
    Tiles,
    aligned_loops,
    map_tiles,
    statement_axes,
    tile_reference,
)
from sketchc.ops.table import OPS, Category, identity_value

Rule = Callable[["NestMaker", ir.Compute], list[Nest]]


# ---------------------------------------------------------------- parts


def _axis(statement: ir.Compute) -> int:
    return statement_axes(statement)[0]


def _flag(statement: ir.Compute, name: str) -> str:
    return "true" if statement.attributes.get(name) else "false"


def _type(maker: NestMaker, statement: ir.Compute, position: int) -> DType:
    """The type of an operand."""
    operand = statement.operands[position]
    if isinstance(operand, ir.TileOperand):
        return maker.dtype(maker.versions.read(statement, position))
    return operand.dtype


def _shape(
    maker: NestMaker, statement: ir.Compute, position: int
) -> tuple[tuple[ir.Expr, ...], ir.Domain]:
    """The extents of an operand, and its valid lanes."""
    match statement.operands[position]:
        case ir.TileOperand(domain=domain):
            extents = maker.extents(maker.versions.read(statement, position))
        case ir.IndexOperand(extents=extents, domain=domain):
            pass
        case ir.ScalarOperand():
            extents, domain = (ONE,), ()
    return extents, domain or (ir.FULL,) * len(extents)


def _gather(
    maker: NestMaker,
    statement: ir.Compute,
    position: int,
    extents: tuple[ir.Expr, ...],
    domain: ir.Domain,
    dtype: DType,
) -> tuple[Nest, Block]:
    """An operand, broadcast to `extents`, moved to a temporary of a type."""
    lanes = Lanes.over(extents, domain)
    name = maker.temporary(f"{statement.operation}_{position}", extents, dtype)
    source = maker.source(statement, position, statement.operands[position], lanes.loops)
    return maker.move(lanes, name, source), maker.block(name, domain)


def _deliver(
    maker: NestMaker,
    statement: ir.Compute,
    each: int,
    block: Block,
    place: Callable[[Loops], Loops] = lambda loops: loops,
) -> Nest:
    """The nest that moves a result to a destination; `place` gives the loops of its axes."""
    tile = maker.versions.written(statement, each)
    lanes = Lanes.over(maker.extents(tile), maker.domain_written(statement))
    return maker.move(lanes, tile, maker.tile_read(block.reference.name, place(lanes.loops)))


def _call(
    statement: ir.Compute,
    function: str,
    sources: tuple[Block, ...],
    results: tuple[Block, ...],
    parameters: tuple[str, ...],
    consumed: bool = False,
) -> Nest:
    """The call; with `consumed` it writes to its sources too."""
    changed = (*results, *sources) if consumed else results
    reads = tuple(Read(b.reference, b.dtype, b.dtype, b.reference.name) for b in sources)
    others = tuple(block.reference for block in changed[1:])
    first = results[0]
    return Nest(
        Kind.LIBRARY_CALL,
        (),
        first.reference,
        first.dtype,
        statement.operation,
        reads,
        note=statement.text,
        library_call=LibraryCall(function, (*sources, *results), others, parameters),
    )


def _result(
    maker: NestMaker,
    statement: ir.Compute,
    extents: tuple[ir.Expr, ...],
    domain: ir.Domain,
    dtype: DType,
) -> Block:
    return maker.block(maker.temporary(f"{statement.operation}_result", extents, dtype), domain)


def _meet(
    extents: tuple[ir.Expr, ...], domain: ir.Domain, other: tuple[tuple[ir.Expr, ...], ir.Domain]
) -> ir.Domain:
    """The lanes of `domain` at which an operand that broadcasts to `extents` is valid, too."""
    result = list(domain)
    shift = len(extents) - len(other[0])
    for axis, (extent, lanes) in enumerate(zip(*other, strict=True), start=shift):
        if constant_value(extent) != 1 or constant_value(extents[axis]) == 1:
            result[axis] = result[axis].meet(lanes)
    return tuple(result)


# ---------------------------------------------------------------- scans and extrema


def scan(maker: NestMaker, statement: ir.Compute) -> list[Nest]:
    """Running sums and products, in the type of the statement."""
    extents, domain = _shape(maker, statement, 0)
    dtype = statement.dtype.compute
    before, source = _gather(maker, statement, 0, extents, domain, dtype)
    result = _result(maker, statement, extents, domain, dtype)
    flags = (_flag(statement, "reverse"), _flag(statement, "exclusive"))
    parameters = (str(_axis(statement)), *flags)
    call = _call(statement, statement.operation, (source,), (result,), parameters)
    return [before, call, _deliver(maker, statement, 0, result)]


def extremum(maker: NestMaker, statement: ir.Compute) -> list[Nest]:
    """argmax and argmin: the result has extent 1 on the axis until it is delivered."""
    axis = _axis(statement)
    extents, domain = _shape(maker, statement, 0)
    dtype = _type(maker, statement, 0).compute
    before, source = _gather(maker, statement, 0, extents, domain, dtype)
    kept = tuple(ONE if a == axis else extent for a, extent in enumerate(extents))
    lanes = tuple(ir.FULL if a == axis else own for a, own in enumerate(domain))
    result = _result(maker, statement, kept, lanes, DType.I64)
    largest = "true" if statement.operation == "argmax" else "false"
    call = _call(statement, "extremum", (source,), (result,), (str(axis), largest))

    def place(loops: Loops) -> Loops:
        if len(loops) == len(extents):
            return tuple(None if a == axis else loop for a, loop in enumerate(loops))
        own = () if len(extents) == 1 else loops  # a vector's extremum goes to a tile of one lane
        return (*own[:axis], None, *own[axis:])

    return [before, call, _deliver(maker, statement, 0, result, place)]


# ---------------------------------------------------------------- orders


def sort(maker: NestMaker, statement: ir.Compute) -> list[Nest]:
    """Values with their indices, in temporaries that the function sorts back and forth."""
    extents, domain = _shape(maker, statement, 0)
    domain = _meet(extents, domain, _shape(maker, statement, 1))
    dtype = _type(maker, statement, 0).compute
    before = [_gather(maker, statement, n, extents, domain, t) for n, t in ((0, dtype), (1, _I64))]
    results = tuple(_result(maker, statement, extents, domain, t) for t in (dtype, _I64))
    call = _call(
        statement,
        "sort",
        tuple(block for _, block in before),
        results,
        (str(_axis(statement)), _flag(statement, "descending")),
        consumed=True,
    )
    after = [_deliver(maker, statement, n, block) for n, block in enumerate(results)]
    return [*(nest for nest, _ in before), call, *after]


def topk(maker: NestMaker, statement: ir.Compute) -> list[Nest]:
    """The source takes the destination's type before it is compared with what that holds."""
    extents, domain = _shape(maker, statement, 0)
    domain = _meet(extents, domain, _shape(maker, statement, 1))
    tiles = [maker.versions.written(statement, each) for each in (0, 1)]
    stored = maker.dtype(tiles[0])
    first = [_gather(maker, statement, 0, extents, domain, stored)]
    if stored.compute is not stored:
        lanes = Lanes.over(extents, domain)
        wide = maker.temporary("topk_values", extents, stored.compute)
        read = maker.tile_read(first[0][1].reference.name, lanes.loops)
        first.append((maker.move(lanes, wide, read), maker.block(wide, domain)))
    places = _gather(maker, statement, 1, extents, domain, _I64)
    best = maker.extents(tiles[0])
    held = maker.domain_written(statement)
    lanes = Lanes.over(best, held)
    results = tuple(_result(maker, statement, best, held, t) for t in (stored.compute, _I64))
    fill = [
        maker.move(lanes, block.reference.name, maker.tile_read(tile, lanes.loops))
        for tile, block in zip(tiles, results, strict=True)
    ]
    parameters = (str(_axis(statement)), _flag(statement, "largest"))
    call = _call(statement, "topk", (first[-1][1], places[1]), results, parameters)
    after = [_deliver(maker, statement, n, block) for n, block in enumerate(results)]
    return [*(nest for nest, _ in first), places[0], *fill, call, *after]


_I64 = DType.I64

# ---------------------------------------------------------------- layout


def permute(maker: NestMaker, statement: ir.Compute) -> list[Nest]:
    """A copy whose source runs over the same loops in another order."""
    tile = maker.versions.written(statement)
    lanes = Lanes.over(maker.extents(tile), maker.domain_written(statement))
    axes = statement_axes(statement, "axes")
    order = tuple(lanes.loops[axes.index(axis)] for axis in range(len(axes)))
    source = maker.source(statement, 0, statement.operands[0], order)
    return [maker.move(lanes, tile, source, statement.text)]


def concat(maker: NestMaker, statement: ir.Compute) -> list[Nest]:
    """Two copies, the second of which starts where the left operand ends."""
    axis = _axis(statement)
    tile = maker.versions.written(statement)
    written = maker.domain_written(statement)
    found = []
    offset: ir.Expr = ir.Literal(0)
    for position in (0, 1):
        extents, domain = _shape(maker, statement, position)
        own = tuple(
            domain[a] if a == axis or not written else written[a] for a in range(len(extents))
        )
        lanes = Lanes.over(extents, own)
        terms = tuple(
            Term(loop, offset if a == axis else ir.Literal(0)) for a, loop in enumerate(lanes.loops)
        )
        source = maker.source(statement, position, statement.operands[position], lanes.loops)
        move = maker.move(lanes, tile, source, statement.text if position == 0 else "")
        found.append(attrs.evolve(move, target=Reference(tile, terms)))
        offset = extents[axis]
    return found


def reshape(maker: NestMaker, statement: ir.Compute) -> list[Nest]:
    """Lanes in row-major order from one rectangle to another."""
    extents, domain = _shape(maker, statement, 0)
    dtype = _type(maker, statement, 0)
    tile = maker.versions.written(statement)
    before, source = _gather(maker, statement, 0, extents, domain, dtype)
    written = maker.domain_written(statement)
    result = _result(maker, statement, maker.extents(tile), written, dtype)
    call = _call(statement, "reshape", (source,), (result,), ())
    return [before, call, _deliver(maker, statement, 0, result)]


# ---------------------------------------------------------------- random numbers


def random(maker: NestMaker, statement: ir.Compute) -> list[Nest]:
    """Element-wise in integers: seed and offset go in, a float comes out."""
    result = DType.F32 if statement.operation == "rand" else DType.F64
    return [attrs.evolve(nest, dtype=_I64, result=result) for nest in maker.elementwise(statement)]


#: The rule of each such operation.
RULES: Mapping[str, Rule] = {
    "cumsum": scan,
    "cumprod": scan,
    "argmax": extremum,
    "argmin": extremum,
    "sort": sort,
    "topk": topk,
    "permute": permute,
    "concat": concat,
    "reshape": reshape,
    "rand": random,
    "randn": random,
}


@attrs.define
class NestMaker(Tiles):
    """Makes the nests of one phase."""

    # ------------------------------------------------------------ statements

    def nests(self, statement: ir.Statement) -> list[Nest]:
        """The nests of one statement that is not a loop, branch or fetch."""
        return [attrs.evolve(nest, origin=statement.span) for nest in self._nests(statement)]

    def _nests(self, statement: ir.Statement) -> list[Nest]:
        match statement:
            case ir.Alloc(tile):
                return self._alloc(tile) if self.versions.needed(tile) else []
            case ir.Load():
                if not self.versions.needed(self.versions.written(statement)):
                    return []
                return self._load(statement)
            case ir.Store() | ir.Atomic():
                return self._store(statement)
            case ir.Compute():
                written = range(len(statement.destinations))
                if not any(
                    self.versions.needed(self.versions.written(statement, each)) for each in written
                ):
                    return []
                return self._compute(statement)
            case ir.Bind():
                return self._bind(statement)
            case ir.For() | ir.If() | ir.Fetch():
                msg = "not straight-line code"
                raise InternalError(msg)
            case _:
                assert_never(statement)

    def _bind(self, statement: ir.Bind) -> list[Nest]:
        """Remember an index tile. What it takes from a tile that changes in place is copied now: a
        binding is a snapshot."""
        found: list[Nest] = []

        def snapshot(leaf: ir.TileLanes) -> ir.Expr:
            tile = self.versions.read_by_lanes(statement, leaf.tile)
            if leaf.tile not in self.versions.single:
                return attrs.evolve(leaf, tile=tile)
            extents, dtype = self.extents(tile), self.dtype(tile)
            name = self.temporary(f"{tile}_then", extents, dtype)
            lanes = Lanes.over(extents, leaf.domain)
            read = self.version_read(tile, lanes.loops, leaf.domain)
            found.append(self.move(lanes, name, read, statement.text))
            return attrs.evolve(leaf, tile=name)

        self.bindings[statement.name] = map_tiles(statement.value, snapshot)
        return found

    def _alloc(self, name: str) -> list[Nest]:
        tile = self.sketch.tile(name)
        if tile.initial is None:
            return []
        lanes = Lanes.over(tile.extents, tile.domain or ())
        shown = ", ".join(show(extent) for extent in tile.extents)
        note = f"{name} = alloc([{shown}], init={tile.initial})"
        return [self.fill(name, lanes, lanes.loops, tile.initial, note)]

    def fill(
        self,
        tile: str,
        lanes: Lanes,
        loops: Loops,
        value: int | float | bool,
        note: str = "",
    ) -> Nest:
        """The lanes of a tile become a number."""
        source = ScalarSource(ir.Literal(value), self.dtype(tile))
        return attrs.evolve(self.move(lanes, tile, source, note, loops), early=True)

    def _load(self, statement: ir.Load) -> list[Nest]:
        if self.versions.forwarded(statement):
            return []
        tile = self.versions.written(statement)
        lanes = Lanes.over(self.extents(tile), statement.domain)
        read = self.tensor_read(statement, lanes.loops, tile, "")
        return self._apart(self.move(lanes, tile, read, statement.text), tile, lanes)

    def move(
        self, lanes: Lanes, tile: str, source: Source, note: str = "", loops: Loops | None = None
    ) -> Nest:
        """A copy of a source to the lanes of a tile, whose axes have the loops of `lanes` or the
        `loops` given."""
        target = tile_reference(tile, lanes.loops if loops is None else loops)
        return Nest(Kind.ASSIGN, lanes.axes, target, self.dtype(tile), "copy", (source,), note=note)

    def _store(self, statement: ir.Store | ir.Atomic) -> list[Nest]:
        tile = self.versions.read(statement, 0)
        lanes = Lanes.over(self.extents(tile), statement.domain)
        source = self.version_read(tile, lanes.loops, statement.domain)
        target = self.reference(statement, statement.access, lanes.loops)
        stored = self.sketch.tensor(statement.access.tensor).dtype
        atomic = isinstance(statement, ir.Atomic)
        return [
            Nest(
                Kind.ATOMIC if atomic else Kind.ASSIGN,
                lanes.axes,
                target,
                stored,
                statement.operation if isinstance(statement, ir.Atomic) else "copy",
                (source,),
                note=statement.text,
                guards=self.guards(statement, lanes.loops),
            )
        ]

    # ------------------------------------------------------------ computations

    def _compute(self, statement: ir.Compute) -> list[Nest]:
        rule = RULES.get(statement.operation)
        if rule is not None:
            return rule(self, statement)
        row = OPS[statement.operation]
        match row.category:
            case Category.REDUCTION:
                return self._reduction(statement, row.identity or "zero")
            case Category.MATRIX:
                return self._product(statement)
            case _:
                return self.elementwise(statement)

    def domain_written(self, statement: ir.Compute) -> ir.Domain:
        """The lanes of its destination that a statement writes."""
        return statement.written if statement.masked else statement.domain

    def elementwise(self, statement: ir.Compute) -> list[Nest]:
        """The nest of an operation on elements, and a move where it reads what it writes."""
        tile = self.versions.written(statement)
        lanes = Lanes.over(self.extents(tile), self.domain_written(statement))
        swapped = statement.operation == "transpose"
        sources = tuple(
            self.source(statement, position, operand, lanes.loops, swapped)
            for position, operand in enumerate(statement.operands)
        )
        row = OPS[statement.operation]
        stored = self.dtype(tile)
        moves = statement.operation in ("copy", "fill", "transpose", "broadcast")
        nest = Nest(
            Kind.ASSIGN,
            lanes.axes,
            tile_reference(tile, lanes.loops),
            stored,
            "copy" if moves else statement.operation,
            sources,
            statement.dtype,
            DType.BOOL if row.result.name == "BOOL" else statement.dtype,
            dict(statement.attributes),
            statement.text,
        )
        return self._apart(nest, tile, lanes)

    def _apart(self, nest: Nest, tile: str, lanes: Lanes) -> list[Nest]:
        """The nest, through a temporary where it reads other lanes of its own destination."""
        if not any(_crosses(read.reference, nest.target) for read in nest.reads):
            return [nest]
        name = self.temporary(f"{tile}_new", self.extents(tile), nest.stored)
        reference = tile_reference(name, lanes.loops)
        first = attrs.evolve(nest, target=reference)
        return [first, self.move(lanes, tile, self.tile_read(name, lanes.loops))]

    def source(
        self,
        statement: ir.Statement,
        position: int,
        operand: ir.Operand,
        loops: Loops,
        swapped: bool = False,
    ) -> Source:
        """An operand at the lanes of `loops`; `swapped` exchanges the last two axes of a tile."""
        match operand:
            case ir.ScalarOperand(value, dtype):
                return ScalarSource(value, dtype)
            case ir.TileOperand(domain=domain, layout=layout):
                version = self.versions.read(statement, position)
                extents = laid_out(self.extents(version), layout, ONE)
                order = (*loops[:-2], loops[-1], loops[-2]) if swapped else loops
                own = aligned_loops(extents, order)
                if layout is not None:  # lane 0 of a new axis is no index of the tile
                    own = tuple(itertools.compress(own, layout))
                    domain = tuple(itertools.compress(domain, layout))
                return self.version_read(version, own, domain)
            case ir.IndexOperand(value, dtype, extents):
                return self.lane_source(statement, value, dtype, aligned_loops(extents, loops))
            case _:
                assert_never(operand)

    def _reduction(self, statement: ir.Compute, identity: str) -> list[Nest]:
        """Initialise an accumulator, accumulate over all lanes, move it to the destination."""
        tile = self.versions.written(statement)
        axes = statement_axes(statement)
        operand = statement.operands[0]
        extents, domain = _shape(self, statement, 0)
        kept_domain = _kept_domain(self.domain_written(statement), len(extents), axes)
        source_domain = tuple(
            own if axis in axes else kept_domain.get(axis, own) for axis, own in enumerate(domain)
        )
        every = Lanes.over(extents, source_domain)
        kept = [axis for axis in range(len(extents)) if axis not in axes]
        outer = Lanes.over(
            tuple(extents[axis] for axis in kept), tuple(source_domain[axis] for axis in kept)
        )
        dtype = _accumulator(statement)
        stored = self.dtype(tile)
        direct = stored is dtype and not statement.masked
        rank = len(extents)
        if direct:
            total = tile
            start_loops = self._kept_loops(tile, kept, outer.loops, rank)
            body_loops = tuple(every.loops[axis] for axis in kept)
            body_loops = self._kept_loops(tile, kept, body_loops, rank)
        else:
            total = self.temporary(f"{tile}_total", tuple(extents[a] for a in kept), dtype)
            start_loops = outer.loops
            body_loops = tuple(every.loops[axis] for axis in kept)
        value = identity_value(identity, dtype)
        start = self.fill(total, outer, start_loops, value)
        body = Nest(
            Kind.ACCUMULATE,
            every.axes,
            tile_reference(total, body_loops),
            dtype,
            statement.operation,
            (self.source(statement, 0, operand, every.loops),),
            note=statement.text,
        )
        if direct:
            return [start, body]
        loops = self._kept_loops(tile, kept, outer.loops, rank)
        read = self.tile_read(total, outer.loops)
        return [start, body, self.move(outer, tile, read, loops=loops)]

    def _kept_loops(self, tile: str, kept: list[int], loops: Loops, rank: int) -> Loops:
        """For each axis of a reduction's destination its loop: with or without kept dimensions."""
        if len(self.extents(tile)) != rank:
            return loops if kept else (None,)
        by_axis = dict(zip(kept, loops, strict=True))
        return tuple(by_axis.get(axis) for axis in range(rank))

    def block(self, version: str, domain: ir.Domain) -> Block:
        """The valid lanes of a tile in memory, for a function of the library."""
        extents = self.extents(version)
        bounds = zip(extents, domain or (ir.FULL,) * len(extents), strict=True)
        lanes = tuple(axis_bounds(extent, own) for extent, own in bounds)
        reference = tile_reference(version, (None,) * len(extents))
        return Block(reference, self.dtype(version), lanes, extents)

    # ------------------------------------------------------------ matrix products

    def _product(self, statement: ir.Compute) -> list[Nest]:
        tile = self.versions.written(statement)
        accumulates = OPS[statement.operation].accumulates
        dtype = statement.dtype.compute
        if dtype.is_integer and dtype.bytes < DType.I32.bytes:
            dtype = DType.I32  # wraps to the same, and registers are made for it
        stored = self.dtype(tile)
        extents = self.extents(tile)
        lanes = Lanes.over(extents, self.domain_written(statement))
        direct = stored is dtype and not statement.masked
        target = tile if direct else self.temporary(f"{tile}_total", extents, dtype)
        before: list[Nest] = []
        if not accumulates:
            before = [self.fill(target, lanes, lanes.loops, 0)]
        elif not direct:
            before = [self.move(lanes, target, self.tile_read(tile, lanes.loops))]
        nest = self._product_nest(statement, target, dtype)
        if direct:
            return [*before, nest]
        return [*before, nest, self.move(lanes, tile, self.tile_read(target, lanes.loops))]

    def _product_nest(self, statement: ir.Compute, target: str, dtype: DType) -> Nest:
        trans_a = bool(statement.attributes.get("trans_a", False))
        trans_b = bool(statement.attributes.get("trans_b", False))
        domains = [
            operand.domain if isinstance(operand, ir.TileOperand) and operand.domain else FULL_2
            for operand in statement.operands
        ]
        written = self.domain_written(statement) or FULL_2
        rows, columns = self.extents(target)
        inner = self.extents(self.versions.read(statement, 0))[0 if trans_a else 1]
        left_depth = domains[0][0 if trans_a else 1]
        right_depth = domains[1][1 if trans_b else 0]
        shared = left_depth.meet(right_depth)
        product = Product(
            axis_bounds(rows, written[0]),
            axis_bounds(columns, written[1]),
            axis_bounds(inner, shared),
            (rows, columns, inner),
            trans_a,
            trans_b,
        )
        sources = tuple(
            self.version_read(self.versions.read(statement, position), (None, None), ())
            for position in (0, 1)
        )
        return Nest(
            Kind.PRODUCT,
            (),
            tile_reference(target, (None, None)),
            dtype,
            statement.operation,
            sources,
            note=statement.text,
            product=product,
        )


FULL_2: ir.Domain = (ir.FULL, ir.FULL)


def _crosses(read: Reference, target: Reference) -> bool:
    return not read.tensor and read.name == target.name and read.terms != target.terms


def _accumulator(statement: ir.Compute) -> DType:
    if OPS[statement.operation].truth:
        return DType.BOOL
    return statement.dtype.compute


def _kept_domain(written: ir.Domain, rank: int, axes: tuple[int, ...]) -> dict[int, ir.AxisDomain]:
    """The lanes to compute on each axis of the source that is kept."""
    if not written:
        return {}
    kept = [axis for axis in range(rank) if axis not in axes]
    if len(written) == rank:
        return {axis: written[axis] for axis in kept}
    return dict(zip(kept, written, strict=False))
