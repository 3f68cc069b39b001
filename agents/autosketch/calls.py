"""Operations on scalars as text of a sketch: as calls, and within expressions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from sketchc.agents.autosketch.loops import Apply, Number, Scalar
from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir.show import show
from sketchc.ops.table import ARITHMETIC, COMPARISONS, OPS, Category, Result

#: How operations are written in an expression.
_SIGNS = {operation: sign for sign, operation in (ARITHMETIC | COMPARISONS).items()}

#: Operation -> the name of the tile that holds its result.
_NOUNS = {
    "add": "sum_of",
    "sub": "difference",
    "mul": "product_of",
    "div": "quotient",
    "exp": "power",
    "pow": "power",
    "cast": "converted",
    "sqrt": "root",
    "rsqrt": "scale",
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), "condition"),
    **dict.fromkeys(("logical_and", "logical_or", "logical_not"), "condition"),
}


#: Operation of a reduction -> what it begins with, and the call that combines two results.
IDENTITIES = {"sum": "0", "prod": "1", "max": "-inf", "min": "inf"}
COMBINES = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}


def identity_of(operation: str, dtype: DType) -> str:
    """What a reduction begins with, as text; the extrema of integers with the worst of the type."""
    if operation in ("max", "min") and dtype.limits is not None:
        return str(dtype.limits[0 if operation == "max" else 1])
    return IDENTITIES[operation]


#: What a store promises whose places are those of a row in another order.
PERMUTED = ", unique=True, covers=True"


def spelled(dtype: DType) -> str:
    """The type of a tile as a further argument of `alloc`; "" for the default, f32."""
    return "" if dtype is DType.F32 else f", {dtype.value}"


def listed(extents: Sequence[ir.Expr]) -> str:
    """Extents or subscripts as text."""
    return ", ".join(map(show, extents))


def named(text: str) -> ir.Expr:
    """An expression that is written as `text`: a tile's name, a number, or a call."""
    return ir.Ref(text, ir.NameKind.LOOP)


def operands_of(scalar: Apply) -> Iterator[Scalar]:
    """The operands; ints become floats where numbers (and conditions) alone make a float."""
    numbers = all(isinstance(e, Number) or e.dtype is DType.BOOL for e in scalar.operands)
    for each in scalar.operands:
        if numbers and scalar.dtype.is_float and isinstance(each, Number):
            value = each.value
            yield Number(float(value) if type(value) is int else value, scalar.dtype)
        else:
            yield each


def in_one_type(scalar: Apply) -> bool:
    """Whether an expression computes an elementwise operation as a call does: all types are f32, or
    all f64, conditions aside, so nothing is rounded. Integers are indices in expressions: False."""
    row = OPS[scalar.operation]
    if row.result is Result.DESTINATION or row.category is not Category.ELEMENTWISE:
        return False
    tiles = [each.dtype for each in scalar.operands if not isinstance(each, Number)]
    floats = {dtype for dtype in (*tiles, scalar.dtype) if dtype is not DType.BOOL}
    return bool(tiles) and len(floats) == 1 and floats <= {DType.F32, DType.F64}


def in_expression(scalar: Apply, operands: Sequence[ir.Expr]) -> ir.Expr:
    """The operation of `scalar` on `operands` as an expression: an operator, or else a call."""
    sign = _SIGNS.get(scalar.operation)
    if sign is not None:
        return ir.Binary(sign, *operands)
    if scalar.operation == "neg":
        return ir.Unary("-", *operands)
    return named(call(scalar, list(map(show, operands))))


def call(scalar: Apply, arguments: Sequence[str]) -> str:
    """An operation as a call; the last of the arguments may be its destination."""
    keywords = (f"{key}={_keyword(value)}" for key, value in scalar.attributes)
    return f"{scalar.operation}({', '.join((*arguments, *keywords))})"


def number_text(value: float | int | bool) -> str:
    """A number as a literal."""
    return "nan" if isinstance(value, float) and math.isnan(value) else repr(value)


def _keyword(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def noun(scalar: Apply) -> str:
    """The name for a tile that holds the result of an operation."""
    return _NOUNS.get(scalar.operation, "value")
