"""Element types of the language: their names, widths, kinds, and the promotion rules.

NumPy is imported only where its types are asked for, so that `sketchc check` starts fast.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


class DType(Enum):
    """One element type; the value is its spelling in a sketch."""

    F64 = "f64"
    F32 = "f32"
    BF16 = "bf16"
    F16 = "f16"
    I64 = "i64"
    I32 = "i32"
    I16 = "i16"
    I8 = "i8"
    U8 = "u8"
    U32 = "u32"
    BOOL = "bool"

    @property
    def bytes(self) -> int:
        """Size of one element in memory, in bytes."""
        return _TABLE[self][0]

    @property
    def is_float(self) -> bool:
        """True for the types of floating-point numbers."""
        return self in _FLOATS

    @property
    def is_integer(self) -> bool:
        """True for the integer types; bool is not one of them."""
        return self not in _FLOATS and self is not DType.BOOL

    @property
    def is_signed(self) -> bool:
        """Whether the type has negative values, as all floats have."""
        return self not in (DType.U8, DType.U32, DType.BOOL)

    @property
    def limits(self) -> tuple[int, int] | None:
        """The least and the largest value of an integer type or of bool; None for floats."""
        if self is DType.BOOL:
            return 0, 1
        if self.is_float:
            return None
        bits = 8 * self.bytes
        return (
            (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if self.is_signed else (0, (1 << bits) - 1)
        )

    @property
    def numpy_name(self) -> str:
        """The name of the type in NumPy ("bfloat16" is registered by ml_dtypes), in PyTorch, and
        (bool apart) in Triton and MindSpore."""
        return _TABLE[self][1]

    @property
    def cpp_name(self) -> str:
        """The type in C++; `half` and `bfloat16` are those of the library of generated files."""
        return _CPP.get(self, f"{self.numpy_name}_t")

    @property
    def compute(self) -> DType:
        """The type in which element-wise operations on this type are evaluated (R6)."""
        return DType.F32 if self in (DType.F16, DType.BF16) else self


#: Bytes of an element, the name in NumPy and PyTorch, and what else the type is called elsewhere.
_TABLE: dict[DType, tuple[int, str, tuple[str, ...]]] = {
    DType.F64: (8, "float64", ("double",)),
    DType.F32: (4, "float32", ("float", "fp32")),
    DType.BF16: (2, "bfloat16", ()),
    DType.F16: (2, "float16", ("half", "fp16")),
    DType.I64: (8, "int64", ("long", "int")),
    DType.I32: (4, "int32", ()),
    DType.I16: (2, "int16", ()),
    DType.I8: (1, "int8", ()),
    DType.U8: (1, "uint8", ()),
    DType.U32: (4, "uint32", ()),
    DType.BOOL: (1, "bool", ("boolean",)),
}
#: What C++ calls types that are no integers.
_CPP = {
    DType.F64: "double",
    DType.F32: "float",
    DType.BF16: "sketch::bfloat16",
    DType.F16: "sketch::half",
    DType.BOOL: "bool",
}
_FLOATS = (DType.F64, DType.F32, DType.BF16, DType.F16)

#: The type of each of its own spellings and those of other languages.
SPELLINGS = {
    name: dtype
    for dtype, (_, numpy_name, others) in _TABLE.items()
    for name in (dtype.value, numpy_name, *others)
}

#: Significant bits, exponent of the smallest subnormal, and exponent of the first power of two that
#: is too large (IEEE 754-2019, table 3.5; bf16 has the exponents of f32).
FORMATS = {DType.F32: (24, -149, 128), DType.BF16: (8, -133, 128), DType.F16: (11, -24, 16)}


Scalar = int | float | bool


def wrapped(value: Scalar, dtype: DType) -> Scalar:
    """An integer wrapped around to the range of the integer type `dtype`; bools and floats stay."""
    if isinstance(value, bool | float):
        return value
    low, high = dtype.limits or (0, 0)
    return (value - low) % (high - low + 1) + low


def rounded(value: float, dtype: DType) -> float:
    """`value` rounded to the float type `dtype`: the nearest number of the type, ties to even,
    infinite where `value` is too large."""
    if dtype is DType.F64 or not 0 < abs(value) < math.inf:
        return value
    bits, least, limit = FORMATS[dtype]
    unit = max(math.frexp(value)[1] - bits, least)
    within = abs(value) < 2.0**limit
    nearest = math.ldexp(round(math.ldexp(value, -unit)), unit) if within else math.inf
    return math.copysign(nearest if abs(nearest) < 2.0**limit else math.inf, value)


def promote(left: DType, right: DType) -> DType:
    """The common type of two operands: float beats integer beats bool, wide beats narrow.

    f16 with bf16 gives f32, and an unsigned with a signed type of the same width gives the next
    wider signed one, as in NumPy.
    """
    if left is right:
        return left
    if left.is_float != right.is_float:
        return left if left.is_float else right
    if left.is_float:
        if left.bytes == right.bytes:
            return DType.F32
        return max(left, right, key=lambda dtype: dtype.bytes)
    if DType.BOOL in (left, right):
        return right if left is DType.BOOL else left
    if left.is_signed == right.is_signed:
        return max(left, right, key=lambda dtype: dtype.bytes)
    signed, unsigned = (left, right) if left.is_signed else (right, left)
    if signed.bytes > unsigned.bytes:
        return signed
    return {1: DType.I16, 4: DType.I64}[unsigned.bytes]


def holds(dtype: DType, value: float | bool) -> bool:
    """Whether `dtype` represents `value` exactly; a float type represents any NaN."""
    if dtype.is_float:
        return math.isnan(value) or rounded(float(value), dtype) == value
    if dtype is DType.BOOL:
        return value in (0, 1)
    low, high = dtype.limits or (0, 0)
    return math.isfinite(value) and low <= value <= high and value == int(value)


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy type of an element type; bfloat16 comes from ml_dtypes."""
    import numpy as np

    if dtype is DType.BF16:
        import ml_dtypes

        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    return np.dtype(dtype.numpy_name)
