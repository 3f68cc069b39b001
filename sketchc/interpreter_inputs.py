"""Random inputs for an execution: signed, of mixed scales, exact in the tensor's type."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sketchc import ir
from sketchc.evaluate import Value
from sketchc.index_ranges import index_ranges
from sketchc.interpreter_tiles import Array, numpy_dtype, to_tensor
from sketchc.symbol_sources import solve_symbols
from sketchc.types import DType


def random_array(generator: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """An array of `dtype`: floats are normal times 10**u with u in [-2, 1], integers mostly small
    with some larger ones, both signed where the type is; booleans are fair coins."""
    if dtype is DType.BOOL:
        return generator.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_float:
        scale = 10.0 ** generator.uniform(-2.0, 1.0, shape)
        return to_tensor(generator.standard_normal(shape) * scale, dtype)
    small = generator.integers(-9, 10, shape)
    large = generator.integers(-100, 101, shape)
    values = np.where(generator.random(shape) < 0.8, small, large)
    return (values if dtype.is_signed else np.abs(values)).astype(numpy_dtype(dtype))


def random_inputs(
    sketch: ir.Sketch,
    shapes: Mapping[str, tuple[int, ...]],
    generator: np.random.Generator,
    params: Mapping[str, Value] | None = None,
) -> dict[str, Array]:
    """A random array for every in and inout tensor of `sketch`, by name. Those whose elements serve
    as indices hold valid ones; `params` (else defaults) matter for the ranges of these alone."""
    arrays = {
        tensor.name: random_array(generator, shapes[tensor.name], tensor.dtype)
        for tensor in sketch.tensors
        if tensor.role in (ir.Role.IN, ir.Role.INOUT)
    }
    for name, (lower, upper) in _ranges(sketch, shapes, params).items():
        arrays[name] = into_range(arrays[name], lower, upper)
    return arrays


def indices_exist(
    sketch: ir.Sketch,
    shapes: Mapping[str, tuple[int, ...]],
    params: Mapping[str, Value] | None = None,
) -> bool:
    """Whether valid indices exist for every tensor of indices that has elements."""
    ranges = _ranges(sketch, shapes, params)
    return all(lower < upper or 0 in shapes[name] for name, (lower, upper) in ranges.items())


def _ranges(
    sketch: ir.Sketch, shapes: Mapping[str, tuple[int, ...]], params: Mapping[str, Value] | None
) -> dict[str, tuple[int, int]]:
    """The half-open ranges of valid indices, by tensor of indices."""
    given = {p.name: p.default if p.default is not None else 1 for p in sketch.params}
    return index_ranges(sketch, _symbols(sketch, shapes), {**given, **(params or {})})


def into_range(array: Array, lower: int, upper: int) -> Array:
    """Integers moved into [lower, upper) where they lie outside; as they are where it is empty, and
    anything but integers as it is."""
    if upper <= lower or array.dtype.kind not in "iu":
        return array
    outside = (array < lower) | (array >= upper)
    if not outside.any():
        return array
    moved = lower + (array.astype(np.int64) - lower) % (upper - lower)
    return np.where(outside, moved, array).astype(array.dtype)


def _symbols(sketch: ir.Sketch, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """The symbols that the shapes say."""
    return solve_symbols(sketch, shapes, {})
