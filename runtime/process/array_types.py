"""The type of a handler's arrays, and of their elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np

Arrays: TypeAlias = "dict[str, np.ndarray[Any, Any]]"

#: spelling in a sketch -> the name of the type in NumPy (bf16: in ml_dtypes) and in PyTorch
ARRAY_TYPES = {
    "f64": "float64",
    "f32": "float32",
    "bf16": "bfloat16",
    "f16": "float16",
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "u8": "uint8",
    "u32": "uint32",
    "bool": "bool",
}
