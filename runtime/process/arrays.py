"""Arrays between processes: raw little-endian bytes in a file, described by a JSON object.

No pickle: what comes back from a worker that ran somebody's code is read as plain numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sketchc.base.types import DType, numpy_dtype

Array = npt.NDArray[Any]


def dtype_of(array: Array) -> DType | None:
    """The sketch dtype of an array's elements; None when the language has no such type."""
    return next((dtype for dtype in DType if dtype.numpy_name == array.dtype.name), None)


def write_array(path: Path, array: Array, dtype: DType) -> dict[str, Any]:
    """Write the elements, row-major; returns the description `read_array` takes."""
    np.ascontiguousarray(array, numpy_dtype(dtype)).tofile(path)
    return {"file": str(path), "dtype": dtype.value, "shape": list(array.shape)}


def read_array(description: Mapping[str, Any]) -> Array:
    """Raises `ValueError` when the file does not hold as many elements as described."""
    dtype = numpy_dtype(DType(description["dtype"]))
    shape = tuple(int(extent) for extent in description["shape"])
    array = np.fromfile(description["file"], dtype)
    return array.reshape(shape)
