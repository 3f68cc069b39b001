"""NumPy arrays, and the language's element types that their dtypes correspond to."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from sketchc.base.types import DType

Array = npt.NDArray[Any]


def dtype_of(array: Array) -> DType | None:
    """The sketch dtype of an array's elements; None when the language has no such type."""
    return next((dtype for dtype in DType if dtype.numpy_name == array.dtype.name), None)
