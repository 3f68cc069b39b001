"""Random inputs for an execution: signed, of mixed scales, exact in the tensor's type.

Where a sketch takes a promise about its inputs, inputs are drawn that keep it: indices in range,
and for stores with `unique=True` or `covers=True` indices that are distinct, or all there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

import attrs
import numpy as np

from sketchc.base.types import DType, numpy_dtype
from sketchc.interpreter.tiles import Array, to_tensor
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import Value
from sketchc.launch.index_inputs import Promise, index_ranges, promises
from sketchc.launch.symbol_sources import solve_symbols


@attrs.frozen
class Drawing:
    """How inputs are drawn. `floats` bounds the magnitudes of floats and `largest` those of
    integers, which then have one sign; None: see `random_array`. `places`: which of the ways in
    which promised indices can be distinct is taken."""

    floats: tuple[float, float] | None = None
    largest: int | None = None
    places: int = 0


#: Draws to try one after the other where results come out as NaN or Inf, an operation has no value,
#: or a promise turns out broken: few functions are defined in none of these ranges.
DRAWINGS = (
    Drawing(),
    Drawing((0.25, 1.0), 3, 1),
    Drawing((1.5, 4.0), 2, 2),
    Drawing((-1.0, -0.25), 1, 3),
)


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


def _tame_array(
    generator: np.random.Generator, shape: tuple[int, ...], dtype: DType, drawing: Drawing
) -> Array:
    if dtype.is_float and drawing.floats is not None:
        return to_tensor(generator.uniform(*drawing.floats, shape), dtype)
    if dtype.is_integer and dtype is not DType.BOOL and drawing.largest is not None:
        found = generator.integers(1, drawing.largest + 1, shape)
        return found.astype(numpy_dtype(dtype))
    return random_array(generator, shape, dtype)


def random_inputs(
    sketch: ir.Sketch,
    shapes: Mapping[str, tuple[int, ...]],
    generator: np.random.Generator,
    params: Mapping[str, Value] | None = None,
    drawing: Drawing = DRAWINGS[0],
) -> dict[str, Array]:
    """A random array for every in and inout tensor of `sketch`, by name. Those whose elements serve
    as indices hold valid ones, which keep what stores promise of them where that can be done;
    `params` (else defaults) matter for the ranges of these alone."""
    arrays = {
        tensor.name: _tame_array(generator, shapes[tensor.name], tensor.dtype, drawing)
        for tensor in sketch.tensors
        if tensor.role in (ir.Role.IN, ir.Role.INOUT)
    }
    ranges = _ranges(sketch, shapes, params)
    for name, (lower, upper) in ranges.items():
        if drawing.largest is not None:
            lower = max(lower, 0) if upper > 0 else lower
            upper = min(upper, lower + drawing.largest)
        arrays[name] = into_range(arrays[name], lower, upper)
    for promise in promises(sketch):
        ways = list(_ways(promise, shapes, ranges))
        if ways:
            axes = ways[drawing.places % len(ways)]
            arrays |= _promised(promise, axes, arrays, ranges, generator)
    return arrays


def _ways(
    promise: Promise,
    shapes: Mapping[str, tuple[int, ...]],
    ranges: Mapping[str, tuple[int, int]],
) -> Iterator[tuple[int, ...]]:
    """The axes along which the indices of a promise can be distinct, or all there: all axes of
    their tensors, the last ones, the first ones, as far as there are enough values."""
    found = {shapes[name] for name in promise.tensors}
    if len(found) > 1:
        return
    (shape,) = found
    spans = [ranges[name] for name in promise.tensors]
    places = prod(max(0, upper - lower) for lower, upper in spans)
    rank = len(shape)
    axes = [tuple(range(first, rank)) for first in range(rank)]
    axes += [tuple(range(last)) for last in range(rank - 1, 0, -1)]
    for some in axes:
        count = prod(shape[axis] for axis in some)
        enough = count <= places if promise.unique else True
        if enough and (count >= places or not promise.covers):
            yield some


def _promised(
    promise: Promise,
    axes: tuple[int, ...],
    arrays: Mapping[str, Array],
    ranges: Mapping[str, tuple[int, int]],
    generator: np.random.Generator,
) -> dict[str, Array]:
    """The arrays of a promise with indices that are distinct, or all there, along `axes`; anew for
    each place on the other axes."""
    shape = arrays[promise.tensors[0]].shape
    others = tuple(axis for axis in range(len(shape)) if axis not in axes)
    count = prod(shape[axis] for axis in axes)
    lowers = [ranges[name][0] for name in promise.tensors]
    sizes = [ranges[name][1] - ranges[name][0] for name in promise.tensors]
    places = prod(sizes)
    blocks = []
    for _ in range(prod(shape[axis] for axis in others)):
        chosen = generator.choice(places, min(count, places), replace=False)
        if count > places:
            again = generator.integers(0, places, count - places)
            chosen = generator.permutation(np.concatenate([chosen, again]))
        blocks.append(chosen)
    flat = np.array(blocks, np.int64).reshape(
        [shape[axis] for axis in others] + [shape[axis] for axis in axes]
    )
    flat = np.transpose(flat, np.argsort((*others, *axes)))
    parts = np.unravel_index(flat, sizes) if flat.size else [flat] * len(sizes)
    return {
        name: (part + lower).astype(arrays[name].dtype)
        for name, part, lower in zip(promise.tensors, parts, lowers, strict=True)
    }


def indices_exist(
    sketch: ir.Sketch,
    shapes: Mapping[str, tuple[int, ...]],
    params: Mapping[str, Value] | None = None,
) -> bool:
    """Whether valid indices exist for every tensor of indices that has elements, such that they
    keep what stores promise of them."""
    ranges = _ranges(sketch, shapes, params)
    if not all(lower < upper or 0 in shapes[name] for name, (lower, upper) in ranges.items()):
        return False
    return all(
        len({shapes[name] for name in promise.tensors}) > 1
        or any(True for _ in _ways(promise, shapes, ranges))
        for promise in promises(sketch)
    )


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
