"""Inputs that discriminate: signed, of mixed scale, structured, large, and non-negative.

Uniform numbers in [0, 1) hide a missing sign, a wrong identity of a maximum, and most mistakes of
rounding; every kind here was chosen for a bug that the others let pass. Values stay in the range
where the framework's own kernels are exact to rounding (no overflow of squares in f32, constants
whose sums are exact), so that a failure speaks of the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sketchc.base.types import DType, numpy_dtype

Array = npt.NDArray[Any]

#: kind -> what it is for.
KINDS: dict[str, str] = {
    "normal": "signed, of one scale",
    "mixed_scale": "signed, magnitudes over four decades",
    "structured": "rows that are sorted, constant, zero, alternating, denormal, with one outlier",
    "large": "signed, of large magnitude",
    "non_negative": "uniform in [0, 1)",
}
#: "normal" inputs in another memory layout; for models, which take torch's tensors as they come.
NON_CONTIGUOUS = "non_contiguous"
#: Drawn from what the task's own inputs look like: their range, sign and structure.
LIKE = "task_like"
#: Beyond the range of f16, squares in tasks that compute in f16 would overflow.
LARGE = {DType.F16: 16.0}
_SMALLEST = {DType.F16: 2.0**-24, DType.BF16: 2.0**-133, DType.F32: 2.0**-149}


def generate(kind: str, dtype: DType, shape: Sequence[int], random: np.random.Generator) -> Array:
    """An array of `shape`, C-contiguous; integers are within 100 of zero.

    Raises `KeyError` for an unknown kind.
    """
    if kind not in KINDS:
        raise KeyError(kind)
    if dtype is DType.BOOL:
        return np.asarray(random.random(shape) < 0.5)
    if dtype.is_integer:
        low = -100 if dtype.is_signed else 0
        return np.asarray(random.integers(low, 100, shape), dtype.numpy_name)
    values = _floats(kind, dtype, tuple(shape), random)
    with np.errstate(over="ignore"):
        # `ascontiguousarray` would give a tensor without axes one.
        return np.asarray(values, numpy_dtype(dtype), order="C")


def _floats(
    kind: str, dtype: DType, shape: tuple[int, ...], random: np.random.Generator
) -> npt.NDArray[np.float64]:
    large = LARGE.get(dtype, 1e3)
    match kind:
        case "normal":
            return np.asarray(random.standard_normal(shape))
        case "mixed_scale":
            top = math.log10(large)
            return random.standard_normal(shape) * 10.0 ** random.uniform(top - 4, top - 1, shape)
        case "large":
            return random.standard_normal(shape) * large
        case "non_negative":
            return np.asarray(random.random(shape))
        case _:
            return _structured(dtype, shape, random)


def _structured(
    dtype: DType, shape: tuple[int, ...], random: np.random.Generator
) -> npt.NDArray[np.float64]:
    """Rows (the last axis) of six sorts, in a random order that repeats."""
    values = np.asarray(random.standard_normal(shape))
    if values.size == 0:
        return values
    rows = values.reshape(-1, shape[-1] if shape else 1)  # a view: what is set here is set there
    columns = rows.shape[1]
    sorts = random.permutation(6)
    for number, row in enumerate(rows):
        match int(sorts[number % 6]):
            case 0:
                row.sort()
            case 1:  # a power of two: its sums are exact
                row[:] = math.copysign(2.0 ** -random.integers(3, 9), random.normal())
            case 2:
                row[:] = 0.0
            case 3:
                row[:] = np.where(np.arange(columns) % 2, -1.0, 1.0) * np.abs(row)
            case 4:
                row[:] = random.integers(-8, 9, columns) * _SMALLEST.get(dtype, 2.0**-1074)
            case _:
                row[random.integers(columns)] = LARGE.get(dtype, 1e3)
    return values


def poison(dtype: DType, shape: Sequence[int], *, second: bool = False) -> Array:
    """A buffer for an output that is not yet written: NaN, or a value that no kernel is likely to
    give. bool has no third value: the `second` run starts from the other one."""
    if dtype.is_float:
        return np.full(shape, np.nan, numpy_dtype(dtype))
    if dtype is DType.BOOL:
        return np.full(shape, not second)
    return np.full(shape, np.iinfo(dtype.numpy_name).max - 21 - second, dtype.numpy_name)
