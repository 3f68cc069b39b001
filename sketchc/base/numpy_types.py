"""Element types of the language as NumPy has them; only what already uses NumPy imports this."""

from __future__ import annotations

from typing import Any

import numpy as np

from sketchc.base.types import DType


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy type of an element type; bfloat16 comes from ml_dtypes."""
    if dtype is DType.BF16:
        import ml_dtypes

        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    return np.dtype(dtype.numpy_name)
