"""Sizes and inputs at which a sketch may be launched, for tests that run every example.

A sketch says which sizes it takes: by bounds of symbols, by `require`, by extents that must not be
negative. Tests say which sizes they would like; what comes out are the nearest allowed ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from sketchc.base.types import DType
from sketchc.interpreter.inputs import into_range
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import Value
from sketchc.launch.inputs import index_ranges
from sketchc.runtime.cases.sizes import example_params, nearest, tensor_shapes

Array = np.ndarray[Any, Any]


def params_for(sketch: ir.Sketch, given: Mapping[str, Value] | None = None) -> dict[str, Value]:
    """A value for every param: as given, else its default, else an example."""
    return example_params(sketch, given)


def sizes_for(
    sketch: ir.Sketch, wanted: Sequence[int], params: Mapping[str, Value] | None = None
) -> dict[str, int]:
    """The sizes nearest to `wanted` (one for each symbol, in turn) at which the sketch may run.

    Fails where there are none near; no tensor is empty.
    """
    values = params_for(sketch, params)
    wishes = {s.name: wanted[place % len(wanted)] for place, s in enumerate(sketch.symbols)}
    wishes |= {
        s.name: min(wishes[s.name], s.upper_bound)
        for s in sketch.symbols
        if s.upper_bound is not None
    }
    found = nearest(sketch, wishes, values, least=1)
    assert found is not None, f"no sizes near {wishes} are allowed for {sketch.name}"
    return found


def inputs_for(
    sketch: ir.Sketch,
    symbols: Mapping[str, int],
    params: Mapping[str, Value] | None = None,
    seed: int = 0,
) -> dict[str, Array]:
    """Signed inputs of mixed scale for the in and inout tensors; indices are in range."""
    random = np.random.default_rng(seed)
    values = params_for(sketch, params)
    shapes = tensor_shapes(sketch, symbols, values)
    found = {
        tensor.name: mixed(random, shapes[tensor.name], tensor.dtype)
        for tensor in sketch.tensors
        if tensor.role in (ir.Role.IN, ir.Role.INOUT)
    }
    for name, (lower, upper) in index_ranges(sketch, symbols, values).items():
        found[name] = into_range(found[name], lower, upper)
    return found


def mixed(random: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Signed values of mixed scale, exact in the type."""
    if dtype is DType.BOOL:
        return np.asarray(random.random(shape) < 0.5)
    if dtype.is_integer:
        low = -50 if dtype.is_signed else 0
        return np.asarray(random.integers(low, 50, shape), dtype.numpy_name)
    values = random.standard_normal(shape) * 10.0 ** random.uniform(-2, 1, shape)
    return np.asarray(values, ml_dtypes.bfloat16 if dtype is DType.BF16 else dtype.numpy_name)
