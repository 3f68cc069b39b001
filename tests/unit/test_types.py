"""Rounding of scalars to the types of the language, against NumPy's and ml_dtypes' own."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sketchc.base.types import FORMATS, DType, rounded
from sketchc.interpreter.tiles import to_tile


def telling(dtype: DType) -> list[float]:
    """Numbers of the type, what lies half-way between two, and their neighbours in f64."""
    bits, least, limit = FORMATS[dtype]
    generator = np.random.default_rng(0)
    found = [0.0, -0.0, math.inf, -math.inf, 2.0**least, 2.0 ** (least - 1), 2.0**limit]
    for exponent in [least, least + 1, least + bits, -1, 0, 7, limit - bits, limit - 1]:
        for significand in generator.integers(2 ** (bits - 1), 2**bits, 20):
            unit = max(exponent - bits + 1, least)
            number = math.ldexp(float(significand), unit)
            found += [number, number + math.ldexp(0.5, unit), -number - math.ldexp(0.5, unit)]
    largest = math.ldexp(2.0**bits - 1, limit - bits)
    found += [largest, largest + math.ldexp(0.5, limit - bits)]
    return found + [math.nextafter(x, way) for x in found for way in (-math.inf, math.inf)]


@pytest.mark.parametrize("dtype", [*FORMATS, DType.F64])
def test_scalars_are_rounded_as_tiles_are(dtype: DType) -> None:
    numbers = telling(DType.F32 if dtype is DType.F64 else dtype)
    with np.errstate(over="ignore"):
        expected = to_tile(np.array(numbers), dtype)
    actual = np.array([rounded(number, dtype) for number in numbers])
    np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(np.signbit(actual), np.signbit(expected))
    assert math.isnan(rounded(math.nan, dtype))
