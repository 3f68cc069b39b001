"""Operations with nests of their own: what is neither element-wise, a reduction nor a product.

A rule makes the nests of one statement. Those that scan or order lanes are calls of a function of
the target's library on tiles in memory (`nests.LibraryCall`). Their operands and results are
temporaries: nests before and after move values between those and the tiles, so that the tiles
themselves are fused, forwarded or kept in locals as with any other operation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import attrs

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir.symbolic import constant_value
from sketchc.lowering.loops.nests import (
    ONE,
    Block,
    Kind,
    Lanes,
    LibraryCall,
    Nest,
    Read,
    Reference,
    Term,
)
from sketchc.lowering.loops.tiles import Loops, statement_axes, tile_reference

if TYPE_CHECKING:
    from sketchc.lowering.loops.nest_maker import NestMaker

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
            extents, domain = (), ()
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
    tile = maker.versions.written(statement)
    lanes = Lanes.over(maker.extents(tile), maker.domain_written(statement))
    sources = tuple(
        maker.source(statement, position, operand, lanes.loops)
        for position, operand in enumerate(statement.operands)
    )
    nest = Nest(
        Kind.ASSIGN,
        lanes.axes,
        tile_reference(tile, lanes.loops),
        maker.dtype(tile),
        statement.operation,
        sources,
        _I64,
        DType.F32 if statement.operation == "rand" else DType.F64,
        note=statement.text,
    )
    return [nest]


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
