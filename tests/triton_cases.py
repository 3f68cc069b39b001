"""What the Triton tests share: lowering text, making inputs, running many cases in one worker."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import ml_dtypes
import numpy as np

from sketchc.base.diagnostics import Source
from sketchc.base.types import DType
from sketchc.interpreter.api import interpret
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import evaluate, host_values
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.lowering.plan import Plan
from sketchc.lowering.registry import load_target
from sketchc.parsing.parser import parse
from sketchc.runtime.sandbox.worker import run_worker
from sketchc.runtime.toolchains.launching import call_request
from sketchc.runtime.toolchains.triton_cuda.toolchain import (
    INTERPRETED,
    example_values,
    placed,
)

EXAMPLES = Path(__file__).parent.parent / "examples"
BATCH = Path(__file__).parent / "e2e" / "triton_batch.py"
Array = np.ndarray[Any, Any]


def lower(
    text: str, target: str = "triton_cuda", constants: Mapping[str, Any] | None = None
) -> tuple[Plan, Kernel]:
    """The plan and the kernel of a sketch's text; diagnostics raise."""
    tree, found = parse(Source("test.sketch", text))
    assert tree is not None, found
    plan = build_plan(tree.entries[0], target, None, constants or {}).plan
    return plan, load_target(target).emit(plan)


def example(name: str) -> str:
    return (EXAMPLES / f"{name}.sketch").read_text("utf-8")


def dtype_of(dtype: DType) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16 if dtype is DType.BF16 else dtype.numpy_name)


def mixed(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Signed values of mixed scale."""
    if dtype is DType.BOOL:
        return rng.random(shape) < 0.5
    if dtype.is_integer:
        return rng.integers(-50, 50, shape).astype(dtype_of(dtype))
    values = rng.standard_normal(shape) * 10.0 ** rng.uniform(-2, 1, shape)
    return values.astype(dtype_of(dtype))


@attrs.frozen
class Case:
    """One run: a kernel with inputs, and what it must return."""

    kernel: Kernel
    tensors: Mapping[str, Array]
    symbols: Mapping[str, int]
    params: Mapping[str, Any]
    expected: Mapping[str, Array]


def make_case(
    kernel: Kernel,
    symbols: Mapping[str, int],
    params: Mapping[str, Any] | None = None,
    tensors: Mapping[str, Array] | None = None,
    seed: int = 0,
) -> Case:
    """Random inputs (those of `tensors` as given) and the interpreter's outputs."""
    rng = np.random.default_rng(seed)
    sketch, given = kernel.sketch, dict(params or {})
    values = host_values(sketch, symbols, given)
    inputs = dict(tensors or {})
    for tensor in sketch.tensors:
        if tensor.role in (ir.Role.IN, ir.Role.INOUT) and tensor.name not in inputs:
            shape = tuple(int(evaluate(extent, values)) for extent in tensor.extents)
            inputs[tensor.name] = mixed(rng, shape, tensor.dtype)
    expected = interpret(sketch, inputs, symbols, given).outputs
    return Case(kernel, inputs, dict(symbols), given, expected)


def run_cases(
    cases: list[Case], folder: Path, poison: bool = True, interpret: bool = True
) -> list[dict[str, Array] | str]:
    """The outputs of every case under Triton's interpreter (on the GPU without `interpret`), or the
    error as "Type: message"."""
    requests, arrays = [], {}
    for index, case in enumerate(cases):
        source = placed(case.kernel, folder / str(index))
        requests.append(call_request(case.kernel, source, case.symbols, case.params))
        arrays |= {f"{index}/{name}": array for name, array in case.tensors.items()}
        if poison:
            for name, array in case.expected.items():
                if name not in case.tensors:
                    arrays[f"{index}/{name}"] = _poisoned(array)
    result = run_worker(
        f"{BATCH}:run_batch",
        {"cases": requests},
        arrays,
        environment={"TRITON_INTERPRET": "1" if interpret else "0"},
        preload=INTERPRETED if interpret else ("torch",),
        readable=[request["source"] for request in requests],
    )
    assert result.reply is not None, result.describe() + result.traceback + result.output
    outputs: list[dict[str, Array] | str] = []
    for index, reply in enumerate(result.reply["replies"]):
        prefix = f"{index}/"
        found = {
            k.removeprefix(prefix): v for k, v in result.arrays.items() if k.startswith(prefix)
        }
        outputs.append(reply or found)
    return outputs


def _poisoned(array: Array) -> Array:
    poison = np.empty_like(array)
    if array.dtype.kind in "iub":
        poison.fill(True if array.dtype.kind == "b" else 77)
    else:
        poison.fill(np.nan)
    return poison


def compile_all(
    kernels: list[Kernel],
    folder: Path,
    architectures: tuple[int, ...],
    *,
    widths: tuple[str, ...] = (),
) -> list[Any]:
    """The compiled variants of every kernel, in one worker; without `widths`, kernels take the
    types of indices in turns."""
    requests = []
    for index, kernel in enumerate(kernels):
        source = placed(kernel, folder / str(index))
        symbols, params = example_values(kernel.sketch)
        request = call_request(kernel, source, symbols, params)
        request |= {"architectures": list(architectures), "folder": str(folder / str(index))}
        request["index_widths"] = list(widths) or ["int32" if index % 2 else "int64"]
        requests.append(request)
    result = run_worker(
        f"{BATCH}:compile_batch",
        {"cases": requests},
        environment={"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(folder / "cache")},
        writable=[folder],
    )
    assert result.reply is not None, result.describe() + result.traceback
    return list(result.reply["kernels"])


def assert_close(
    found: Array, expected: Array, factor: float = 8.0, terms: int = 1, *, flushed: bool = False
) -> None:
    """Equal shape and type; NaN and infinities alike; floats within `factor` sqrt(terms) eps of
    value and output scale (and, `flushed`, the smallest normal number); everything else exact."""
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    if found.dtype.kind in "iub":
        np.testing.assert_array_equal(found, expected)
        return
    eps = float(ml_dtypes.finfo(found.dtype).eps) * factor * terms**0.5
    a, b = found.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(b)
    np.testing.assert_array_equal(a[~finite], b[~finite])
    largest = float(np.abs(b[finite]).max(initial=0.0)) or 1.0
    scale = largest * float(np.sqrt(np.mean((b[finite] / largest) ** 2))) if finite.any() else 0.0
    floor = float(ml_dtypes.finfo(found.dtype).smallest_normal) if flushed else 0.0
    np.testing.assert_allclose(a[finite], b[finite], rtol=eps, atol=eps * scale + floor)
