"""Operands and results of compute statements: code with its type and physical shape."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import attrs

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.symbolic import conjuncts, constant_value
from sketchc.lowering.precedence import PYTHON, Code
from sketchc.lowering.python_host.expressions import literal
from sketchc.lowering.triton.dialect import TL
from sketchc.lowering.triton.scope import (
    Scope,
    Shape,
    broadcast,
    broadcast_to,
    chosen,
    index_shape,
    kernel_expression,
    laid_out,
    shape_code,
    spread,
    truth,
)
from sketchc.ops.table import identity_value


@attrs.frozen
class Value:
    """A result: its code, its type (None: a Python number that takes any), its physical shape."""

    code: Code
    dtype: DType | None
    shape: Shape = ()


def fit(value: Value, dtype: DType, shape: Shape) -> Code:
    """`value` cast and broadcast to a tile: every write has the tile's exact type."""
    if value.dtype is None or (value.shape == () and shape != ()):
        return full(shape, value.code, dtype)
    code = convert(value.code, value.dtype, dtype)
    if value.shape == shape:
        return code
    return broadcast_to(code, shape)


def conditions(
    domain: ir.Domain, tile: str, scope: Scope, axes: tuple[int, ...] | None = None
) -> list[Code]:
    """The conditions under which a lane of `tile` lies in `domain`, axis by axis.

    Only those of `axes`, if given; a lane beyond the logical extent (padding) is never inside.
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
            for symbol, bounds in ((">", part.upper), ("<=", part.lower)):
                for bound in bounds:
                    code = PYTHON.binary(symbol, kernel_expression(bound, scope), Code("0"))
                    found.append(truth(code, (), scope))
            continue
        assert not single
        extent = scope.extent_code(physical, logical)
        scope.name_lanes(extent)
        upper = (*part.upper, logical) if physical.padded else part.upper
        if not part.lower and not upper:
            continue
        lane = spread(scope.lane(extent), axis, rank)
        if _nothing_between(part.lower, upper):
            # Said in two halves, it crashes compilers that see blocks of memory in masks.
            found.append(PYTHON.binary("<", lane, Code("0")))
            continue
        found += [_beside(lane, (">=", ">"), bound, scope) for bound in part.lower]
        found += [_beside(lane, ("<", "<="), bound, scope) for bound in upper]
    return found


def _beside(lane: Code, symbols: tuple[str, str], bound: ir.Expr, scope: Scope) -> Code:
    """The comparison of a lane with a bound. A quotient plus 1, as slices with a step have it, is
    not computed: lane < e//s + 1 is lane*s <= e for a positive s. (The address has lane*s, too.)"""
    match bound:
        case ir.Binary(
            "+", ir.Binary("//", dividend, ir.Ref() | ir.Literal() as step), ir.Literal(1)
        ):
            if not scope.dialect.interval_masks and _positive(step, scope):
                moved = PYTHON.binary("*", lane, kernel_expression(step, scope))
                return PYTHON.binary(symbols[1], moved, kernel_expression(dividend, scope))
        case _:
            pass
    return PYTHON.binary(symbols[0], lane, kernel_expression(bound, scope))


def _positive(number: ir.Expr, scope: Scope) -> bool:
    """Whether a number is at least 1, as it stands or since the wrapper requires it."""
    known = constant_value(number)
    if known is not None:
        return known >= 1
    required = (
        part for require in scope.plan.sketch.requires for part in conjuncts(require.condition)
    )
    return any(
        isinstance(part, ir.Binary)
        and part.operator == ">="
        and part.left == number
        and (constant_value(part.right) or 0) >= 1
        for part in required
    )


def _nothing_between(lower: Sequence[ir.Expr], upper: Sequence[ir.Expr]) -> bool:
    """True where the bounds that are numbers leave no lane."""
    least = [value for bound in lower if (value := constant_value(bound)) is not None]
    most = [value for bound in upper if (value := constant_value(bound)) is not None]
    return bool(least and most) and max(least) >= min(most)


def conjunction(found: list[Code]) -> Code | None:
    """All conditions at once; None for none."""
    return PYTHON.fold("&", found) if found else None


def fill_code(value: int | float | bool, dtype: DType) -> Code:
    """A fill or initial value as a literal of the type's kind."""
    if dtype.is_float:
        return literal(float(value))
    return literal(bool(value) if dtype is DType.BOOL else int(value))


def convert(code: Code, source: DType, target: DType) -> Code:
    """A tensor value in another type; to bool it tests against zero."""
    if source is target:
        return code
    if target is DType.BOOL:
        return PYTHON.binary("!=", code, Code("0"))
    return PYTHON.postfix(code, f".to({TL[target]})")


# ---------------------------------------------------------------- operands


def operand_value(operand: ir.Operand, dtype: DType, rank: int, scope: Scope) -> Value:
    """An operand in the evaluation type, with axes in front up to `rank`."""
    match operand:
        case ir.TileOperand(name, layout=layout):
            tile = scope.tile(name)
            shape = scope.shape(name)
            code = Code(scope.names[name])
            if shape:
                code, shape = _with_axes(code, shape, layout or (True,) * len(shape), rank)
            return Value(convert(code, tile.dtype, dtype), dtype, shape)
        case ir.ScalarOperand(value):
            return scalar_value(value, operand.dtype, dtype, scope)
        case ir.IndexOperand(value, own):
            # Axes of extent 1 in front are none here, as index tiles of one lane are scalars.
            code = kernel_expression(value, scope)
            codes = index_shape(value, scope)
            if dtype is not own or dtype is DType.I64:  # indices may be computed in 32 bits
                code = (
                    PYTHON.binary("!=", code, Code("0"))
                    if dtype is DType.BOOL
                    else PYTHON.call("tl.cast", code, TL[dtype])
                )
            if codes:
                code, codes = _with_axes(code, codes, (True,) * len(codes), rank)
            return Value(code, dtype, codes)


def _with_axes(code: Code, shape: Shape, layout: tuple[bool, ...], rank: int) -> tuple[Code, Shape]:
    """A block with the new axes of its layout, and with axes in front up to `rank`."""
    layout = (False,) * (rank - len(layout)) + layout
    return laid_out(code, layout), walk.laid_out(shape, layout, Code("1"))


def scalar_value(value: ir.Expr, own: DType, dtype: DType, scope: Scope) -> Value:
    """A scalar operand in the evaluation type; a literal stays a Python number."""
    match value:
        case ir.Literal(number):
            return _number(number, dtype)
        case ir.Unary("-", ir.Literal(number)):
            return _number(-number, dtype)
        case ir.Ref() if own.is_float and walk.on_host(value):
            return _host_float(value, dtype, scope)
    code = kernel_expression(value, scope)
    if own is DType.BOOL and dtype is DType.BOOL:
        return Value(code, None)
    if dtype is DType.BOOL:
        return Value(PYTHON.binary("!=", code, Code("0")), None)
    return Value(PYTHON.call("tl.cast", code, TL[dtype]), dtype)


def _number(number: int | float | bool, dtype: DType) -> Value:
    code = fill_code(number, dtype)
    if dtype is DType.F64:
        # Triton takes a bare float for an f32.
        return Value(full((), code, dtype), dtype)
    return Value(code, None)


def _host_float(value: ir.Ref, dtype: DType, scope: Scope) -> Value:
    """A float known on the host: a parameter, or what is computed there in f64."""
    if value.kind is ir.NameKind.CONSTANT:
        number = scope.constant(value)
        if dtype is DType.F64 and number is not None:
            return _number(number, dtype)
        return Value(kernel_expression(value, scope), None)
    code = kernel_expression(value, scope)
    if dtype is not (DType.F64 if scope.memory_scalars else DType.F32):
        code = PYTHON.call("tl.cast", code, TL[dtype])
    return Value(code, dtype)


def as_tensor(value: Value, dtype: DType, shape: Shape = ()) -> Value:
    """A Python number, or a scalar beside a tile, as a tensor of this shape."""
    if value.dtype is not None and (value.shape or not shape):
        return value
    return Value(full(shape, value.code, dtype), dtype, shape)


def full(shape: Shape, value: Code, dtype: DType) -> Code:
    """A tensor of one value. The interpreter cannot make bf16 constants, hence by way of f32."""
    if dtype is DType.BF16:
        return convert(full(shape, value, DType.F32), DType.F32, dtype)
    return PYTHON.call("tl.full", shape_code(shape), value, TL[dtype])


def broadcast_shape(values: list[Value]) -> Shape:
    """The shape of an element-wise result."""
    return functools.reduce(broadcast, (value.shape for value in values))


def selected(
    operand: ir.Operand, axes: tuple[int, ...], dtype: DType, identity: str, scope: Scope
) -> Code:
    """A tile converted to `dtype`, with the identity at the void lanes of `axes`."""
    assert isinstance(operand, ir.TileOperand)
    code, own = Code(scope.names[operand.tile]), scope.tile(operand.tile).dtype
    if identity in ("true", "false"):
        code, own = convert(code, own, DType.BOOL), DType.BOOL
    code = convert(code, own, dtype)
    mask = conjunction(conditions(operand.domain, operand.tile, scope, axes))
    return chosen(mask, code, fill_code(identity_value(identity, dtype), dtype))


def lanes_along(axis: int, shape: Shape, scope: Scope) -> Code:
    """The lane numbers of an axis of a shape in i32, laid out along it."""
    code = scope.lane(shape[axis])
    if scope.guarded:
        code = PYTHON.postfix(code, f".to({TL[DType.I32]})")
    return spread(code, axis, len(shape))


def taken(code: Code, places: Code, axis: int, scope: Scope) -> Code:
    """The values of a block, in its carrier type, at the lanes `places` of an axis (a gather)."""
    return scope.call("take", code, places, str(axis), repr(scope.dialect.gathers_words))


def lifted(value: Value, rank: int) -> Value:
    """A tile of one element, a Triton scalar, as a block of extents 1; others as they are."""
    if value.shape or value.dtype is None:
        return value
    shape = (Code("1"),) * rank
    return Value(full(shape, value.code, value.dtype), value.dtype, shape)
