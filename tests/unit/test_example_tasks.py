"""Examples, interpreted with small tiles, against the PyTorch tasks beside them.

Tiles of three and four lanes make small sizes ragged; programs run in another order, over padded
and poisoned tiles. `sketchc verify` compares more sizes, through the real toolchains.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from example_sizes import inputs_for, params_for, sizes_for

torch = pytest.importorskip("torch")

from sketchc.base.diagnostics import Source  # noqa: E402
from sketchc.checker.domains.inference import infer_domains  # noqa: E402
from sketchc.checker.elaboration.elaborate import elaborate  # noqa: E402
from sketchc.interpreter.api import Options, interpret  # noqa: E402
from sketchc.ir import nodes as ir  # noqa: E402
from sketchc.parsing.parser import parse  # noqa: E402

FOLDER = Path(__file__).parents[2] / "examples"
#: test_interpreter_examples has the others; `embedding` keeps its table in the model.
ELSEWHERE = frozenset(
    [
        *("add", "batched_matmul", "embedding", "gelu", "layer_norm", "matmul"),
        *("matmul_bias_gelu", "online_softmax", "relu", "rms", "softmax", "sum_middle"),
    ]
)
NAMES = sorted(path.stem for path in FOLDER.glob("*.sketch") if path.stem not in ELSEWHERE)
#: Another order of programs, lanes beyond the logical extents, and what they hold.
ORDERS = {
    "shuffled": Options(check_domains=True, shuffle=7),
    "padded": Options(check_domains=True, shuffle=8, padding=5),
}


def elaborated(name: str, tile: int) -> ir.Sketch:
    tree, found = parse(Source(name, (FOLDER / f"{name}.sketch").read_text("utf-8")))
    assert tree is not None, found
    names = ("T", "TM", "TN", "TK", "TP", "TO", "TB", "TD", "TH", "TW", "PART")
    sketch, found = elaborate(tree.sketches[0], dict.fromkeys(names, tile))
    assert sketch is not None, found
    sketch, found = infer_domains(sketch)
    return sketch


def task(name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(name, FOLDER / "tasks" / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def check(name: str, tile: int, wanted: tuple[int, ...], options: Options) -> None:
    sketch, module = elaborated(name, tile), task(name)
    model = module.Model(*module.get_init_inputs())
    own = {p.name: getattr(model, p.name) for p in sketch.params if hasattr(model, p.name)}
    params = params_for(sketch, own)
    sizes = sizes_for(sketch, wanted, params)
    given: list[Any] = [tensor_of(a) for a in inputs_for(sketch, sizes, params).values()]
    if hasattr(model, "valid_inputs"):
        given = model.valid_inputs(given)
    names = [t.name for t in sketch.tensors if t.role in (ir.Role.IN, ir.Role.INOUT)]
    arrays = {key: array_of(value) for key, value in zip(names, given, strict=True)}
    wide = [value.double() if value.is_floating_point() else value for value in given]
    with torch.no_grad():
        expected = model.double()(*wide)
    outputs = interpret(sketch, arrays, sizes, params, options).outputs
    expected = expected if isinstance(expected, tuple) else (expected,)
    for (key, actual), want in zip(outputs.items(), expected, strict=True):
        compare(f"{key} at {sizes}", actual, want.numpy())


def tensor_of(array: np.ndarray[Any, Any]) -> Any:
    """PyTorch and NumPy share no bf16: its bits pass between them."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def array_of(tensor: Any) -> np.ndarray[Any, Any]:
    if tensor.dtype is torch.bfloat16:
        bits: np.ndarray[Any, Any] = tensor.view(torch.uint16).numpy()
        return bits.view(ml_dtypes.bfloat16)
    found: np.ndarray[Any, Any] = tensor.numpy()
    return found


def compare(where: str, actual: np.ndarray[Any, Any], want: np.ndarray[Any, Any]) -> None:
    """Floats to within the rounding of f32, or of their own narrower type, of the largest value; a
    quantised value may be one off."""
    assert actual.shape == want.shape, where
    if want.dtype.kind == "f":
        finite = np.abs(want[np.isfinite(want)])
        scale = float(finite.max()) if finite.size else 1.0
        rtol = {"float16": 2.0**-10, "bfloat16": 2.0**-7}.get(actual.dtype.name, 3e-5)
        actual = actual.astype(np.float64)
        np.testing.assert_allclose(actual, want, rtol=rtol, atol=1e-5 * scale, err_msg=where)
        return
    assert actual.dtype == want.dtype, where
    off = np.abs(actual.astype(np.int64) - want.astype(np.int64))
    assert off.max(initial=0) <= (actual.dtype == np.int8), where


@pytest.mark.sweep
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", NAMES)
def test_small_tiles_equal_the_task(name: str, order: str) -> None:
    tile = 4 if order == "padded" else 3
    convolution = name in ("conv2d", "conv_transpose2d")  # seven symbols: work is their product
    for wanted in ((1, 2, 3, 4), (2, 4, 3) if convolution else (5, 7, 6)):
        if name == "avg_pool3d":  # PyTorch refuses images smaller than the window
            wanted = tuple(max(size, 3) for size in wanted)
        check(name, tile, wanted, ORDERS[order])
