"""Masks, offsets, loads and stores of one kernel."""

from __future__ import annotations

import math
from typing import assert_never

from sketchc import ir
from sketchc.lowering.precedence import PYTHON, Code
from sketchc.lowering.triton.dialect import TL
from sketchc.lowering.triton.expressions import is_literal, kernel_expression, literal
from sketchc.lowering.triton.scope import Scope, spread
from sketchc.types import DType


def conditions(
    domain: ir.Domain, tile: str, scope: Scope, axes: tuple[int, ...] | None = None
) -> list[Code]:
    """The conditions under which a lane of `tile` lies in `domain`, axis by axis.

    `axes` restricts them; a lane beyond the logical extent (padding) is never inside.
    """
    planned = scope.plan.tiles[tile]
    rank = len(planned.extents)
    single = not scope.shape(tile)
    found: list[Code] = []
    for axis in range(rank) if axes is None else axes:
        part = domain[axis] if domain else ir.FULL
        physical, logical = planned.extents[axis], planned.tile.extents[axis]
        if physical.value == 1:
            # The one lane is lane 0.
            found += [
                PYTHON.binary(">", kernel_expression(b, scope), Code("0")) for b in part.upper
            ]
            found += [
                PYTHON.binary("<=", kernel_expression(b, scope), Code("0")) for b in part.lower
            ]
            continue
        assert not single
        lane = spread(Code(scope.lane(scope.extent_code(physical, logical))), axis, rank)
        upper = [*part.upper, logical] if physical.padded else part.upper
        found += [PYTHON.binary(">=", lane, kernel_expression(b, scope)) for b in part.lower]
        found += [PYTHON.binary("<", lane, kernel_expression(b, scope)) for b in upper]
    return found


def conjunction(found: list[Code]) -> Code | None:
    """All conditions at once; None for none."""
    return PYTHON.fold("&", found) if found else None


def address(access: ir.Access, tile: str, scope: Scope) -> Code:
    """The pointers of a tile's lanes: base, offset of lane 0, then one vector per axis."""
    tensor = scope.plan.sketch.tensor(access.tensor)
    scope.tensors[tensor.name] = None
    pointer = Code(scope.names[f"{tensor.name}_ptr"])
    shape = scope.shape(tile)
    planned = scope.plan.tiles[tile]
    origin: list[ir.Expr] = []
    vectors: list[tuple[int, Code]] = []
    axis = 0
    for dimension, subscript in enumerate(access.subscripts):
        match subscript:
            case ir.ScalarSubscript(index):
                origin.append(index)
            case ir.SliceSubscript(lower, _):
                origin.append(lower)
                if shape and planned.extents[axis].value != 1:
                    lane = spread(Code(scope.lane(shape[axis])), axis, len(shape))
                    vectors.append((dimension, lane))
                axis += 1
            case _:
                assert_never(subscript)
    if any(tensor.broadcast) and access.tensor == tensor.name:
        parts = _strided_origin(tensor, origin, scope)
        parts += [_times(lane, _stride_name(tensor, d, scope)) for d, lane in vectors]
    else:
        extents = scope.plan.sketch.extents(access.tensor)
        parts = _dense_origin(origin, extents, scope)
        parts += [_times(lane, _dense_stride(extents[d + 1 :], scope)) for d, lane in vectors]
    return PYTHON.fold("+", [pointer, *parts])


def _times(lane: Code, stride: Code | None) -> Code:
    return lane if stride is None else PYTHON.binary("*", lane, stride)


def _dense_stride(extents: tuple[ir.Expr, ...], scope: Scope) -> Code | None:
    codes = [kernel_expression(e, scope) for e in extents if not is_literal(e, 1)]
    if not codes:
        return None
    product = PYTHON.fold("*", codes)
    return Code(f"({product.text})") if len(codes) > 1 else product


def _dense_origin(origin: list[ir.Expr], extents: tuple[ir.Expr, ...], scope: Scope) -> list[Code]:
    """Offset of lane 0 by Horner's rule: `((b * F + f) * D1 + d) * D2`."""
    total: Code | None = None
    for index, extent in zip(origin, extents, strict=True):
        if total is not None and not is_literal(extent, 1):
            total = PYTHON.binary("*", total, kernel_expression(extent, scope))
        if not is_literal(index, 0):
            code = kernel_expression(index, scope)
            total = code if total is None else PYTHON.binary("+", total, code)
    if total is None:
        return []
    # Kept apart from the vectors: one scalar addition instead of one per lane.
    return [Code(f"({total.text})") if total.level == PYTHON.binary_levels["+"] else total]


def _stride_name(tensor: ir.Tensor, axis: int, scope: Scope) -> Code:
    key = (tensor.name, axis)
    if key not in scope.strides:
        scope.strides[key] = scope.names[f"{tensor.name}_stride_{axis}"]
    return Code(scope.strides[key])


def _strided_origin(tensor: ir.Tensor, origin: list[ir.Expr], scope: Scope) -> list[Code]:
    """Offsets by run-time strides: an axis of extent 1 that is broadcast has stride 0."""
    parts = []
    for axis, index in enumerate(origin):
        if not is_literal(index, 0):
            stride = _stride_name(tensor, axis, scope)
            parts.append(PYTHON.binary("*", kernel_expression(index, scope), stride))
    return parts


def load(statement: ir.Load, fill: int | float | bool | None, scope: Scope) -> Code:
    """The value of a load, in the tile's type."""
    tensor = scope.plan.sketch.tensor(statement.access.tensor)
    tile = scope.plan.sketch.tile(statement.tile)
    mask = conjunction(conditions(statement.domain, statement.tile, scope))
    arguments: list[Code | str] = [address(statement.access, statement.tile, scope)]
    old = Code(scope.names[tile.name]) if tile.initial is not None else None
    same = tile.dtype is tensor.dtype
    late_fill = mask is not None and (
        (old is not None and not same) or (old is None and not same and not _simple(fill))
    )
    if mask is not None:
        arguments.append(f"mask={mask}")
        if old is not None and same:
            arguments.append(f"other={old}")
        elif old is None and fill is not None and not late_fill:
            arguments.append(f"other={fill_code(fill, tensor.dtype)}")
    value = convert(PYTHON.call("tl.load", *arguments), tensor.dtype, tile.dtype)
    if not late_fill or mask is None or (old is None and fill is None):
        return value
    other = old if old is not None else fill_code(fill or 0, tile.dtype)
    return PYTHON.call("tl.where", mask, value, other)


def _simple(fill: int | float | bool | None) -> bool:
    """True where a fill means the same in every type."""
    return fill is None or fill in (0, 1) or (isinstance(fill, float) and math.isinf(fill))


def fill_code(value: int | float | bool, dtype: DType) -> Code:
    """A fill or initial value as a literal of the type's kind."""
    if dtype.is_float:
        return literal(float(value))
    return literal(bool(value) if dtype is DType.BOOL else int(value))


def store(statement: ir.Store, scope: Scope) -> Code:
    """The call that writes a tile."""
    tensor = scope.plan.sketch.tensor(statement.access.tensor)
    tile = scope.plan.sketch.tile(statement.tile)
    mask = conjunction(conditions(statement.domain, statement.tile, scope))
    value = convert(Code(scope.names[tile.name]), tile.dtype, tensor.dtype)
    arguments: list[Code | str] = [address(statement.access, statement.tile, scope), value]
    if mask is not None:
        arguments.append(f"mask={mask}")
    return PYTHON.call("tl.store", *arguments)


def convert(code: Code, source: DType, target: DType) -> Code:
    """A tensor value in another type; to bool it tests against zero."""
    if source is target:
        return code
    if target is DType.BOOL:
        return PYTHON.binary("!=", code, Code("0"))
    return PYTHON.postfix(code, f".to({TL[target]})")
