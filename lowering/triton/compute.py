"""Compute statements of one kernel: which emitter writes them, and the element-wise operations."""

from __future__ import annotations

import attrs
import numpy as np

from sketchc.base.types import DType
from sketchc.interpreter.operations import cast
from sketchc.ir import nodes as ir
from sketchc.lowering.plan import takes_as_it_is
from sketchc.lowering.precedence import PYTHON, Code
from sketchc.lowering.python_host.names import literal
from sketchc.lowering.triton import cross_lane, ordering, random_numbers, shuffles
from sketchc.lowering.triton.dialect import TL
from sketchc.lowering.triton.memory import conditions, conjunction, convert, fill_code
from sketchc.lowering.triton.operations import (
    BITWISE,
    FLOAT_TESTS,
    LOGICAL,
    NARROW,
    TENSOR_OPERANDS,
    TESTS,
    WRITERS,
    Request,
)
from sketchc.lowering.triton.scope import Scope
from sketchc.lowering.triton.values import (
    Value,
    as_tensor,
    broadcast_shape,
    carrier,
    fit,
    full,
    operand_value,
    own_dtype,
    scalar_value,
)
from sketchc.ops.table import OPS, Category, identity_value

__all__ = ["compute", "full"]


def compute(statement: ir.Compute, neutral: frozenset[int], scope: Scope) -> list[tuple[str, Code]]:
    """Assignments in order, the last ones to the destinations, in their types and physical shapes.

    An operation with several results is computed into fresh names first.
    """
    row = OPS[statement.operation]
    before: list[tuple[str, Code]] = []
    match row.category:
        case Category.REDUCTION:
            values = [cross_lane.reduction(statement, 0 in neutral, scope)]
        case Category.MATRIX:
            values = [cross_lane.product(statement, neutral, scope)]
        case Category.SCAN:
            values = [ordering.scan(statement, 0 in neutral, scope)]
        case Category.INDEX:
            values = [ordering.extremum_index(statement, scope)]
        case Category.SORTING:
            before, values = ordering.sorting(statement, scope)
        case Category.LAYOUT:
            values = [shuffles.rearranged(statement, scope)]
        case Category.RANDOM:
            values = [random_numbers.random_tile(statement, scope)]
        case _:
            values = [_elementwise(statement, scope)]
    written = [
        (scope.names[name], _written(value, name, statement, scope))
        for name, value in zip(statement.destinations, values, strict=True)
    ]
    return [*before, *written]


def _written(value: Value, destination: str, statement: ir.Compute, scope: Scope) -> Code:
    """The destination's new version: `value` in its type and shape, on the lanes written."""
    tile = scope.plan.sketch.tile(destination)
    code = fit(value, tile.dtype, scope.shape(tile.name))
    if not statement.masked:
        return code
    mask = conjunction(conditions(statement.written, tile.name, scope))
    return code if mask is None else PYTHON.call("tl.where", mask, code, scope.names[tile.name])


# ---------------------------------------------------------------- element-wise


def _elementwise(statement: ir.Compute, scope: Scope) -> Value:
    name, dtype = statement.operation, statement.dtype
    tile = scope.plan.sketch.tile(statement.destination)
    rank = len(scope.shape(tile.name))
    match name:
        case "fill":
            value = operand_value(statement.operands[0], tile.dtype, rank, scope)
            return attrs.evolve(value, dtype=None) if value.shape == () else value
        case "cast":
            return _cast(statement, tile.dtype, rank, scope)
        case "where":
            condition = operand_value(statement.operands[0], DType.BOOL, rank, scope)
            values = [operand_value(o, dtype, rank, scope) for o in statement.operands[1:]]
            values = [as_tensor(value, dtype) for value in values] if dtype in _TYPED else values
            code = PYTHON.call("tl.where", condition.code, *(v.code for v in values))
            return Value(code, dtype, broadcast_shape([condition, *values]))
        case _:
            pass
    if name in LOGICAL:
        values = [_truth(operand, dtype, rank, scope) for operand in statement.operands]
        dtype = DType.BOOL
    else:
        if name in FLOAT_TESTS and not dtype.is_float:
            dtype = DType.F32
        values = [operand_value(operand, dtype, rank, scope) for operand in statement.operands]
    if dtype in NARROW:
        values = [as_tensor(value, dtype) for value in values]
    if scope.dialect.interval_masks and (dtype is DType.BOOL or name in BITWISE):
        values[0] = as_tensor(values[0], dtype)  # older front ends have no Python number before `&`
    squares = name == "pow" and values[1].code.text in ("2", "2.0")
    if name in TENSOR_OPERANDS and not squares:
        shape = broadcast_shape(values)
        values = [as_tensor(value, dtype, shape) for value in values]
    elif all(value.dtype is None for value in values):
        values[0] = as_tensor(values[0], dtype)
    shape = broadcast_shape(values)
    operands = tuple(value.code for value in values)
    request = Request(operands, statement.attributes, dtype, scope, scalar=not shape)
    return Value(WRITERS[name](request), DType.BOOL if name in TESTS else dtype, shape)


def _truth(operand: ir.Operand, dtype: DType, rank: int, scope: Scope) -> Value:
    """An operand as a truth value: a float that is no tile is zero or not in the operation's type.

    `tl.where`, since beside a tile Triton's interpreter repeats a comparison of scalars in the type
    of what is compared.
    """
    match operand:
        case ir.ScalarOperand(ir.Literal() | ir.Unary("-", ir.Literal())):
            pass
        case ir.ScalarOperand(value) if operand.dtype.is_float and dtype.is_float:
            number = scalar_value(value, operand.dtype, dtype, scope)
            test = PYTHON.binary("!=", number.code, Code("0"))
            return Value(PYTHON.call("tl.where", test, "True", "False"), DType.BOOL)
        case _:
            pass
    return operand_value(operand, DType.BOOL, rank, scope)


#: Types of which both sides of a choice may be literals: Triton takes those for f32 or i32.
_TYPED = frozenset({*NARROW, DType.U32, DType.I64, DType.F64})

_ROUNDING = {"down": "tl.floor", "up": "tl.ceil"}


def _cast(statement: ir.Compute, target: DType, rank: int, scope: Scope) -> Value:
    """An explicit conversion, with a rounding direction and saturation where asked."""
    operand = statement.operands[0]
    source = own_dtype(operand, scope)
    if isinstance(operand, ir.ScalarOperand) and not takes_as_it_is(statement):
        return operand_value(operand, target, rank, scope)
    number = scope.constant(operand.value) if isinstance(operand, ir.ScalarOperand) else None
    if number is not None:
        folded = cast(np.asarray(number), target, statement.attributes).item()
        return Value(full((), fill_code(folded, target), target), target)
    value = operand_value(operand, source, rank, scope)
    mode = str(statement.attributes.get("round", "nearest"))
    if target is DType.BOOL:
        return value
    if isinstance(operand, ir.ScalarOperand):  # a number, in Triton's interpreter
        value = Value(full((), value.code, source), source)
    if target.is_float:
        narrows = source.is_float and target.bytes < source.bytes
        if mode == "nearest" or not narrows:
            return value
        return _directed_cast(value, target, mode, scope)
    code = value.code
    if source.is_float:
        if source.compute is not source:
            code, source = convert(code, source, DType.F32), DType.F32
        request = Request((code,), {}, source, scope)
        match mode:
            case "nearest":
                code = WRITERS["round"](request)
            case "zero":
                code = WRITERS["trunc"](request)
            case _:
                code = PYTHON.call(_ROUNDING[mode], code)
    if not statement.attributes.get("sat", False) or source is DType.BOOL:
        return Value(code, source, value.shape)
    return Value(_saturated(code, source, target, scope), target, value.shape)


def _saturated(code: Code, source: DType, target: DType, scope: Scope) -> Code:
    low, high = (int(identity_value(name, target)) for name in ("lowest", "highest"))
    if source.is_float:
        bounds = [literal(low), literal(high), literal(float(low)), literal(float(high + 1))]
        wide = carrier(target)
        return convert(scope.call("saturate", code, TL[wide], *bounds), wide, target)
    least, most = (int(identity_value(name, source)) for name in ("lowest", "highest"))
    # A signed type holds every value of the source.
    wide = carrier(source)
    code = convert(code, source, wide)
    if most > high:
        code = PYTHON.call("tl.minimum", code, literal(high))
    if least < low:
        code = PYTHON.call("tl.maximum", code, literal(low))
    return convert(code, wide, target)


def _directed_cast(value: Value, target: DType, mode: str, scope: Scope) -> Value:
    integer = {2: DType.I16, 4: DType.I32}[target.bytes]
    lowest = literal(int(identity_value("lowest", integer)))
    arguments = (value.code, TL[target], TL[integer], lowest, f'"{mode}"')
    return Value(scope.call("directed_cast", *arguments), target, value.shape)
