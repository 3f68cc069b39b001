"""What the C++ tests share: lowering text, inputs, and comparison with the interpreter."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
from example_sizes import sizes_for
from native_kernel import NativeKernel

from sketchc.base.diagnostics import Source
from sketchc.base.types import DType
from sketchc.interpreter.api import interpret
from sketchc.interpreter.inputs import into_range
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import evaluate, host_values
from sketchc.launch.inputs import index_ranges
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.lowering.plan import Plan
from sketchc.lowering.registry import load_target
from sketchc.parsing.parser import parse
from sketchc.runtime.cases.sizes import refusal
from sketchc.runtime.toolchains.cpp.toolchain import TOOLCHAIN

EXAMPLES = Path(__file__).parent.parent / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.sketch"))
Array = np.ndarray[Any, Any]

#: Relative spacing of the numbers of each type.
EPSILON = {DType.F64: 2.0**-53, DType.F32: 2.0**-24, DType.F16: 2.0**-11, DType.BF16: 2.0**-8}


def lower(text: str, constants: Mapping[str, Any] | None = None) -> tuple[Plan, Kernel]:
    """The plan and the kernel of a sketch's text; diagnostics raise."""
    tree, found = parse(Source("test.sketch", text))
    assert tree is not None, found
    plan = build_plan(tree.sketches[0], "cpp", None, constants or {}).plan
    return plan, load_target("cpp").emit(plan)


def example(name: str) -> str:
    return (EXAMPLES / f"{name}.sketch").read_text("utf-8")


def numpy_type(dtype: DType) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16 if dtype is DType.BF16 else dtype.numpy_name)


def inputs(
    sketch: ir.Sketch, symbols: Mapping[str, int], params: Mapping[str, Any], seed: int = 0
) -> dict[str, Array]:
    """Signed inputs of mixed scale, and outputs full of poison."""
    rng = np.random.default_rng(seed)
    values = host_values(sketch, symbols, params)
    found = {}
    for tensor in sketch.tensors:
        if tensor.role is ir.Role.WORKSPACE:
            continue
        shape = tuple(int(evaluate(extent, values)) for extent in tensor.extents)
        if tensor.role is ir.Role.OUT:
            poison = np.nan if tensor.dtype.is_float else 77
            data = np.full(shape, poison)
        elif tensor.dtype is DType.BOOL:
            data = rng.random(shape) < 0.5
        elif tensor.dtype.is_integer:
            data = rng.integers(-50 if tensor.dtype.is_signed else 0, 50, shape)
        else:
            data = rng.standard_normal(shape) * 10.0 ** rng.uniform(-2, 1, shape)
        found[tensor.name] = np.asarray(data, numpy_type(tensor.dtype))
    for name, bounds in index_ranges(sketch, symbols, params).items():
        found[name] = into_range(found[name], *bounds)
    return found


def reference(
    sketch: ir.Sketch,
    tensors: Mapping[str, Array],
    symbols: Mapping[str, int],
    params: Mapping[str, Any],
) -> dict[str, Array]:
    """What the interpreter makes of the in and inout tensors."""
    given = {
        name: array.copy()
        for name, array in tensors.items()
        if sketch.tensor(name).role is not ir.Role.OUT
    }
    return interpret(sketch, given, symbols, params).outputs


def assert_equal(
    sketch: ir.Sketch, actual: Mapping[str, Array], expected: Mapping[str, Array], ulps: float
) -> None:
    """Every element within `ulps` spacings (relative to itself plus the RMS); NaN and infinity
    where expected; integers and bool exactly."""
    for name, want in expected.items():
        assert_near(name, sketch.tensor(name).dtype, actual[name], want, ulps)


def assert_near(name: str, dtype: DType, got: Array, want: Array, ulps: float) -> None:
    """`assert_equal` for one tensor."""
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    if not dtype.is_float:
        np.testing.assert_array_equal(got, want, err_msg=name)
        return
    wide, exact = got.astype(np.float64), want.astype(np.float64)
    finite = np.where(np.isfinite(exact), exact, 0.0)
    scale = np.sqrt(np.mean(finite**2)) if finite.size else 0.0
    with np.errstate(invalid="ignore"):
        close = np.abs(wide - exact) <= ulps * EPSILON[dtype] * (np.abs(exact) + scale)
    fine = close | (wide == exact) | (np.isnan(wide) & np.isnan(exact))
    assert fine.all(), (name, np.argwhere(~fine)[:3], wide[~fine][:3], exact[~fine][:3])


def check(
    text: str,
    folder: Path,
    sizes: list[dict[str, int]],
    params: Mapping[str, Any] | None = None,
    ulps: float = 64.0,
    constants: Mapping[str, Any] | None = None,
) -> Kernel:
    """Lower, compile without warnings, and compare with the interpreter at all sizes."""
    _, kernel = lower(text, constants)
    artefact = TOOLCHAIN.compile(kernel, folder)
    assert artefact.details["warnings"] == ""
    native = NativeKernel(artefact)
    for seed, symbols in enumerate(sizes):
        tensors = inputs(kernel.sketch, symbols, params or {}, seed)
        expected = reference(kernel.sketch, tensors, symbols, params or {})
        assert native(tensors, symbols, params) == 0
        assert_equal(kernel.sketch, tensors, expected, ulps)
    return kernel


#: Small tiles, so that small sizes have whole and partial tiles.
TILES: dict[str, dict[str, int]] = {
    "add": {"TM": 4, "TN": 256},
    "batched_matmul": {"TM": 32, "TN": 32, "TK": 16},
    "matmul": {"TM": 32, "TN": 64, "TK": 16},
    "matmul_bias_gelu": {"TM": 64, "TN": 32, "TK": 32},
    "rms": {"TILE_SIZE": 4},
    "sum_middle": {"TM": 8, "TN": 128},
}
PARAMS = {"rms": {"eps": 1e-5}}


#: What cannot be computed without elements.
NOT_EMPTY = ("softmax", "layer_norm", "rms", "normalise_rows")


def sizes(kernel: Kernel, params: dict[str, Any]) -> list[dict[str, int]]:
    """0, 1, T - 1, T, T + 1 and primes, another for each symbol; the nearest that are allowed."""
    sketch = kernel.sketch
    names = [symbol.name for symbol in sketch.symbols]
    tiles = [int(c.value) for c in sketch.constants if int(c.value) <= 64] or [16]
    tile = max(tiles) if len(names) <= 2 else 8  # work grows with their product
    found = [sizes_for(sketch, (size,), params) for size in (1, tile - 1, tile, tile + 1)]
    found.append(sizes_for(sketch, (5, 37, 13, 71) if len(names) <= 3 else (5, 7, 3), params))
    empty = dict.fromkeys(names, 0)
    if not any(name in kernel.name for name in NOT_EMPTY) and not refusal(sketch, empty, params):
        found.append(empty)
    return found


def load_module(path: Path, name: str) -> ModuleType:
    """The Python module in a file."""
    specification = importlib.util.spec_from_file_location(name, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module
