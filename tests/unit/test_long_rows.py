"""Scans that go on from tile to tile, and sorts by counted places: as NumPy and PyTorch do it with
whole rows, at ragged sizes with NaN, infinities, ties, and products that overflow in one tile."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from long_rows import SIZES, T, scans, sorts
from operation_cases import FLOATS, elaborated

from sketchc.base.types import DType, numpy_dtype
from sketchc.interpreter.api import Options, interpret

CHECKED = tuple(Options(check_domains=True, shuffle=5 + p, padding=p) for p in (0, 3))
#: Element type and the type of a scan's carry.
SCANNED = (("f32", "f32"), ("f16", "f32"), ("bf16", "f32"), ("f64", "f64"), ("i64", "i64"),
           ("i32", "i32"), ("i8", "i32"))  # fmt: skip


def scanned(x: np.ndarray, operation: str, axis: int, flags: str) -> tuple[np.ndarray, np.ndarray]:
    """The scan of a whole row, and what all of it comes to (of nothing: the identity)."""
    function = {"cumsum": np.cumsum, "cumprod": np.cumprod}[operation]
    x = np.flip(x, axis) if "reverse" in flags else x
    first = np.full_like(
        x, operation == "cumprod", shape=(*x.shape[:axis], 1, *x.shape[axis + 1 :])
    )
    running = np.concatenate((first, function(x, axis=axis, dtype=x.dtype)), axis)
    last = np.take(running, [-1], axis)
    kept = range(x.shape[axis]) if "exclusive" in flags else range(1, x.shape[axis] + 1)
    running = np.take(running, kept, axis)
    return np.flip(running, axis) if "reverse" in flags else running, last


@pytest.mark.parametrize(("dtype", "wide"), SCANNED)
def test_a_scan_goes_on_from_tile_to_tile(dtype: str, wide: str) -> None:
    for text, operation, axis, flags in scans(dtype, wide):
        sketch = elaborated(text)
        for size in SIZES:
            generator = np.random.default_rng(size)
            x = generator.integers(-3, 4, (3, size)).astype(numpy_dtype(DType(dtype)))
            if dtype in FLOATS and size > T:
                x[0, T], x[1, 2], x[1, T] = np.nan, np.inf, -np.inf
            x = x if axis else x.T.copy()
            with np.errstate(all="ignore"):
                row = x.astype(np.float64 if dtype in FLOATS else numpy_dtype(DType(wide)))
                expected, last = scanned(row, operation, axis, flags)
            for options in CHECKED:
                found = interpret(sketch, {"X": x}, {"N": size}, options=options).outputs
                np.testing.assert_array_equal(found["Y"].astype(row.dtype), expected, text)
                np.testing.assert_array_equal(found["LAST"].reshape(-1), last.reshape(-1), text)


def test_a_running_product_does_not_overflow_where_only_that_of_one_tile_would() -> None:
    for text, operation, axis, flags in scans("f32", "f32"):
        if operation == "cumprod" and not flags:
            row = [1e-30, 1e-5, 1.0, 1.0, 1e25, 1e25, 1e-20, 1.0, 1e20, -1.0, 1e20, 1e-10, 1e-9]
            x = np.array([row, row[::-1], [-v for v in row]], np.float32)
            expected = np.cumprod(x.astype(np.float64), 1)
            assert np.isfinite(expected).all()
            sketch = elaborated(text)
            given = x if axis else x.T.copy()
            found = interpret(sketch, {"X": given}, {"N": 13}).outputs["Y"]
            found = found if axis else found.T
            fits = np.abs(np.maximum.accumulate(np.abs(expected), 1)) < 3e38
            np.testing.assert_allclose(found[fits], expected[fits], rtol=1e-5)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64", "i64", "i8", "u8", "bool"])
def test_counted_places_sort_rows_of_any_length(dtype: str) -> None:
    for text, axis, descending in sorts(dtype):
        sketch = elaborated(text)
        for size in SIZES:
            generator = np.random.default_rng(size)
            x = generator.integers(0, 3, (3, size)).astype(np.float64)
            if dtype in FLOATS and size > 2:
                x[1, :2], x[0, 1], x[2, 0], x[2, 2], x[0, 0] = np.nan, -np.inf, np.inf, np.nan, -0.0
            x = (x if axis else x.T.copy()).astype(numpy_dtype(DType(dtype)))
            whole = torch.from_numpy(x.astype(np.float64))
            values, places = torch.sort(whole, dim=axis, descending=descending, stable=True)
            for options in CHECKED:
                found = interpret(sketch, {"X": x}, {"N": size}, options=options).outputs
                np.testing.assert_array_equal(
                    found["VALUES"].astype(np.float64), values.numpy(), text
                )
                np.testing.assert_array_equal(found["PLACES"], places.numpy(), text)
