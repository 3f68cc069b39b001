"""Which element type an operation is evaluated in, what it gives, and what may be written where.

The rules of R6: operands promote to a common type; f16 and bf16 are evaluated in f32; a scalar
never widens a float tile. On a write, float to float and widening integer conversions are implicit
and everything else needs `cast`.
"""

from __future__ import annotations

from collections.abc import Iterable

from sketchc.base.types import DType, promote
from sketchc.ops.table import Category, Op, Result


def common(tiles: Iterable[DType], scalars: Iterable[DType | None]) -> DType | None:
    """The type of an operation's operands, in evaluation precision; None without any.

    A scalar of None is *weak*: an integer literal, which takes the type of any tile. Float scalars
    beside a float tile take its type; beside an integer or bool tile they make it f32.
    """
    result: DType | None = None
    for dtype in tiles:
        result = dtype if result is None else promote(result, dtype)
    if result is None:
        for scalar in scalars:
            dtype = DType.I64 if scalar is None else scalar
            result = dtype if result is None else promote(result, dtype)
        return result
    if result.is_float:
        return result.compute
    for scalar in scalars:
        if scalar is not None and scalar.is_float:
            return DType.F32
        if scalar is None:
            result = DType.I64 if result is DType.BOOL else result
        else:
            result = promote(result, scalar)
    return result


def result_of(row: Op, operand: DType | None) -> DType | None:
    """The type that an operation gives for operands of the common type `operand` (in evaluation
    precision); None when only the destination can tell."""
    match row.result:
        case Result.SAME | Result.PROMOTE | Result.INTEGER:
            return operand
        case Result.FLOAT:
            return None if operand is None else (operand if operand.is_float else DType.F32)
        case Result.BOOL:
            return DType.BOOL
        case Result.ACCUMULATOR:
            if operand is None or operand.is_float:
                return operand
            return DType.I32 if row.category is Category.MATRIX else DType.I64
        case Result.I64:
            return DType.I64
        case Result.DESTINATION:
            return None


def writes_implicitly(source: DType, destination: DType) -> bool:
    """Whether a value of type `source` may be written to `destination` without `cast` (R6)."""
    if source is destination:
        return True
    if source.is_float and destination.is_float:
        return True
    if not (source.is_integer and destination.is_integer):
        return False
    if source.is_signed == destination.is_signed:
        return source.bytes < destination.bytes
    return destination.is_signed and source.bytes < destination.bytes


def literal_fits(value: int | float | bool, destination: DType) -> bool:
    """Whether a literal may stand for a value of this type."""
    if isinstance(value, bool):
        return destination is DType.BOOL
    if isinstance(value, float):
        return destination.is_float
    if destination.is_float:
        return True
    if destination is DType.BOOL:
        return False
    low, high = destination.limits or (0, 0)
    return low <= value <= high
