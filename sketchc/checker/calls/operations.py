"""Compute calls: arguments and operands, read by the op table."""

from __future__ import annotations

from typing import assert_never

from sketchc.base import records
from sketchc.base.diagnostics import Edit, Fix, InternalError
from sketchc.base.types import DType
from sketchc.checker.calls import cross_lanes
from sketchc.checker.calls.accesses import readable_tile, writable_tile
from sketchc.checker.calls.arguments import Arguments, gather
from sketchc.checker.calls.calls import Call
from sketchc.checker.calls.composites import expand
from sketchc.checker.calls.expressions import expression
from sketchc.checker.calls.fresh_tiles import copied
from sketchc.checker.calls.scalars import scalar_operand
from sketchc.checker.calls.tile_operands import tile_with_subscripts
from sketchc.checker.calls.undefined import check_second_operand
from sketchc.checker.context.context import Context, InvalidError
from sketchc.checker.context.lets import without_functions
from sketchc.checker.context.names import TileName, TileState, closest
from sketchc.ir import nodes as ir
from sketchc.ir.walk import tiles_read
from sketchc.ops.table import OPS, Category, Op, Shape
from sketchc.parsing import syntax
from sketchc.parsing.text import statement_text


def compute(context: Context, node: syntax.Compute) -> tuple[ir.Statement, ...]:
    """Elaborate one call; raises `InvalidError` after reporting what is wrong."""
    row = OPS.get(node.operation)
    if row is None:
        raise _unknown(context, node)
    arguments = gather(context, node, row)
    operands = tuple(operand(context, node) for node in arguments.operands)
    destinations = tuple(_destination(context, item) for item in arguments.destinations)
    _check_in_place(context, node, row, operands, destinations)
    call = Call(context, node, row, operands, destinations[0], destinations[1:])
    before, operands = _own_tiles(call)
    call = records.evolve(call, operands=operands)
    attributes = dict(arguments.attributes)
    moving = any(isinstance(value, ir.ScalarOperand) for value in attributes.values())
    if row.category is Category.COMPOSITE or moving:
        return (*before, *expand(call, attributes))
    dtype = _check(call, arguments, attributes)
    return (
        *before,
        ir.Compute(
            row.name,
            operands,
            destinations[0].name,
            dtype,
            attributes,
            others=tuple(tile.name for tile in destinations[1:]),
            text=statement_text(node),
            span=node.span,
        ),
    )


def _check(call: Call, arguments: Arguments, attributes: dict[str, object]) -> DType:
    """Check shapes and types, and settle the axes; gives the type of the evaluation."""
    match call.row.category:
        case Category.REDUCTION:
            attributes["axis"] = call.reduce(arguments)
        case Category.INDEX:
            one = records.evolve(arguments, axes=(_axis(call, attributes),))
            attributes["axis"] = call.reduce(one)
        case Category.SCAN:
            attributes["axis"] = cross_lanes.scan(call, _axis(call, attributes))
        case Category.SORTING:
            attributes["axis"] = cross_lanes.order(call, _axis(call, attributes))
            return cross_lanes.order_dtype(call)
        case Category.MATRIX:
            call.multiply(attributes)
        case Category.RANDOM:
            return cross_lanes.random(call)
        case Category.LAYOUT:
            _arrange(call, arguments, attributes)
        case Category.ELEMENTWISE:
            call.broadcast()
            dtype = call.evaluation_dtype()
            check_second_operand(call, dtype)
            return dtype
        case Category.COMPOSITE:
            msg = "composites are expanded"
            raise InternalError(msg)
        case _:
            assert_never(call.row.category)
    return call.evaluation_dtype()


def _axis(call: Call, attributes: dict[str, object]) -> int:
    axis = attributes["axis"]
    assert isinstance(axis, int)  # arguments.gather has seen to it
    return axis


def _arrange(call: Call, arguments: Arguments, attributes: dict[str, object]) -> None:
    match call.row.name:
        case "transpose":
            call.transpose()
        case "permute":
            attributes["axes"] = cross_lanes.permute(call, arguments.axes)
        case "reshape":
            cross_lanes.reshape(call)
        case "concat":
            attributes["axis"] = cross_lanes.concat(call, _axis(call, attributes))
        case _:
            call.broadcast()


def _unknown(context: Context, node: syntax.Compute) -> InvalidError:
    meant = closest(node.operation, OPS)
    return context.error(
        node.operation_span,
        "SK0210",
        f"unknown operation `{node.operation}`",
        "not known" if meant is None else f"did you mean `{meant}`?",
        fixes=()
        if meant is None
        else (Fix(f"use `{meant}`", (Edit(node.operation_span, meant),)),),
    )


# ---------------------------------------------------------------- operands


def operand(context: Context, node: syntax.Expression) -> ir.Operand:
    match node:
        case syntax.Name(id=name) if isinstance(context.scopes.find(name), TileName):
            return ir.TileOperand(readable_tile(context, node).name, span=node.span)
        case syntax.Subscript(base=syntax.Name(id=name) as base) if isinstance(
            context.scopes.find(name), TileName
        ):
            return tile_with_subscripts(context, node, base)
        case _:
            typed = expression(context, node)
    match typed.value:
        case ir.TileLanes(tile=name, dtype=DType.BOOL, layout=layout) if all(layout):
            return ir.TileOperand(name, span=node.span)  # what a comparison of data tiles gave
        case _:
            pass
    if typed.extents is not None:
        without_functions(context, typed, node.span)
        return ir.IndexOperand(typed.value, typed.dtype, typed.extents, span=node.span)
    return scalar_operand(context, typed, node)


def _own_tiles(call: Call) -> tuple[tuple[ir.Statement, ...], tuple[ir.Operand, ...]]:
    """The operands, of which an operation across lanes needs tiles as they are: others, as
    `t[:, None]` and `iota(T)`, are copied into tiles of their own first."""
    row = call.row
    if row.category in (Category.ELEMENTWISE, Category.RANDOM) or row.shape is Shape.DESTINATION:
        return (), call.operands
    before: list[ir.Statement] = []
    operands: list[ir.Operand] = []
    for position, operand in enumerate(call.operands):
        done = operand
        shaped = isinstance(operand, ir.TileOperand) and operand.layout is not None
        numbers = isinstance(operand, ir.IndexOperand) and not (
            row.category is Category.SORTING and position == 1
        )
        if shaped or numbers:
            statements, tile = copied(
                call.context,
                operand,
                f"{call.destination.source_name}_operand",
                call.extents(operand),
                call.dtype(operand),
            )
            before += statements
            done = ir.TileOperand(tile.name, span=operand.span)
        operands.append(done)
    return tuple(before), tuple(operands)


def _destination(context: Context, node: syntax.Expression) -> TileState:
    match node:
        case syntax.Name():
            return writable_tile(context, node)
        case syntax.Subscript(base=syntax.Name(id=name) as base) if isinstance(
            context.scopes.find(name), TileName
        ):
            if any(isinstance(part, syntax.NewAxis) for part in node.subscripts):
                raise context.error(
                    node.span,
                    "SK0303",
                    "a destination is written as it was made",
                    "only what is read may have new axes",
                    help=f"write to `{name}`; a reduction needs no axis of extent 1 there",
                )
            tile_with_subscripts(context, node, base)
            return writable_tile(context, base)
        case _:
            raise context.error(
                node.span,
                "SK0206",
                "the last argument is the destination: a tile",
                "not a tile",
                help="the destination stands last, or is given as `dst=`",
            )


def _check_in_place(
    context: Context,
    node: syntax.Compute,
    row: Op,
    operands: tuple[ir.Operand, ...],
    destinations: tuple[TileState, ...],
) -> None:
    """An operation across lanes reads no tile that it writes (R3), and writes none twice."""
    if len(destinations) > 1 and destinations[0] is destinations[1]:
        raise context.error(
            node.span,
            "SK0313",
            f"`{row.name}` writes `{destinations[0].source_name}` twice",
            "each result needs a tile of its own",
        )
    lane_by_lane = (Category.ELEMENTWISE, Category.RANDOM, Category.COMPOSITE)
    if row.category in lane_by_lane or row.shape is Shape.DESTINATION:
        return
    written = {tile.name: tile for tile in destinations}
    for operand in operands:
        read = (operand.tile,) if isinstance(operand, ir.TileOperand) else tiles_read(operand.value)
        for name in read:
            if name in written:
                raise context.error(
                    operand.span,
                    "SK0313",
                    f"`{row.name}` reads `{written[name].source_name}` and writes it",
                    "also the destination",
                    notes=("an operation across lanes needs a destination of its own (R3)",),
                    help="allocate another tile for the result",
                )
