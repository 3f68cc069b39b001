"""Operations that move values between lanes: transpose, permute, reshape, concat, broadcast."""

from __future__ import annotations

from sketchc.base.diagnostics import InternalError
from sketchc.ir import nodes as ir
from sketchc.lowering.plan import PhysicalExtent
from sketchc.lowering.precedence import PYTHON, Code, parenthesised
from sketchc.lowering.python_host.names import literal
from sketchc.lowering.triton.expressions import kernel_expression
from sketchc.lowering.triton.scope import Scope, shape_code, spread
from sketchc.lowering.triton.values import (
    Shape,
    Value,
    carried,
    full,
    lane_numbers,
    operand_value,
    tile_name,
)


def rearranged(statement: ir.Compute, scope: Scope) -> Value:
    """The result of a layout operation."""
    match statement.operation:
        case "broadcast":
            tile = scope.plan.sketch.tile(statement.destination)
            rank = len(scope.shape(tile.name))
            return operand_value(statement.operands[0], tile.dtype, rank, scope)
        case "transpose":
            source = tile_name(statement.operands[0])
            rank = len(scope.plan.tiles[source].extents)
            return _permuted(source, (*range(rank - 2), rank - 1, rank - 2), scope)
        case "permute":
            return _permuted(tile_name(statement.operands[0]), _axes(statement), scope)
        case "reshape":
            return _reshaped(statement, scope)
        case "concat":
            return _concatenated(statement, scope)
        case name:
            msg = f"no layout operation {name}"
            raise InternalError(msg)


def axis_of(statement: ir.Compute) -> int:
    """The one axis of an operation along an axis."""
    found = _integers(statement.attributes["axis"])
    if len(found) != 1:
        msg = f"{statement.operation} runs along one axis"
        raise InternalError(msg)
    return found[0]


def _axes(statement: ir.Compute) -> tuple[int, ...]:
    return _integers(statement.attributes["axes"])


def _integers(value: object) -> tuple[int, ...]:
    match value:
        case int():
            return (value,)
        case tuple() | list():
            return tuple(int(part) for part in value)
        case _:
            msg = f"axes are integers, not {value!r}"
            raise InternalError(msg)


def _permuted(source: str, order: tuple[int, ...], scope: Scope) -> Value:
    shape = scope.shape(source)
    dtype = scope.plan.sketch.tile(source).dtype
    name = scope.names[source]
    if not shape or order == tuple(range(len(order))):
        return Value(Code(name), dtype, shape)
    result = tuple(shape[axis] for axis in order)
    if len(shape) == 2:
        return Value(PYTHON.call("tl.trans", name), dtype, result)
    text = ", ".join(str(axis) for axis in order)
    return Value(PYTHON.call("tl.permute", name, f"({text})"), dtype, result)


# ---------------------------------------------------------------- reshape


def _reshaped(statement: ir.Compute, scope: Scope) -> Value:
    """Row-major over the *logical* extents: where an axis that is split or merged is padded, a
    gather; else Triton's own reshape."""
    source = scope.plan.tiles[tile_name(statement.operands[0])]
    target = scope.plan.tiles[statement.destination]
    name, dtype = source.tile.name, source.tile.dtype
    old, new = scope.shape(name), scope.shape(target.tile.name)
    code = Code(scope.names[name])
    if not old or not new:
        # One element on both sides: extents that are 1 however they are written.
        return Value(code, dtype, old)
    inner = _differing(
        list(zip(source.tile.extents, source.extents, strict=True)),
        list(zip(target.tile.extents, target.extents, strict=True)),
    )
    if not any(extent.padded or extent.value is None for extent in inner):
        return Value(PYTHON.call("tl.reshape", code, shape_code(new)), dtype, new)
    index = _row_major_lanes(statement.destination, name, scope)
    total = _product(old)
    index = PYTHON.call("tl.minimum", index, PYTHON.binary("-", total, Code("1")))
    index = PYTHON.call("tl.reshape", index, shape_code((_product(new),)))
    value, back = carried(code, dtype)
    flat = PYTHON.call("tl.reshape", value, shape_code((total,)))
    words = repr(scope.dialect.gathers_words)
    moved = scope.call("take", flat, index, "0", words)
    return Value(PYTHON.call("tl.reshape", moved, shape_code(new)), back, new)


Axis = tuple[ir.Expr, PhysicalExtent]


def _differing(old: list[Axis], new: list[Axis]) -> list[PhysicalExtent]:
    """The physical extents that are left when equal leading and trailing axes, and those of extent
    1, are taken away."""
    one = ir.Literal(1)
    old, new = ([axis for axis in axes if axis[0] != one] for axes in (old, new))
    while old and new and old[0] == new[0]:
        old, new = old[1:], new[1:]
    while old and new and old[-1] == new[-1]:
        old, new = old[:-1], new[:-1]
    return [extent for _, extent in (*old, *new)]


def _product(shape: Shape) -> Code:
    return PYTHON.fold("*", list(shape))


def _row_major_lanes(target: str, source: str, scope: Scope) -> Code:
    """For each lane of `target`, the physical row-major lane of `source` that it takes, broadcast
    to the shape of `target`."""
    planned, given = scope.plan.tiles[target], scope.plan.tiles[source]
    shape, rank = scope.shape(target), len(planned.extents)
    flat: Code | None = None
    for axis, (extent, code) in enumerate(zip(planned.tile.extents, shape, strict=True)):
        lane = spread(lane_numbers(code, scope), axis, rank)
        if flat is not None:
            flat = PYTHON.binary("*", flat, kernel_expression(extent, scope))
        flat = lane if flat is None else PYTHON.binary("+", flat, lane)
    assert flat is not None
    parts: list[Code] = []
    stride: Code | None = None
    physical: Code | None = None
    pairs = zip(given.tile.extents, scope.shape(source), strict=True)
    for position, (extent, code) in reversed(list(enumerate(pairs))):
        coordinate = flat if stride is None else PYTHON.binary("//", flat, stride)
        logical = kernel_expression(extent, scope)
        if position > 0:
            coordinate = PYTHON.binary("%", coordinate, logical)
        parts.append(coordinate if physical is None else PYTHON.binary("*", coordinate, physical))
        stride = logical if stride is None else PYTHON.binary("*", stride, logical)
        stride = parenthesised(stride)
        physical = code if physical is None else PYTHON.binary("*", physical, code)
        physical = parenthesised(physical)
    return PYTHON.call("tl.broadcast_to", PYTHON.fold("+", parts[::-1]), shape_code(shape))


# ---------------------------------------------------------------- concat


def _concatenated(statement: ir.Compute, scope: Scope) -> Value:
    """Each side read at its own lanes, then a choice by lane."""
    axis = axis_of(statement)
    target = scope.shape(statement.destination)
    first = scope.plan.tiles[tile_name(statement.operands[0])].tile
    rank = len(first.extents)
    lanes = spread(lane_numbers(target[axis], scope), axis, rank)
    border = kernel_expression(first.extents[axis], scope)
    behind = PYTHON.call("tl.maximum", PYTHON.binary("-", lanes, border), "0")
    sides, back = [], statement.dtype
    for operand, places in zip(statement.operands, (lanes, behind), strict=True):
        value = operand_value(operand, statement.dtype, rank, scope)
        shape = scope.shape(tile_name(operand))
        if not shape or shape[axis].text == "1":
            code, back = carried(value.code, statement.dtype)
            sides.append(code if shape else full(target, code, back))
            continue
        last = PYTHON.binary("-", shape[axis], literal(1))
        places = PYTHON.call("tl.minimum", places, last)
        index = (*shape[:axis], target[axis], *shape[axis + 1 :])
        places = PYTHON.call("tl.broadcast_to", places, shape_code(index))
        code, back = carried(value.code, statement.dtype)
        words = repr(scope.dialect.gathers_words)
        sides.append(scope.call("take", code, places, str(axis), words))
    condition = PYTHON.binary("<", lanes, border)
    return Value(PYTHON.call("tl.where", condition, *sides), back, target)
