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
from sketchc.ir import symbolic
from sketchc.ir.show import show
from sketchc.ir.symbolic import constant_value
from sketchc.ir.walk import laid_out, map_tiles, operand_dtype
from sketchc.lowering.loops.nests import (
    ONE,
    ZERO,
    Block,
    Kind,
    Lanes,
    LibraryCall,
    Loops,
    Nest,
    Product,
    Read,
    Reference,
    ScalarSource,
    Source,
    Term,
    Tiles,
    aligned_loops,
    axis_bounds,
    tile_reference,
)
from sketchc.ops.table import OPS, Category, Fact, Layout, Result, identity_value

#: The extents of a rectangle of lanes, and which of them are valid.
Shape = tuple[tuple[ir.Expr, ...], ir.Domain]


@attrs.frozen
class Operation:
    """A computation to lower to nests, and what the lowering rules share."""

    maker: NestMaker
    statement: ir.Compute

    @property
    def axis(self) -> int:
        """The axis that the statement names."""
        return self.statement.axes[0]

    def flag(self, name: str) -> str:
        """The template argument for an attribute: "true" where it is set, else "false"."""
        return "true" if self.statement.attributes.get(name) else "false"

    def dtype(self, position: int) -> DType:
        """The element type of the operand at `position`."""
        return operand_dtype(self.statement.operands[position], self.maker.tile)

    def shape(self, position: int) -> Shape:
        """The extents of the operand at `position`, and its valid lanes."""
        match self.statement.operands[position]:
            case ir.TileOperand(tile, domain):
                extents = self.maker.extents(tile)
            case ir.IndexOperand(extents=extents, domain=domain):
                pass
            case ir.ScalarOperand():
                extents, domain = (ONE,), ()
        return extents, domain or (ir.FULL,) * len(extents)

    @property
    def domain(self) -> ir.Domain:
        """The lanes of its destinations that the statement writes."""
        return self.statement.written if self.statement.masked else self.statement.domain

    @property
    def target(self) -> Shape:
        """The extents of the first destination, and the lanes of it that are written."""
        extents = self.maker.extents(self.maker.versions.written(self.statement))
        return extents, self.domain or (ir.FULL,) * len(extents)

    def written(self, each: int = 0) -> tuple[str, Lanes]:
        """The version made of destination number `each`, and the loops over its written lanes."""
        tile = self.maker.versions.written(self.statement, each)
        return tile, Lanes.over(self.maker.extents(tile), self.domain)

    def source(self, position: int, loops: Loops) -> Source:
        """The operand at `position`, at the lanes of `loops`."""
        match self.statement.operands[position]:
            case ir.ScalarOperand(value, dtype):
                return ScalarSource(value, dtype)
            case ir.TileOperand(tile, domain, layout):
                own = aligned_loops(laid_out(self.maker.extents(tile), layout, ONE), loops)
                if layout is not None:  # lane 0 of a new axis is no index of the tile
                    own = tuple(itertools.compress(own, layout))
                    domain = tuple(itertools.compress(domain, layout))
                version = self.maker.versions.read(self.statement, tile)
                return self.maker.version_read(version, own, domain)
            case ir.IndexOperand(value, dtype, extents):
                own = aligned_loops(extents, loops)
                return self.maker.lane_source(self.statement, value, dtype, own)
            case operand:
                assert_never(operand)

    def temporary(self, stem: object, shape: Shape, dtype: DType) -> Block:
        """A new temporary tile of this shape and type."""
        name = self.maker.temporary(f"{self.statement.operation}_{stem}", shape[0], dtype)
        lanes = tuple(itertools.starmap(axis_bounds, zip(*shape, strict=True)))
        return Block(name, dtype, lanes)

    def gather(self, position: int, shape: Shape, dtype: DType) -> tuple[Nest, Block]:
        """The nest that moves an operand, broadcast to `shape`, to a temporary, and that block."""
        lanes, block = Lanes.over(*shape), self.temporary(position, shape, dtype)
        return self.maker.move(lanes, block.name, self.source(position, lanes.loops)), block

    def deliver(self, block: Block, each: int = 0) -> Nest:
        """The nest that moves a result to destination number `each`."""
        tile, lanes = self.written(each)
        return self.maker.move(lanes, tile, self.maker.tile_read(block.name, lanes.loops))

    def call(
        self,
        function: str,
        sources: tuple[Block, ...],
        results: tuple[Block, ...],
        *parameters: str,
        consumed: bool = False,
    ) -> Nest:
        """The nest that calls a library function; with `consumed` it writes to its sources too."""
        blocks = (*sources, *results)
        written = range(0 if consumed else len(sources), len(blocks))
        return Nest(
            Kind.CALL,
            (),
            results[0].reference,
            results[0].dtype,
            self.statement.operation,
            tuple(Read(b.reference, b.dtype, b.dtype, b.name) for b in sources),
            note=self.statement.text,
            call=LibraryCall(function, blocks, tuple(written), parameters),
        )

    def accumulator(self, extents: tuple[ir.Expr, ...], dtype: DType) -> str:
        """The destination, or a temporary where it has another type or keeps some lanes."""
        tile, _ = self.written()
        if self.maker.dtype(tile) is dtype and not self.statement.masked:
            return tile
        return self.maker.temporary(f"{tile}_total", extents, dtype)


def _meet(shape: Shape, other: Shape) -> Shape:
    """`shape` with only those lanes valid at which `other`, broadcast to it, is valid too."""
    extents, domain = shape
    result = list(domain)
    shift = len(extents) - len(other[0])
    for axis, (extent, lanes) in enumerate(zip(*other, strict=True), start=shift):
        if constant_value(extent) != 1 or constant_value(extents[axis]) == 1:
            result[axis] = symbolic.meet(result[axis], lanes)
    return extents, tuple(result)


# ---------------------------------------------------------------- scans and extrema


def _scan(made: Operation) -> list[Nest]:
    """Running sums and products, in the type of the statement."""
    shape, dtype = made.shape(0), made.statement.dtype.compute
    before, source = made.gather(0, shape, dtype)
    result = made.temporary("result", shape, dtype)
    parameters = (str(made.axis), made.flag("reverse"), made.flag("exclusive"))
    call = made.call(made.statement.operation, (source,), (result,), *parameters)
    return [before, call, made.deliver(result)]


def _extremum(made: Operation) -> list[Nest]:
    """argmax and argmin: the result has extent 1 on the axis until it is delivered."""
    axis, (extents, domain) = made.axis, made.shape(0)
    before, source = made.gather(0, (extents, domain), made.dtype(0).compute)
    kept = tuple(ONE if a == axis else extent for a, extent in enumerate(extents))
    valid = tuple(ir.FULL if a == axis else own for a, own in enumerate(domain))
    result = made.temporary("result", (kept, valid), DType.I64)
    largest = "true" if Fact.LARGEST in OPS[made.statement.operation].facts else "false"
    call = made.call("extremum", (source,), (result,), str(axis), largest)
    tile, lanes = made.written()
    loops = lanes.loops
    if len(loops) == len(extents):
        loops = tuple(None if a == axis else loop for a, loop in enumerate(loops))
    else:
        own = () if len(extents) == 1 else loops  # a vector's extremum goes to a tile of one lane
        loops = (*own[:axis], None, *own[axis:])
    return [before, call, made.maker.move(lanes, tile, made.maker.tile_read(result.name, loops))]


# ---------------------------------------------------------------- orders


def _sort(made: Operation) -> list[Nest]:
    """Sort values with their indices: the function sorts back and forth between temporaries."""
    shape = _meet(made.shape(0), made.shape(1))
    dtypes = (made.dtype(0).compute, DType.I64)
    before, sources = zip(*(made.gather(p, shape, t) for p, t in enumerate(dtypes)), strict=True)
    results = tuple(made.temporary("result", shape, dtype) for dtype in dtypes)
    parameters = (str(made.axis), made.flag("descending"))
    call = made.call("sort", sources, results, *parameters, consumed=True)
    return [*before, call, *(made.deliver(block, each) for each, block in enumerate(results))]


def _topk(made: Operation) -> list[Nest]:
    """Merge the source, converted to the destination's type, into the destinations."""
    maker, shape = made.maker, _meet(made.shape(0), made.shape(1))
    tiles = [made.written(each)[0] for each in (0, 1)]
    stored = maker.dtype(tiles[0])
    gathered, values = made.gather(0, shape, stored)
    before = [gathered]
    if stored.compute is not stored:
        lanes = Lanes.over(*shape)
        narrow = maker.tile_read(values.name, lanes.loops)
        values = made.temporary("values", shape, stored.compute)
        before.append(maker.move(lanes, values.name, narrow))
    gathered, places = made.gather(1, shape, DType.I64)
    dtypes = (stored.compute, DType.I64)
    results = tuple(made.temporary("result", made.target, dtype) for dtype in dtypes)
    lanes = Lanes.over(*made.target)
    before += [
        gathered,
        *(
            maker.move(lanes, block.name, maker.tile_read(tile, lanes.loops))
            for tile, block in zip(tiles, results, strict=True)
        ),
    ]
    parameters = (str(made.axis), made.flag("largest"))
    call = made.call("topk", (values, places), results, *parameters)
    return [*before, call, *(made.deliver(block, each) for each, block in enumerate(results))]


# ---------------------------------------------------------------- layout


def _copy(made: Operation) -> list[Nest]:
    """Copy lanes as they are, or with the last two axes exchanged."""
    tile, lanes = made.written()
    loops = lanes.loops
    if OPS[made.statement.operation].layout is Layout.TRANSPOSED:
        loops = (*loops[:-2], loops[-1], loops[-2])
    source = made.source(0, loops)
    return made.maker.apart(made.maker.move(lanes, tile, source, made.statement.text))


def _permute(made: Operation) -> list[Nest]:
    """A copy whose source runs over the same loops in another order."""
    tile, lanes = made.written()
    axes = made.statement.axes
    order = tuple(lanes.loops[axes.index(axis)] for axis in range(len(axes)))
    return [made.maker.move(lanes, tile, made.source(0, order), made.statement.text)]


def _concat(made: Operation) -> list[Nest]:
    """Two copies, the second of which starts where the left operand ends."""
    axis, (tile, _), written = made.axis, made.written(), made.domain
    found = []
    offset: ir.Expr = ZERO
    for position, text in enumerate((made.statement.text, "")):
        extents, domain = made.shape(position)
        own = tuple(
            domain[a] if a == axis or not written else written[a] for a in range(len(extents))
        )
        lanes = Lanes.over(extents, own)
        terms = tuple(
            Term(loop, offset if a == axis else ZERO) for a, loop in enumerate(lanes.loops)
        )
        move = made.maker.move(lanes, tile, made.source(position, lanes.loops), text)
        found.append(attrs.evolve(move, target=Reference(tile, terms)))
        offset = extents[axis]
    return found


def _reshape(made: Operation) -> list[Nest]:
    """Lanes in row-major order from one rectangle to another."""
    dtype = made.dtype(0)
    before, source = made.gather(0, made.shape(0), dtype)
    result = made.temporary("result", made.target, dtype)
    return [before, made.call("reshape", (source,), (result,)), made.deliver(result)]


# ---------------------------------------------------------------- elements


def _elementwise(made: Operation) -> list[Nest]:
    """The nest of an element-wise operation; random numbers are computed from i64 operands."""
    statement, (tile, lanes) = made.statement, made.written()
    dtype = result = statement.dtype
    if OPS[statement.operation].category is Category.RANDOM:
        dtype = DType.I64
        result = DType.F32 if statement.operation == "rand" else DType.F64
    elif OPS[statement.operation].result is Result.BOOL:
        result = DType.BOOL
    nest = Nest(
        Kind.ASSIGN,
        lanes.axes,
        tile_reference(tile, lanes.loops),
        made.maker.dtype(tile),
        statement.operation,
        tuple(made.source(position, lanes.loops) for position in range(len(statement.operands))),
        dtype,
        result,
        dict(statement.attributes),
        statement.text,
    )
    return made.maker.apart(nest)


# ---------------------------------------------------------------- reductions, matrix products


def _reduction(made: Operation) -> list[Nest]:
    """Initialise an accumulator, accumulate over all lanes, move it to the destination."""
    maker, statement, (tile, _) = made.maker, made.statement, made.written()
    axes, row = statement.axes, OPS[statement.operation]
    extents, domain = made.shape(0)
    kept = [axis for axis in range(len(extents)) if axis not in axes]
    written = made.domain
    if len(written) == len(extents):
        written = tuple(written[axis] for axis in kept)
    computed = dict(zip(kept, written, strict=False))
    domain = tuple(computed.get(axis, own) for axis, own in enumerate(domain))
    every = Lanes.over(extents, domain)
    inner = tuple(extents[axis] for axis in kept)
    outer = Lanes.over(inner, tuple(domain[axis] for axis in kept))
    dtype = DType.BOOL if row.truth else statement.dtype.compute
    if row.identity == "one" and dtype.is_float:
        # Some of the factors may leave f32's range where all of them do not.
        dtype = DType.F64
    total = made.accumulator(inner, dtype)

    def placed(name: str, loops: Loops) -> Loops:
        """For each axis of a destination its loop: with or without kept dimensions."""
        rank = len(maker.extents(name))
        if rank != len(extents):
            return loops if kept else (None,) * rank
        by_axis = dict(zip(kept, loops, strict=True))
        return tuple(by_axis.get(axis) for axis in range(rank))

    value = identity_value(row.identity or "zero", dtype)
    body = Nest(
        Kind.ACCUMULATE,
        every.axes,
        tile_reference(total, placed(total, tuple(every.loops[axis] for axis in kept))),
        dtype,
        statement.operation,
        (made.source(0, every.loops),),
        note=statement.text,
    )
    found = [maker.fill(total, outer, value, loops=placed(total, outer.loops)), body]
    if total != tile:
        read = maker.tile_read(total, outer.loops)
        found.append(maker.move(outer, tile, read, loops=placed(tile, outer.loops)))
    return found


def _product(made: Operation) -> list[Nest]:
    """Initialise an accumulator, multiply into it, move it to the destination."""
    maker, statement, (tile, lanes) = made.maker, made.statement, made.written()
    dtype = statement.dtype.compute
    if dtype.is_integer and dtype.bytes < DType.I32.bytes:
        dtype = DType.I32  # wraps to the same, and registers are made for it
    (rows, columns), (valid_rows, valid_columns) = made.target
    total = made.accumulator((rows, columns), dtype)
    found: list[Nest] = []
    if not OPS[statement.operation].accumulates:
        found.append(maker.fill(total, lanes, 0))
    elif total != tile:
        found.append(maker.move(lanes, total, maker.tile_read(tile, lanes.loops)))
    trans_a, trans_b = (bool(statement.attributes.get(f"trans_{side}")) for side in "ab")
    (left, left_domain), (_, right_domain) = made.shape(0), made.shape(1)
    valid = symbolic.meet(left_domain[not trans_a], right_domain[trans_b])
    inner = left[not trans_a]
    found.append(
        Nest(
            Kind.CALL,
            (),
            tile_reference(total, (None, None)),
            dtype,
            statement.operation,
            tuple(made.source(side, (None, None)) for side in (0, 1)),
            note=statement.text,
            call=Product(
                axis_bounds(rows, valid_rows),
                axis_bounds(columns, valid_columns),
                axis_bounds(inner, valid),
                (rows, columns, inner),
                trans_a,
                trans_b,
                str(statement.attributes.get("precision", "ieee")),
            ),
        )
    )
    if total != tile:
        found.append(maker.move(lanes, tile, maker.tile_read(total, lanes.loops)))
    return found


#: The rules of categories, and of operations that have their own.
CATEGORIES: Mapping[Category, Callable[[Operation], list[Nest]]] = {
    Category.REDUCTION: _reduction,
    Category.MATRIX: _product,
    Category.SCAN: _scan,
    Category.INDEX: _extremum,
}
RULES: Mapping[str, Callable[[Operation], list[Nest]]] = {
    "sort": _sort,
    "topk": _topk,
    "copy": _copy,
    "fill": _copy,
    "broadcast": _copy,
    "transpose": _copy,
    "permute": _permute,
    "concat": _concat,
    "reshape": _reshape,
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
            case ir.Compute(operation):
                if not self.versions.effective(statement):
                    return []
                rule = CATEGORIES.get(OPS[operation].category, _elementwise)
                return RULES.get(operation, rule)(Operation(self, statement))
            case ir.Bind():
                return self._bind(statement)
            case ir.For() | ir.If() | ir.Fetch():
                raise InternalError("not straight-line code")
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
        """The nest that sets lanes of a tile to a number; `loops` as in `move`."""
        source = ScalarSource(ir.Literal(value), self.dtype(tile))
        return attrs.evolve(self.move(lanes, tile, source, note, loops), early=True)

    def _load(self, statement: ir.Load) -> list[Nest]:
        tile = self.versions.written(statement)
        if self.versions.source(tile) is not None:
            return []
        lanes = Lanes.over(self.extents(tile), statement.domain)
        read = self.tensor_read(statement, lanes.loops, tile, "")
        return self.apart(self.move(lanes, tile, read, statement.text))

    def move(
        self, lanes: Lanes, tile: str, source: Source, note: str = "", loops: Loops | None = None
    ) -> Nest:
        """The nest that copies a source to the lanes of a tile, whose axes have the loops of
        `lanes`, or `loops` if given."""
        target = tile_reference(tile, lanes.loops if loops is None else loops)
        return Nest(Kind.ASSIGN, lanes.axes, target, self.dtype(tile), "copy", (source,), note=note)

    def _store(self, statement: ir.Store | ir.Atomic) -> list[Nest]:
        tile = self.versions.read(statement, statement.tile)
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

    def apart(self, nest: Nest) -> list[Nest]:
        """The nest, by way of a temporary where it reads other lanes of its own destination."""
        tile, terms = nest.target.name, nest.target.terms
        read = [read.reference for read in nest.reads if not read.reference.tensor]
        if all(one.terms == terms for one in read if one.name == tile):
            return [nest]
        lanes = Lanes(nest.axes, tuple(term.axis for term in terms))
        name = self.temporary(f"{tile}_new", self.extents(tile), nest.stored)
        first = attrs.evolve(nest, target=tile_reference(name, lanes.loops))
        return [first, self.move(lanes, tile, self.tile_read(name, lanes.loops))]
