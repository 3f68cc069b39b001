"""The vocabulary of the op table: what a row says. `sketchc.ops.table` exports every name here."""

from __future__ import annotations

import math
from enum import Enum

from sketchc.base import records
from sketchc.base.types import DType
from sketchc.ops.references import Reference

Value = float | int | bool


class Shape(Enum):
    """How the result's shape follows from the operands'."""

    SAME = "as the source"
    BROADCAST = "broadcast of the operands"
    DESTINATION = "as the destination"
    REDUCED = "the source less the reduced axes (or with extent 1 there)"
    MATRIX_PRODUCT = "[M, K] with [K, N] gives [M, N]"
    TRANSPOSED = "the source with its last two axes exchanged"
    TOP_K = "the source with K on the axis"
    REARRANGED = "rearranged"


class Result(Enum):
    """How the result's dtype follows from the operands'."""

    SAME = "as the source"
    FLOAT = "float; integers and bool give f32"
    PROMOTE = "the common type of the operands"
    BOOL = "bool"
    INTEGER = "the common integer type"
    ACCUMULATOR = "f32 for f16, bf16 and f32; f64 for f64; integers keep the destination's type"
    DESTINATION = "the destination's"
    I64 = "i64"


class Category(Enum):
    ELEMENTWISE = "element-wise"
    REDUCTION = "reduction"
    MATRIX = "matrix product"
    SCAN = "scan"
    INDEX = "index of an extremum"
    SORTING = "sorting"
    LAYOUT = "layout"
    COMPOSITE = "composite"
    RANDOM = "random"


class Fact(Enum):
    """What else is true of an operation, for those who reason about its results."""

    NUMERIC = "has no meaning on conditions"
    INTEGRAL = "has no meaning on anything but integers"
    ZERO_OF_ZERO = "gives zero where all operands are, in every type"
    SELECTS = "gives an element of an operand, its negative, or one of two"
    HANDS_ON = "gives the source's numbers as they are"
    ADDS = "adds its operands, or the last one to a product"
    SCALES = "multiplies or divides its first two operands"


class Partial(Enum):
    """What the second of two integers is, where an operation has no value for some of them."""

    QUOTIENT = "a divisor"
    REMAINDER = "the divisor of a remainder"
    POWER = "an exponent"
    SHIFT = "a shift count"


@records.frozen
class Attribute:
    """A keyword (or, for `axis`, also positional) argument with its allowed values or kind."""

    name: str
    kind: str  # "int", "axes", "bool", "float", "choice"
    default: object = None
    choices: tuple[str, ...] = ()
    positional: bool = False


@records.frozen
class Op:
    """One operation. `outputs` destinations stand last."""

    name: str
    category: Category
    operands: tuple[str, ...]
    shape: Shape
    result: Result
    doc: str
    reference: Reference | None = None
    identity: str | None = None  # "zero", "one", "lowest", "highest", "false", "true"
    attributes: tuple[Attribute, ...] = ()
    outputs: int = 1
    accumulates: bool = False  # reads its destination
    facts: frozenset[Fact] = frozenset()
    partial: Partial | None = None

    @property
    def truth(self) -> bool:
        """Whether it is a reduction of conditions to a condition."""
        return self.category is Category.REDUCTION and self.result is Result.BOOL

    @property
    def conditional(self) -> bool:
        """Whether the first operand is a condition, which has no say in the type."""
        return self.operands[0] == "condition"


def identity_value(identity: str, dtype: DType) -> Value:
    """The identity of a cross-lane operation in a dtype: "zero", "one", "lowest", "highest"..."""
    match identity:
        case "zero" | "false":
            return False if dtype is DType.BOOL else 0
        case "one" | "true":
            return True if dtype is DType.BOOL else 1
        case _:
            sign = -1 if identity == "lowest" else 1
            if dtype.is_float:
                return sign * math.inf
            if dtype is DType.BOOL:
                return sign > 0
            bits = 8 * dtype.bytes - (1 if dtype.is_signed else 0)
            if sign > 0:
                return (1 << bits) - 1
            return -(1 << bits) if dtype.is_signed else 0
