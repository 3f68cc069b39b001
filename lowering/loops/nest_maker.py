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
    ZERO,
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

#: The extents of a rectangle of lanes, and which of them are valid.
Shape = tuple[tuple[ir.Expr, ...], ir.Domain]


@attrs.frozen
class Operation:
    """A statement that has a rule of its own, and what such rules do alike."""

    maker: NestMaker
    statement: ir.Compute

    @property
    def axis(self) -> int:
        """The axis that the statement names."""
        return statement_axes(self.statement)[0]

    def flag(self, name: str) -> str:
        """Whether an attribute is set, as an argument of a template."""
        return "true" if self.statement.attributes.get(name) else "false"

    def dtype(self, position: int) -> DType:
        """The type of an operand."""
        operand = self.statement.operands[position]
        if isinstance(operand, ir.TileOperand):
            return self.maker.dtype(self.maker.versions.read(self.statement, position))
        return operand.dtype

    def shape(self, position: int) -> Shape:
        """The shape of an operand."""
        match self.statement.operands[position]:
            case ir.TileOperand(domain=domain):
                extents = self.maker.extents(self.maker.versions.read(self.statement, position))
            case ir.IndexOperand(extents=extents, domain=domain):
                pass
            case ir.ScalarOperand():
                extents, domain = (ONE,), ()
        return extents, domain or (ir.FULL,) * len(extents)

    @property
    def written(self) -> Shape:
        """The shape of the first destination."""
        tile = self.maker.versions.written(self.statement)
        return self.maker.extents(tile), self.maker.domain_written(self.statement)

    def source(self, position: int, loops: Loops) -> Source:
        """An operand at the lanes of `loops`."""
        operand = self.statement.operands[position]
        return self.maker.source(self.statement, position, operand, loops)

    def temporary(self, stem: object, shape: Shape, dtype: DType) -> Block:
        """New memory of a shape and type."""
        name = self.maker.temporary(f"{self.statement.operation}_{stem}", shape[0], dtype)
        return self.maker.block(name, shape[1])

    def gather(self, position: int, shape: Shape, dtype: DType) -> tuple[Nest, Block]:
        """An operand, broadcast to a shape, moved to a temporary of a type."""
        lanes, block = Lanes.over(*shape), self.temporary(position, shape, dtype)
        return self.maker.move(lanes, block.name, self.source(position, lanes.loops)), block

    def deliver(
        self, block: Block, each: int = 0, place: Callable[[Loops], Loops] = lambda loops: loops
    ) -> Nest:
        """The nest that moves a result to a destination; `place` gives the loops of its axes."""
        lanes, tile = self.maker.written_lanes(self.statement, each)
        return self.maker.move(lanes, tile, self.maker.tile_read(block.name, place(lanes.loops)))

    def call(
        self,
        function: str,
        sources: tuple[Block, ...],
        results: tuple[Block, ...],
        parameters: tuple[str, ...],
        consumed: bool = False,
    ) -> Nest:
        """The call; with `consumed` it writes to its sources too."""
        changed = (*results, *sources) if consumed else results
        others = tuple(block.reference for block in changed[1:])
        return Nest(
            Kind.LIBRARY_CALL,
            (),
            results[0].reference,
            results[0].dtype,
            self.statement.operation,
            tuple(Read(b.reference, b.dtype, b.dtype, b.name) for b in sources),
            note=self.statement.text,
            library_call=LibraryCall(function, (*sources, *results), others, parameters),
        )


def _meet(shape: Shape, other: Shape) -> Shape:
    """The lanes of a shape at which an operand that broadcasts to it is valid, too."""
    extents, domain = shape
    result = list(domain)
    shift = len(extents) - len(other[0])
    for axis, (extent, lanes) in enumerate(zip(*other, strict=True), start=shift):
        if constant_value(extent) != 1 or constant_value(extents[axis]) == 1:
            result[axis] = result[axis].meet(lanes)
    return extents, tuple(result)


# ---------------------------------------------------------------- scans and extrema


def _scan(made: Operation) -> list[Nest]:
    """Running sums and products, in the type of the statement."""
    shape, dtype = made.shape(0), made.statement.dtype.compute
    before, source = made.gather(0, shape, dtype)
    result = made.temporary("result", shape, dtype)
    parameters = (str(made.axis), made.flag("reverse"), made.flag("exclusive"))
    call = made.call(made.statement.operation, (source,), (result,), parameters)
    return [before, call, made.deliver(result)]


def _extremum(made: Operation) -> list[Nest]:
    """argmax and argmin: the result has extent 1 on the axis until it is delivered."""
    axis, (extents, domain) = made.axis, made.shape(0)
    before, source = made.gather(0, (extents, domain), made.dtype(0).compute)
    kept = tuple(ONE if a == axis else extent for a, extent in enumerate(extents))
    lanes = tuple(ir.FULL if a == axis else own for a, own in enumerate(domain))
    result = made.temporary("result", (kept, lanes), DType.I64)
    largest = "true" if made.statement.operation == "argmax" else "false"
    call = made.call("extremum", (source,), (result,), (str(axis), largest))

    def place(loops: Loops) -> Loops:
        if len(loops) == len(extents):
            return tuple(None if a == axis else loop for a, loop in enumerate(loops))
        own = () if len(extents) == 1 else loops  # a vector's extremum goes to a tile of one lane
        return (*own[:axis], None, *own[axis:])

    return [before, call, made.deliver(result, place=place)]


# ---------------------------------------------------------------- orders


def _sort(made: Operation) -> list[Nest]:
    """Values with their indices, in temporaries that the function sorts back and forth."""
    shape = _meet(made.shape(0), made.shape(1))
    dtypes = (made.dtype(0).compute, DType.I64)
    gathered = [made.gather(position, shape, dtype) for position, dtype in enumerate(dtypes)]
    results = tuple(made.temporary("result", shape, dtype) for dtype in dtypes)
    sources = tuple(block for _, block in gathered)
    parameters = (str(made.axis), made.flag("descending"))
    call = made.call("sort", sources, results, parameters, consumed=True)
    after = [made.deliver(block, each) for each, block in enumerate(results)]
    return [*(nest for nest, _ in gathered), call, *after]


def _topk(made: Operation) -> list[Nest]:
    """The source takes the destination's type before it is compared with what that holds."""
    maker, shape = made.maker, _meet(made.shape(0), made.shape(1))
    tiles = [maker.versions.written(made.statement, each) for each in (0, 1)]
    stored = maker.dtype(tiles[0])
    first = [made.gather(0, shape, stored)]
    if stored.compute is not stored:
        lanes, wide = Lanes.over(*shape), made.temporary("values", shape, stored.compute)
        read = maker.tile_read(first[0][1].name, lanes.loops)
        first.append((maker.move(lanes, wide.name, read), wide))
    places = made.gather(1, shape, DType.I64)
    lanes = Lanes.over(*made.written)
    dtypes = (stored.compute, DType.I64)
    results = tuple(made.temporary("result", made.written, dtype) for dtype in dtypes)
    fill = [
        maker.move(lanes, block.name, maker.tile_read(tile, lanes.loops))
        for tile, block in zip(tiles, results, strict=True)
    ]
    parameters = (str(made.axis), made.flag("largest"))
    call = made.call("topk", (first[-1][1], places[1]), results, parameters)
    after = [made.deliver(block, each) for each, block in enumerate(results)]
    return [*(nest for nest, _ in first), places[0], *fill, call, *after]


# ---------------------------------------------------------------- layout


def _permute(made: Operation) -> list[Nest]:
    """A copy whose source runs over the same loops in another order."""
    lanes, tile = made.maker.written_lanes(made.statement)
    axes = statement_axes(made.statement, "axes")
    order = tuple(lanes.loops[axes.index(axis)] for axis in range(len(axes)))
    return [made.maker.move(lanes, tile, made.source(0, order), made.statement.text)]


def _concat(made: Operation) -> list[Nest]:
    """Two copies, the second of which starts where the left operand ends."""
    axis, tile = made.axis, made.maker.versions.written(made.statement)
    _, written = made.written
    found = []
    offset: ir.Expr = ZERO
    for position in (0, 1):
        extents, domain = made.shape(position)
        own = tuple(
            domain[a] if a == axis or not written else written[a] for a in range(len(extents))
        )
        lanes = Lanes.over(extents, own)
        terms = tuple(
            Term(loop, offset if a == axis else ZERO) for a, loop in enumerate(lanes.loops)
        )
        source = made.source(position, lanes.loops)
        move = made.maker.move(lanes, tile, source, made.statement.text if position == 0 else "")
        found.append(attrs.evolve(move, target=Reference(tile, terms)))
        offset = extents[axis]
    return found


def _reshape(made: Operation) -> list[Nest]:
    """Lanes in row-major order from one rectangle to another."""
    dtype = made.dtype(0)
    before, source = made.gather(0, made.shape(0), dtype)
    result = made.temporary("result", made.written, dtype)
    return [before, made.call("reshape", (source,), (result,), ()), made.deliver(result)]


# ---------------------------------------------------------------- random numbers


def _random(made: Operation) -> list[Nest]:
    """Element-wise in integers: seed and offset go in, a float comes out."""
    result = DType.F32 if made.statement.operation == "rand" else DType.F64
    nests = made.maker.elementwise(made.statement)
    return [attrs.evolve(nest, dtype=DType.I64, result=result) for nest in nests]


#: The rule of each such operation.
RULES: Mapping[str, Callable[[Operation], list[Nest]]] = {
    "cumsum": _scan,
    "cumprod": _scan,
    "argmax": _extremum,
    "argmin": _extremum,
    "sort": _sort,
    "topk": _topk,
    "permute": _permute,
    "concat": _concat,
    "reshape": _reshape,
    "rand": _random,
    "randn": _random,
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
                return self._load(statement) if self.versions.effective(statement) else []
            case ir.Store() | ir.Atomic():
                return self._store(statement)
            case ir.Compute():
                return self._compute(statement) if self.versions.effective(statement) else []
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
            tile = self.versions.read(statement, leaf.tile)
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
        return [self.fill(name, lanes, tile.initial, note)]

    def fill(
        self,
        tile: str,
        lanes: Lanes,
        value: int | float | bool,
        note: str = "",
        loops: Loops | None = None,
    ) -> Nest:
        """The lanes of a tile become a number; see `move`."""
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
        atomic = isinstance(statement, ir.Atomic)
        return [
            Nest(
                Kind.ATOMIC if atomic else Kind.ASSIGN,
                lanes.axes,
                target,
                self.sketch.tensor(statement.access.tensor).dtype,
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
            return rule(Operation(self, statement))
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

    def written_lanes(self, statement: ir.Compute, each: int = 0) -> tuple[Lanes, str]:
        """The loops over what a statement writes of a destination, and its version."""
        tile = self.versions.written(statement, each)
        return Lanes.over(self.extents(tile), self.domain_written(statement)), tile

    def elementwise(self, statement: ir.Compute) -> list[Nest]:
        """The nest of an operation on elements, and a move where it reads what it writes."""
        lanes, tile = self.written_lanes(statement)
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
        read = [read.reference for read in nest.reads if not read.reference.tensor]
        if all(one.terms == nest.target.terms for one in read if one.name == tile):
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
        extents, domain = Operation(self, statement).shape(0)
        kept = [axis for axis in range(len(extents)) if axis not in axes]
        written = self.domain_written(statement)
        if len(written) == len(extents):
            written = tuple(written[axis] for axis in kept)
        computed = dict(zip(kept, written, strict=False))
        domain = tuple(computed.get(axis, own) for axis, own in enumerate(domain))
        every = Lanes.over(extents, domain)
        inner = tuple(extents[axis] for axis in kept)
        outer = Lanes.over(inner, tuple(domain[axis] for axis in kept))
        dtype = DType.BOOL if OPS[statement.operation].truth else statement.dtype.compute
        direct = self.dtype(tile) is dtype and not statement.masked
        total = tile if direct else self.temporary(f"{tile}_total", inner, dtype)

        def placed(name: str, loops: Loops) -> Loops:
            """For each axis of a destination its loop: with or without kept dimensions."""
            rank = len(self.extents(name))
            if rank != len(extents):
                return loops if kept else (None,) * rank
            by_axis = dict(zip(kept, loops, strict=True))
            return tuple(by_axis.get(axis) for axis in range(rank))

        value, start = identity_value(identity, dtype), placed(total, outer.loops)
        body = Nest(
            Kind.ACCUMULATE,
            every.axes,
            tile_reference(total, placed(total, tuple(every.loops[axis] for axis in kept))),
            dtype,
            statement.operation,
            (self.source(statement, 0, statement.operands[0], every.loops),),
            note=statement.text,
        )
        found = [self.fill(total, outer, value, loops=start), body]
        if not direct:
            read = self.tile_read(total, outer.loops)
            found.append(self.move(outer, tile, read, loops=placed(tile, outer.loops)))
        return found

    def block(self, version: str, domain: ir.Domain) -> Block:
        """The valid lanes of a tile in memory, for a function of the library."""
        extents = self.extents(version)
        bounds = zip(extents, domain or (ir.FULL,) * len(extents), strict=True)
        lanes = tuple(axis_bounds(extent, own) for extent, own in bounds)
        reference = tile_reference(version, (None,) * len(extents))
        return Block(version, reference, self.dtype(version), lanes)

    # ------------------------------------------------------------ matrix products

    def _product(self, statement: ir.Compute) -> list[Nest]:
        dtype = statement.dtype.compute
        if dtype.is_integer and dtype.bytes < DType.I32.bytes:
            dtype = DType.I32  # wraps to the same, and registers are made for it
        lanes, tile = self.written_lanes(statement)
        direct = self.dtype(tile) is dtype and not statement.masked
        target = tile if direct else self.temporary(f"{tile}_total", self.extents(tile), dtype)
        found: list[Nest] = []
        if not OPS[statement.operation].accumulates:
            found.append(self.fill(target, lanes, 0))
        elif not direct:
            found.append(self.move(lanes, target, self.tile_read(tile, lanes.loops)))
        found.append(self._product_nest(statement, target, dtype))
        if not direct:
            found.append(self.move(lanes, tile, self.tile_read(target, lanes.loops)))
        return found

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
