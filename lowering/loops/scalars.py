"""The types of scalar expressions in the loop IR."""

from __future__ import annotations

from typing import assert_never

from sketchc.base.types import DType
from sketchc.ir import nodes as ir


def scalar_dtype(expression: ir.Expr) -> DType:
    """The C++ type of a host or loop scalar: I64, F64 or BOOL."""
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
            if operator in COMPARISONS or operator in LOGICAL:
                return DType.BOOL
            if operator == "/":
                return DType.F64
            both = (scalar_dtype(left), scalar_dtype(right))
            return DType.F64 if DType.F64 in both else DType.I64
        case ir.Choice():
            return DType.I64
        case ir.Function(name, arguments):
            if name == "int":
                return DType.I64
            if name == "abs":
                return scalar_dtype(arguments[0])
            return DType.F64
        case ir.Iota():
            return DType.I64
        case ir.TileLanes(dtype=dtype):
            return DType.BOOL if dtype is DType.BOOL else DType.I64
        case _:
            assert_never(expression)


LOGICAL = {"and": "&&", "or": "||"}


COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
