"""Tile operations to loop nests: one method per kind of statement.

Reductions become three nests (initialise, accumulate, finish), so that fusion needs no special case
for them. Loads whose tensor is not written before the last use become reads of the tensor itself
(`forwarding.py`), so that a tile that is only loaded takes no memory at all.
"""

from __future__ import annotations

from typing import assert_never

import attrs

from sketchc import ir
from sketchc.diagnostics import InternalError
from sketchc.lowering.cpp.forwarding import Versions
from sketchc.lowering.cpp.nests import (
    ONE,
    Kind,
    Lanes,
    LaneSource,
    Nest,
    Product,
    Read,
    Reference,
    ScalarSource,
    Source,
    Term,
    axis_bounds,
)
from sketchc.ops import OPS, Category
from sketchc.symbolic import constant_value, show
from sketchc.types import DType


@attrs.define
class NestMaker:
    """Makes the nests of one phase. `bindings` maps names bound so far to their expressions."""

    sketch: ir.Sketch
    versions: Versions
    bindings: dict[str, ir.Expr] = attrs.field(factory=dict)
    #: accumulators of reductions and temporaries, beside the sketch's own tiles
    temporaries: dict[str, tuple[tuple[ir.Expr, ...], DType]] = attrs.field(factory=dict)

    # ------------------------------------------------------------ tiles

    def extents(self, tile: str) -> tuple[ir.Expr, ...]:
        if tile in self.temporaries:
            return self.temporaries[tile][0]
        return self.sketch.tile(self.versions.origin(tile)).extents

    def dtype(self, tile: str) -> DType:
        if tile in self.temporaries:
            return self.temporaries[tile][1]
        return self.sketch.tile(self.versions.origin(tile)).dtype

    def _temporary(self, stem: str, extents: tuple[ir.Expr, ...], dtype: DType) -> str:
        name = self.versions.fresh(stem)
        self.temporaries[name] = (extents, dtype)
        return name

    # ------------------------------------------------------------ statements

    def nests(self, statement: ir.Statement) -> list[Nest]:
        """The nests of one statement that is not a loop."""
        match statement:
            case ir.Alloc(tile):
                return self._alloc(tile) if self.versions.needed(tile) else []
            case ir.Load() | ir.Compute() if not self.versions.needed(
                self.versions.written(statement)
            ):
                return []
            case ir.Load():
                return self._load(statement)
            case ir.Store():
                return self._store(statement)
            case ir.Compute():
                return self._compute(statement)
            case ir.Bind(name, value):
                self.bindings[name] = value
                return []
            case ir.For():
                msg = "a loop is not straight-line code"
                raise InternalError(msg)
            case _:
                assert_never(statement)

    def _alloc(self, name: str) -> list[Nest]:
        tile = self.sketch.tile(name)
        if tile.initial is None:
            return []
        lanes = Lanes.over(tile.extents, tile.domain or ())
        shown = ", ".join(show(extent) for extent in tile.extents)
        note = f"{name} = alloc([{shown}], init={tile.initial})"
        return [self._fill(name, lanes, lanes.loops, tile.initial, tile.dtype, note)]

    def _fill(
        self,
        tile: str,
        lanes: Lanes,
        loops: tuple[int | None, ...],
        value: int | float | bool,
        dtype: DType,
        note: str = "",
    ) -> Nest:
        return Nest(
            Kind.ASSIGN,
            lanes.axes,
            tile_reference(tile, loops),
            dtype,
            "copy",
            (ScalarSource(ir.Literal(value), dtype),),
            dtype,
            dtype,
            notes=(note,) if note else (),
            early=True,
        )

    def _load(self, statement: ir.Load) -> list[Nest]:
        if self.versions.forwarded(statement):
            return []
        tile = self.versions.written(statement)
        lanes = Lanes.over(self.extents(tile), statement.domain)
        read = self._tensor_read(statement, lanes.loops, tile, "")
        return [self._move(lanes, tile_reference(tile, lanes.loops), tile, read, statement.text)]

    def _move(self, lanes: Lanes, target: Reference, tile: str, read: Read, note: str) -> Nest:
        dtype = self.dtype(tile)
        notes = (note,) if note else ()
        return Nest(
            Kind.ASSIGN, lanes.axes, target, dtype, "copy", (read,), dtype, dtype, notes=notes
        )

    def _store(self, statement: ir.Store) -> list[Nest]:
        tile = self.versions.read(statement, 0)
        lanes = Lanes.over(self.extents(tile), statement.domain)
        source = self._tile_read(statement, 0, lanes.loops, statement.domain)
        target = self._access(statement.access, lanes.loops)
        stored = self.sketch.tensor(statement.access.tensor).dtype
        notes = (statement.text,) if statement.text else ()
        return [
            Nest(
                Kind.ASSIGN,
                lanes.axes,
                target,
                stored,
                "copy",
                (source,),
                stored,
                stored,
                notes=notes,
            )
        ]

    def _access(self, access: ir.Access, loops: tuple[int | None, ...]) -> Reference:
        terms: list[Term] = []
        slices = 0
        for subscript in access.subscripts:
            match subscript:
                case ir.ScalarSubscript(index):
                    terms.append(Term(None, index))
                case ir.SliceSubscript(lower, _):
                    terms.append(Term(loops[slices], lower))
                    slices += 1
                case _:
                    assert_never(subscript)
        base = self.sketch.tensor(access.tensor).name
        return Reference(access.tensor, tuple(terms), tensor=True, base=base)

    def _tensor_read(
        self, load: ir.Load, loops: tuple[int | None, ...], tile: str, note: str
    ) -> Read:
        stored = self.sketch.tensor(load.access.tensor).dtype
        pinned = _pinned(load.domain, loops)
        return Read(self._access(load.access, loops), stored, self.dtype(tile), tile, note, pinned)

    def _tile_read(
        self,
        statement: ir.Statement,
        position: int,
        loops: tuple[int | None, ...],
        domain: ir.Domain,
    ) -> Read:
        """What an operand reads, given the loop of each of its axes."""
        tile = self.versions.read(statement, position)
        load = self.versions.source(tile)
        if load is not None:
            return self._tensor_read(load, loops, tile, load.text)
        dtype = self.dtype(tile)
        reference = tile_reference(tile, loops)
        return Read(reference, dtype, dtype, tile, "", _pinned(domain, loops))

    # ------------------------------------------------------------ computations

    def _compute(self, statement: ir.Compute) -> list[Nest]:
        row = OPS[statement.operation]
        match row.category:
            case Category.REDUCTION:
                return self._reduction(statement, row.identity or "zero")
            case Category.MATRIX:
                return self._product(statement)
            case _:
                return self._elementwise(statement)

    def _written(self, statement: ir.Compute) -> ir.Domain:
        return statement.written if statement.masked else statement.domain

    def _elementwise(self, statement: ir.Compute) -> list[Nest]:
        tile = self.versions.written(statement)
        lanes = Lanes.over(self.extents(tile), self._written(statement))
        swapped = statement.operation == "transpose"
        sources = tuple(
            self._source(statement, position, operand, lanes.loops, swapped)
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
            (statement.text,) if statement.text else (),
        )
        if any(_crosses(read.reference, nest.target) for read in nest.reads):
            return self._through_temporary(nest, tile, lanes)
        return [nest]

    def _through_temporary(self, nest: Nest, tile: str, lanes: Lanes) -> list[Nest]:
        """For an operation that reads other lanes of its own destination."""
        name = self._temporary(f"{tile}_new", self.extents(tile), nest.stored)
        reference = tile_reference(name, lanes.loops)
        read = Read(reference, nest.stored, nest.stored, name)
        first = attrs.evolve(nest, target=reference)
        return [first, self._move(lanes, nest.target, tile, read, "")]

    def _source(
        self,
        statement: ir.Statement,
        position: int,
        operand: ir.Operand,
        loops: tuple[int | None, ...],
        swapped: bool = False,
    ) -> Source:
        match operand:
            case ir.ScalarOperand(value, dtype):
                return ScalarSource(value, dtype)
            case ir.TileOperand(domain=domain):
                extents = self.extents(self.versions.read(statement, position))
                order = (*loops[:-2], loops[-1], loops[-2]) if swapped else loops
                own = _aligned_loops(extents, domain, order)
                return self._tile_read(statement, position, own, domain)
            case ir.IndexOperand(value, dtype, extents, domain):
                return LaneSource(value, dtype, _aligned_loops(extents, domain, loops))
            case _:
                assert_never(operand)

    def _reduction(self, statement: ir.Compute, identity: str) -> list[Nest]:
        """Initialise an accumulator, accumulate over all lanes, move it to the destination."""
        tile = self.versions.written(statement)
        axes = _axes(statement)
        operand = statement.operands[0]
        extents, domain = self._shape(statement, operand)
        kept_domain = _kept_domain(self._written(statement), len(extents), axes)
        source_domain = tuple(
            own if axis in axes else kept_domain.get(axis, own)
            for axis, own in enumerate(domain or (ir.FULL,) * len(extents))
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
            total = self._temporary(f"{tile}_total", tuple(extents[a] for a in kept), dtype)
            start_loops = outer.loops
            body_loops = tuple(every.loops[axis] for axis in kept)
        value = _identity_value(identity, dtype)
        start = self._fill(total, outer, start_loops, value, dtype)
        body = Nest(
            Kind.ACCUMULATE,
            every.axes,
            tile_reference(total, body_loops),
            dtype,
            statement.operation,
            (self._source(statement, 0, operand, every.loops),),
            dtype,
            dtype,
            notes=(statement.text,) if statement.text else (),
        )
        if direct:
            return [start, body]
        target = tile_reference(tile, self._kept_loops(tile, kept, outer.loops, rank))
        read = Read(tile_reference(total, outer.loops), dtype, dtype, total)
        return [start, body, self._move(outer, target, tile, read, "")]

    def _kept_loops(
        self, tile: str, kept: list[int], loops: tuple[int | None, ...], rank: int
    ) -> tuple[int | None, ...]:
        """For each axis of a reduction's destination its loop: with or without kept dimensions."""
        if len(self.extents(tile)) != rank:
            return loops if kept else (None,)
        by_axis = dict(zip(kept, loops, strict=True))
        return tuple(by_axis.get(axis) for axis in range(rank))

    def _shape(
        self, statement: ir.Compute, operand: ir.Operand
    ) -> tuple[tuple[ir.Expr, ...], ir.Domain]:
        match operand:
            case ir.TileOperand(domain=domain):
                return self.extents(self.versions.read(statement, 0)), domain
            case ir.IndexOperand(extents=extents, domain=domain):
                return extents, domain
            case ir.ScalarOperand():
                return (ONE,), ()
            case _:
                assert_never(operand)

    # ------------------------------------------------------------ matrix products

    def _product(self, statement: ir.Compute) -> list[Nest]:
        tile = self.versions.written(statement)
        accumulates = OPS[statement.operation].accumulates
        dtype = statement.dtype.compute
        stored = self.dtype(tile)
        extents = self.extents(tile)
        lanes = Lanes.over(extents, self._written(statement))
        direct = stored is dtype and not statement.masked
        target = tile if direct else self._temporary(f"{tile}_total", extents, dtype)
        result = tile_reference(target, lanes.loops)
        before: list[Nest] = []
        if not accumulates:
            before = [self._fill(target, lanes, lanes.loops, 0, dtype)]
        elif not direct:
            read = Read(tile_reference(tile, lanes.loops), stored, stored, tile)
            before = [self._move(lanes, result, target, read, "")]
        nest = self._product_nest(statement, target, dtype)
        if direct:
            return [*before, nest]
        finished = Read(result, dtype, dtype, target)
        after = self._move(lanes, tile_reference(tile, lanes.loops), tile, finished, "")
        return [*before, nest, after]

    def _product_nest(self, statement: ir.Compute, target: str, dtype: DType) -> Nest:
        trans_a = bool(statement.attributes.get("trans_a", False))
        trans_b = bool(statement.attributes.get("trans_b", False))
        domains = [
            operand.domain if isinstance(operand, ir.TileOperand) and operand.domain else FULL_2
            for operand in statement.operands
        ]
        written = self._written(statement) or FULL_2
        rows, columns = self.extents(target)
        inner = self.extents(self.versions.read(statement, 0))[0 if trans_a else 1]
        left_depth = domains[0][0 if trans_a else 1]
        right_depth = domains[1][1 if trans_b else 0]
        shared = ir.AxisDomain(
            tuple(dict.fromkeys((*left_depth.lower, *right_depth.lower))),
            tuple(dict.fromkeys((*left_depth.upper, *right_depth.upper))),
        )
        product = Product(
            axis_bounds(rows, written[0]),
            axis_bounds(columns, written[1]),
            axis_bounds(inner, shared),
            (rows, columns, inner),
            trans_a,
            trans_b,
        )
        sources = tuple(
            self._tile_read(statement, position, (None, None), ()) for position in (0, 1)
        )
        return Nest(
            Kind.PRODUCT,
            (),
            tile_reference(target, (None, None)),
            dtype,
            statement.operation,
            sources,
            dtype,
            dtype,
            notes=(statement.text,) if statement.text else (),
            product=product,
        )


FULL_2: ir.Domain = (ir.FULL, ir.FULL)


def tile_reference(tile: str, loops: tuple[int | None, ...]) -> Reference:
    return Reference(tile, tuple(Term(loop) for loop in loops))


def _aligned_loops(
    extents: tuple[ir.Expr, ...], domain: ir.Domain, loops: tuple[int | None, ...]
) -> tuple[int | None, ...]:
    """The loop of each operand axis, aligned to the right; axes of extent 1 are repeated."""
    own = loops[len(loops) - len(extents) :] if extents else ()
    return tuple(
        None if constant_value(extent) == 1 else loop
        for extent, loop in zip(extents, own, strict=True)
    )


def _pinned(domain: ir.Domain, loops: tuple[int | None, ...]) -> bool:
    return any(loop is None and not lanes.full for lanes, loop in zip(domain, loops, strict=False))


def _crosses(read: Reference, target: Reference) -> bool:
    return not read.tensor and read.name == target.name and read.terms != target.terms


def _axes(statement: ir.Compute) -> tuple[int, ...]:
    axes = statement.attributes["axis"]
    if not isinstance(axes, tuple):
        msg = "an axis attribute is a tuple after elaboration"
        raise InternalError(msg)
    return axes


def _accumulator(statement: ir.Compute) -> DType:
    if statement.operation in ("reduce_any", "reduce_all"):
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


_INTEGER_LIMITS = {DType.I32: (-(2**31), 2**31 - 1), DType.I64: (-(2**63), 2**63 - 1)}


def _identity_value(name: str, dtype: DType) -> int | float | bool:
    match name:
        case "zero":
            return 0
        case "one":
            return 1
        case "false":
            return False
        case "true":
            return True
        case _ if dtype is DType.BOOL:
            return name == "highest"
        case _ if dtype.is_float:
            return float("-inf") if name == "lowest" else float("inf")
        case _:
            return _INTEGER_LIMITS[dtype][0 if name == "lowest" else 1]
