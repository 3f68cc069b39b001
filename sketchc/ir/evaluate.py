"""Evaluation of scalar IR expressions on concrete values, with the language's floor semantics.

Used by the interpreter, the launch wrappers and the counter-examples: one meaning, one place.
"""

from __future__ import annotations

import math
import operator as python
from collections.abc import Callable, Mapping
from typing import assert_never

from sketchc.base.diagnostics import InternalError
from sketchc.base.types import DType, Scalar, rounded
from sketchc.ir import nodes as ir
from sketchc.ops.host_functions import HOST_FUNCTIONS, JOINING
from sketchc.ops.table import COMPARISONS

Value = Scalar

#: Scalar operators and functions by name, as the interpreter compiles them.
BINARY: dict[str, Callable[[Value, Value], Value]] = {
    "+": python.add,
    "-": python.sub,
    "*": python.mul,
    "/": python.truediv,
    "//": python.floordiv,
    "%": python.mod,
    **JOINING,
    "<": python.lt,
    "<=": python.le,
    ">": python.gt,
    ">=": python.ge,
    "==": python.eq,
    "!=": python.ne,
    "and": lambda a, b: bool(a) and bool(b),
    "or": lambda a, b: bool(a) or bool(b),
}

FUNCTION: dict[str, Callable[..., Value]] = {
    name: row.reference for name, row in HOST_FUNCTIONS.items() if not row.operator
}

#: A scalar expression as a function of the values of its names.
_Compiled = Callable[[Mapping[str, Value]], Value]
#: The compiled expressions by their `id`: searches for sizes evaluate a few a million times. Each
#: expression stands beside its function, so that no other object can have its id.
_COMPILED: dict[int, tuple[ir.Expr, _Compiled]] = {}
_MOST_COMPILED = 1 << 14


def evaluate(expression: ir.Expr, values: Mapping[str, Value]) -> Value:
    """The value of a scalar expression; `values` maps every name it uses.

    Raises `ZeroDivisionError` as Python does, `KeyError` for a name without a value, and
    `InternalError` for an index tile.
    """
    known = _COMPILED.get(id(expression))
    if known is None:
        if len(_COMPILED) >= _MOST_COMPILED:
            _COMPILED.clear()
        known = _COMPILED[id(expression)] = (expression, _compiled(expression))
    return known[1](values)


def _compiled(expression: ir.Expr) -> _Compiled:
    match expression:
        case ir.Literal(value):
            return lambda values: value
        case ir.Ref(name, ir.NameKind.PRESENT):  # an optional tensor is there, if nothing is said
            return lambda values: values.get(name, True)
        case ir.Ref(name):
            return python.itemgetter(name)
        case ir.Unary(operator, operand):
            inner = _compiled(operand)
            if operator == "-":
                return lambda values: -inner(values)
            return lambda values: not inner(values)
        case ir.Binary(operator, one, other):
            left, right, joined = _compiled(one), _compiled(other), BINARY[operator]
            if operator == "and":  # the right side may have a value only then
                return lambda values: bool(left(values)) and bool(right(values))
            if operator == "or":
                return lambda values: bool(left(values)) or bool(right(values))
            return lambda values: joined(left(values), right(values))
        case ir.Choice():
            condition, then, otherwise = map(_compiled, expression.parts)
            return lambda values: (then if condition(values) else otherwise)(values)
        case ir.Function(name, arguments):
            function, given = FUNCTION[name], tuple(map(_compiled, arguments))
            return lambda values: function(*(argument(values) for argument in given))
        case ir.Iota() | ir.TileLanes():
            return _refuse
        case _:
            assert_never(expression)


def _refuse(values: Mapping[str, Value]) -> Value:
    raise InternalError("an index tile has no scalar value")


def scalar_dtype(expression: ir.Expr) -> DType:
    """The type in which a scalar, or a lane of an index tile, is computed: I64, F64 or BOOL."""
    match expression:
        case ir.Literal(value):
            if isinstance(value, bool):
                return DType.BOOL
            return DType.I64 if isinstance(value, int) else DType.F64
        case ir.Ref(dtype=dtype):
            if dtype.is_float:
                return DType.F64
            return DType.BOOL if dtype is DType.BOOL else DType.I64
        case ir.Unary(operator, operand):
            return DType.BOOL if operator == "not" else scalar_dtype(operand)
        case ir.Binary(operator, left, right):
            if operator in COMPARISONS or operator in ("and", "or"):
                return DType.BOOL
            if operator == "/":
                return DType.F64
            both = (scalar_dtype(left), scalar_dtype(right))
            return DType.F64 if DType.F64 in both else DType.I64
        case ir.Choice() | ir.Iota():
            return DType.I64
        case ir.Function(name, arguments):
            return HOST_FUNCTIONS[name].result or scalar_dtype(arguments[0])
        case ir.TileLanes(dtype=dtype):
            return DType.BOOL if dtype is DType.BOOL else DType.I64
        case _:
            assert_never(expression)


def constants_of(sketch: ir.Sketch) -> dict[str, Value]:
    """The values of the sketch's compile-time constants, by name."""
    return {constant.name: constant.value for constant in sketch.constants}


def known_value(expression: ir.Expr, sketch: ir.Sketch) -> Value | None:
    """The value of an expression over compile-time constants only; None for any other."""
    try:
        return evaluate(expression, constants_of(sketch))
    except KeyError:
        return None


def param_value(param: ir.Param, value: Value) -> Value:
    """The value of `param` at a launch that is given `value`: a float is rounded to the param's
    type."""
    return rounded(float(value), param.dtype) if param.dtype.is_float else value


def sample_let(let: ir.Let, values: Mapping[str, Value]) -> Value:
    """A let's value for an estimate or an example: NaN (or 0, for an integer) where `values` give
    it none, as in `1/(a - 2)` with a = 2. A launch refuses such values itself."""
    try:
        return evaluate(let.value, values)
    except (ArithmeticError, ValueError):
        return math.nan if let.dtype.is_float else 0


def host_values(
    sketch: ir.Sketch,
    symbols: Mapping[str, Value],
    params: Mapping[str, Value] | None = None,
    sampled: bool = False,
) -> dict[str, Value]:
    """All host scalars by name: constants, symbols, params (defaults filled in), lets in order (by
    `sample_let` if `sampled`).

    Raises `KeyError` for a param that has neither a value nor a default.
    """
    values = given_values(sketch, symbols, params)
    for param in sketch.params:
        if param.name not in values:
            raise KeyError(param.name)
    for let in sketch.lets:
        values[let.name] = sample_let(let, values) if sampled else evaluate(let.value, values)
    return values


def host_sample(
    sketch: ir.Sketch, symbols: Mapping[str, Value], params: Mapping[str, Value] | None = None
) -> dict[str, Value]:
    """`host_values` for an estimate or an example: lets may have no value at these sizes, and are
    then those of `sample_let`."""
    return host_values(sketch, symbols, params, sampled=True)


def sample_extents(tensor: ir.Tensor, values: Mapping[str, Value]) -> list[int]:
    """A tensor's extents for an estimate or an example: 0 for one that has no value."""

    def extent(expression: ir.Expr) -> int:
        try:
            return int(evaluate(expression, values))
        except (ArithmeticError, ValueError):
            return 0

    return [extent(expression) for expression in tensor.extents]


def given_values(
    sketch: ir.Sketch, symbols: Mapping[str, Value], params: Mapping[str, Value] | None = None
) -> dict[str, Value]:
    """Constants, symbols and params (defaults filled in); a param without a value is left out."""
    values: dict[str, Value] = {**constants_of(sketch), **symbols}
    for param in sketch.params:
        value = (params or {}).get(param.name, param.default)
        if value is not None:
            values[param.name] = param_value(param, value)
    return values
