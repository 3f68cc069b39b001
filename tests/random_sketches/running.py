"""Inputs for random sketches, and what counts as the same result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from random_sketches.draft import Generated
from sketchc.base.diagnostics import Severity, Source
from sketchc.base.types import DType
from sketchc.checker.api import check_sketch
from sketchc.interpreter.api import Options, interpret
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import evaluate, host_values
from sketchc.parsing.parser import parse

Array = np.ndarray[Any, Any]
#: Relative error allowed to outputs that went through a few inexact operations.
TOLERANCE = {DType.F64: 2e-4, DType.F32: 2e-4, DType.F16: 4e-2, DType.BF16: 2e-1}


def checked(generated: Generated, constants: Mapping[str, int] | None = None) -> ir.Sketch | None:
    """The sketch, or None where the checker refuses it."""
    tree, _ = parse(Source(f"random_{generated.seed}.sketch", generated.text))
    assert tree is not None, generated.text
    result, found = check_sketch(tree.sketches[0], constants or {})
    if result is None or any(d.severity is Severity.ERROR for d in found):
        return None
    return result.sketch


def numpy_type(dtype: DType) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16 if dtype is DType.BF16 else dtype.numpy_name)


def inputs(generated: Generated, sketch: ir.Sketch, sizes: Mapping[str, int]) -> dict[str, Array]:
    """The in and inout tensors; an optional one is there for every other seed."""
    rng = np.random.default_rng(generated.seed)
    values = host_values(sketch, sizes)
    found = {}
    for tensor in sketch.tensors:
        if tensor.role not in (ir.Role.IN, ir.Role.INOUT):
            continue
        hold = generated.holds.get(tensor.name, "any")
        if hold == "optional" and generated.seed % 2:
            continue
        shape = tuple(int(evaluate(extent, values)) for extent in tensor.extents)
        if any(tensor.broadcast) and generated.seed % 2:
            shape = tuple(
                1 if free else size for size, free in zip(shape, tensor.broadcast, strict=True)
            )
        found[tensor.name] = _values(rng, tensor.dtype, shape, hold, sizes)
    return found


def _values(
    rng: np.random.Generator,
    dtype: DType,
    shape: tuple[int, ...],
    hold: str,
    sizes: Mapping[str, int],
) -> Array:
    kind, _, bound = hold.partition(":")
    data: Array
    match kind:
        case "index":
            most = sizes[bound] if bound in sizes else int(bound)
            data = rng.integers(0, max(most, 1), shape)
        case "permutation":
            data = rng.permutation(shape[0])
        case "shift":
            data = rng.integers(0, 4, shape)
        case _ if dtype is DType.BOOL:
            data = rng.random(shape) < 0.5
        case _ if dtype.is_integer:
            low, high = (0, 200) if not dtype.is_signed else (-100, 100)
            data = rng.integers(low, high, shape)
            data = np.where(rng.random(shape) < 0.3, data % 4, data)
        case _:
            # Eighths, so that there are ties and exact sums, and values of mixed scale.
            mixed = rng.standard_normal(shape) * 10.0 ** rng.uniform(-2, 1, shape)
            data = np.where(rng.random(shape) < 0.5, np.round(mixed * 8) / 8, mixed)
    return data.astype(numpy_type(dtype))


def reference(
    generated: Generated,
    sketch: ir.Sketch,
    sizes: Mapping[str, int],
    given: Mapping[str, Array],
    **options: Any,
) -> dict[str, Array]:
    """What the interpreter computes; every rule of the language is checked on the way."""
    del generated
    copies = {name: array.copy() for name, array in given.items()}
    return interpret(sketch, copies, sizes, options=Options(**options)).outputs


def difference(
    generated: Generated,
    sketch: ir.Sketch,
    expected: Mapping[str, Array],
    actual: Mapping[str, Array],
) -> str:
    """The first output that differs, in words; empty where all agree."""
    for name, wanted in expected.items():
        found = actual[name]
        if found.shape != wanted.shape:
            return f"{name} has shape {found.shape}, not {wanted.shape}"
        dtype = sketch.tensor(name).dtype
        left, right = (
            np.asarray(a, np.float64 if dtype.is_float else None) for a in (wanted, found)
        )
        if not dtype.is_float or name not in generated.rough:
            same = (left == right) | ((left != left) & (right != right))
        else:
            with np.errstate(invalid="ignore"):
                scale = max(1.0, float(np.nanmax(np.abs(left[np.isfinite(left)]), initial=0.0)))
                near = np.abs(left - right) <= TOLERANCE[dtype] * np.maximum(
                    np.abs(left), scale / 16 + 1
                )
            same = near | (left == right) | (np.isnan(left) & np.isnan(right))
        if not same.all():
            lane = tuple(int(i) for i in np.argwhere(~same)[0])
            return f"{name}{list(lane)} is {right[lane]}, not {left[lane]}"
    return ""
