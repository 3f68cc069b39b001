"""The Ascend path: real front end, Linalg executed on the CPU. Kernels written by hand here."""

from __future__ import annotations

import os
import secrets
import shutil
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from toolchains import require

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.lowering.kernel import Kernel
from sketchc.runtime.toolchains.base import Artefact, ToolchainError
from sketchc.runtime.toolchains.triton_ascend import environment

pytestmark = pytest.mark.usefixtures("toolchain")
Arrays = dict[str, np.ndarray[Any, Any]]
HEAD = "import torch\nimport triton\nimport triton.language as tl\n"


@pytest.fixture(scope="module")
def toolchain() -> Any:
    return require("triton_ascend")


def make_kernel(source: str, tensors: str, params: tuple[ir.Param, ...] = ()) -> Kernel:
    """A kernel with the wrapper `entry`; `tensors` like "X[M,N]: in f32; Y[M]: out f32"."""
    parsed, symbols = [], dict[str, ir.Symbol]()
    for text in tensors.split(";"):
        head, _, rest = text.strip().partition("]: ")
        name, _, inside = head.partition("[")
        role, dtype = rest.split()
        extents = []
        for extent in inside.split(","):
            symbols.setdefault(extent, ir.Symbol(extent))
            extents.append(ir.Ref(extent, ir.NameKind.SYMBOL))
        parsed.append(ir.Tensor(name, tuple(extents), DType(dtype), ir.Role(role)))
    sketch = ir.Sketch(
        name="by_hand",
        symbols=tuple(symbols.values()),
        params=params,
        constants=(),
        lets=(),
        tensors=tuple(parsed),
        views=(),
        requires=(),
        tiles=(),
        phases=(),
    )
    text = HEAD + textwrap.dedent(source)
    return Kernel("triton_ascend", "ascend910b4", "by_hand", "entry", "python", text, sketch)


def run(
    kernel: Kernel,
    folder: Path,
    arrays: Arrays,
    symbols: Mapping[str, int],
    params: Mapping[str, float] | None = None,
    order: str = "shuffled",
) -> Arrays:
    toolchain: Any = require("triton_ascend")
    toolchain.place(kernel, folder)
    artefact = Artefact(kernel, folder)
    results: Arrays = toolchain.run(artefact, arrays, symbols, params or {}, order=order)
    return results


def signed(shape: tuple[int, ...], seed: int = 0) -> np.ndarray[Any, Any]:
    """Signed values of mixed scale."""
    random = np.random.default_rng(seed)
    return (random.standard_normal(shape) * 10 ** random.uniform(-2, 2, shape)).astype(np.float32)


ADD = """
    @triton.jit
    def add_kernel(x, y, z, n, BLOCK: tl.constexpr):
        for block in range(tl.program_id(0), tl.cdiv(n, BLOCK), tl.num_programs(0)):
            lanes = block * BLOCK + tl.arange(0, BLOCK)
            mask = lanes < n
            a = tl.load(x + lanes, mask, other=0.0)
            b = tl.load(y + lanes, mask, other=0.0)
            tl.store(z + lanes, a + b, mask)


    def entry(X, Y, *, out=None):
        (n,) = X.shape
        Z = torch.empty_like(X) if out is None else out
        if n:
            add_kernel[(min(7, triton.cdiv(n, 64)),)](X, Y, Z, n, BLOCK=64)
        return Z
"""


@pytest.mark.sweep
@pytest.mark.parametrize("order", ["forward", "reversed", "shuffled"])
def test_masked_tails_in_every_order(tmp_path: Path, order: str) -> None:
    kernel = make_kernel(ADD, "X[N]: in f32; Y[N]: in f32; Z[N]: out f32")
    for n in (0, 1, 63, 64, 65, 997):
        x, y = signed((n,)), signed((n,), 1)
        results = run(kernel, tmp_path, {"X": x, "Y": y}, {"N": n}, order=order)
        np.testing.assert_array_equal(results["Z"], x + y)


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", ["f16", "bf16", "i64", "i32", "bool"])
def test_element_types(tmp_path: Path, dtype: str) -> None:
    source = ADD.replace("a + b", "a | b" if dtype == "bool" else "a + b")
    source = source.replace("other=0.0", "other=0")
    kernel = make_kernel(source, f"X[N]: in {dtype}; Y[N]: in {dtype}; Z[N]: out {dtype}")
    numpy_dtype = np.dtype(DType(dtype).numpy_name)
    if dtype == "bool":
        x, y = signed((101,)) > 0, signed((101,), 1) > 0
        expected = x | y
    else:
        scale = 2**40 if dtype == "i64" else 1
        x, y = signed((101,)).astype(numpy_dtype) * scale, signed((101,), 1).astype(numpy_dtype)
        expected = (x + y).astype(numpy_dtype)
    result = run(kernel, tmp_path, {"X": x, "Y": y}, {"N": 101})["Z"]
    assert result.dtype == numpy_dtype
    np.testing.assert_array_equal(result, expected)


SOFTMAX = """
    @triton.jit
    def softmax_kernel(x, y, rows, columns, BLOCK: tl.constexpr):
        for row in range(tl.program_id(0), rows, tl.num_programs(0)):
            lanes = tl.arange(0, BLOCK)
            mask = lanes < columns
            values = tl.load(x + row * columns + lanes, mask, other=float("-inf"))
            powers = tl.exp(values - tl.max(values, 0))
            tl.store(y + row * columns + lanes, powers / tl.sum(powers, 0), mask)


    def entry(X, *, out=None):
        rows, columns = X.shape
        Y = torch.empty_like(X) if out is None else out
        block = triton.next_power_of_2(columns)
        softmax_kernel[(min(rows, 40),)](X, Y, rows, columns, BLOCK=block)
        return Y
"""


@pytest.mark.sweep
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 127), (41, 129)])
def test_row_softmax(tmp_path: Path, rows: int, columns: int) -> None:
    kernel = make_kernel(SOFTMAX, "X[M,N]: in f32; Y[M,N]: out f32")
    x = np.clip(signed((rows, columns)), -50, 50)
    result = run(kernel, tmp_path, {"X": x}, {"M": rows, "N": columns})["Y"]
    powers = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(result, powers / powers.sum(1, keepdims=True), rtol=2e-5, atol=1e-30)


MATMUL = """
    @triton.jit
    def matmul_kernel(a, b, c, M, N, K, T: tl.constexpr):
        tiles = tl.cdiv(N, T)
        for tile in range(tl.program_id(0), tl.cdiv(M, T) * tiles, tl.num_programs(0)):
            rows = tile // tiles * T + tl.arange(0, T)
            columns = tile % tiles * T + tl.arange(0, T)
            total = tl.zeros((T, T), tl.float32)
            for k in range(0, K, T):
                inner = k + tl.arange(0, T)
                left_mask = (rows[:, None] < M) & (inner[None, :] < K)
                right_mask = (inner[:, None] < K) & (columns[None, :] < N)
                left = tl.load(a + rows[:, None] * K + inner[None, :], left_mask, other=0.0)
                right = tl.load(b + inner[:, None] * N + columns[None, :], right_mask, other=0.0)
                total = tl.dot(left, right, total, input_precision="ieee")
            mask = (rows[:, None] < M) & (columns[None, :] < N)
            tl.store(c + rows[:, None] * N + columns[None, :], total, mask)


    def entry(A, B, *, out=None):
        (M, K), N = A.shape, B.shape[1]
        C = torch.empty((M, N), dtype=torch.float32) if out is None else out
        matmul_kernel[(min(20, triton.cdiv(M, 16) * triton.cdiv(N, 16)),)](A, B, C, M, N, K, T=16)
        return C
"""


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_matrix_product(tmp_path: Path, dtype: str) -> None:
    kernel = make_kernel(MATMUL, f"A[M,K]: in {dtype}; B[K,N]: in {dtype}; C[M,N]: out f32")
    numpy_dtype = np.dtype(DType(dtype).numpy_name)
    random = np.random.default_rng(2)
    for m, n, k in ((1, 1, 1), (17, 31, 47)):
        a = random.standard_normal((m, k)).astype(numpy_dtype)
        b = random.standard_normal((k, n)).astype(numpy_dtype)
        result = run(kernel, tmp_path, {"A": a, "B": b}, {"M": m, "N": n, "K": k})["C"]
        expected = a.astype(np.float64) @ b.astype(np.float64)
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


REDUCE = """
    @triton.jit
    def larger(a, b):
        return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


    @triton.jit
    def reduce_kernel(x, y, n, BLOCK: tl.constexpr):
        lanes = tl.arange(0, BLOCK)
        values = tl.load(x + lanes, lanes < n, other=float("-inf"))
        tl.store(y, tl.reduce(values, 0, larger))


    def entry(X, *, out=None):
        Y = torch.empty((1,), dtype=X.dtype) if out is None else out
        reduce_kernel[(1,)](X, Y, X.shape[0], BLOCK=triton.next_power_of_2(X.shape[0]))
        return Y
"""


def test_a_reduction_keeps_nan(tmp_path: Path) -> None:
    kernel = make_kernel(REDUCE, "X[N]: in f32; Y[S]: out f32")
    x = signed((37,))
    assert run(kernel, tmp_path, {"X": x}, {"N": 37, "S": 1})["Y"][0] == x.max()
    x[5] = np.nan
    assert np.isnan(run(kernel, tmp_path, {"X": x}, {"N": 37, "S": 1})["Y"][0])


UNARY = """
    import triton.language.math


    @triton.jit
    def unary_kernel(x, y, n, BLOCK: tl.constexpr):
        lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        v = tl.load(x + lanes, lanes < n, other=1.0)
        tl.store(y + lanes, EXPRESSION, lanes < n)


    def entry(X, *, out=None):
        Y = torch.empty_like(X) if out is None else out
        unary_kernel[(triton.cdiv(X.shape[0], 32),)](X, Y, X.shape[0], BLOCK=32)
        return Y
"""


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("tl.math.tanh(v)", np.tanh),
        ("v % 3.0", lambda v: np.fmod(v, 3)),
        ("tl.flip(v)", lambda v: v.reshape(-1, 32)[:, ::-1].reshape(-1)),
        ("tl.cumsum(v, 0)", lambda v: np.cumsum(v.reshape(-1, 32), 1).reshape(-1)),
        (
            "tl.cumsum(v, 0, reverse=True)",
            lambda v: np.cumsum(v.reshape(-1, 32)[:, ::-1], 1)[:, ::-1].reshape(-1),
        ),
        ("tl.cumprod(v / 4, 0)", lambda v: np.cumprod(v.reshape(-1, 32) / 4, 1).reshape(-1)),
    ],
)
def test_functions_of_the_vendor_library(tmp_path: Path, expression: str, expected: Any) -> None:
    kernel = make_kernel(UNARY.replace("EXPRESSION", expression), "X[N]: in f32; Y[N]: out f32")
    x = np.clip(signed((64,)), -5, 5)
    result = run(kernel, tmp_path, {"X": x}, {"N": 64})["Y"]
    np.testing.assert_allclose(result, expected(x.astype(np.float64)), rtol=1e-4, atol=1e-5)


def test_outputs_that_are_not_written_stay_poisoned(tmp_path: Path) -> None:
    source = ADD.replace("a + b, mask", "a + b, mask & (lanes >= 3)")
    kernel = make_kernel(source, "X[N]: in f32; Y[N]: in f32; Z[N]: out f32")
    result = run(kernel, tmp_path, {"X": signed((9,)), "Y": signed((9,))}, {"N": 9})["Z"]
    assert np.flatnonzero(np.isnan(result)).tolist() == [0, 1, 2]


def test_a_scattered_mask_becomes_an_unmasked_access(tmp_path: Path) -> None:
    """The front end reads and writes back the whole block where the mask is no interval, and the
    guard page shows it: generated code must keep to intervals at loads and stores."""
    source = ADD.replace("a + b, mask", "a + b, mask & (lanes != 3)")
    kernel = make_kernel(source, "X[N]: in f32; Y[N]: in f32; Z[N]: out f32")
    with pytest.raises(ToolchainError, match="outside of z"):
        run(kernel, tmp_path, {"X": signed((9,)), "Y": signed((9,))}, {"N": 9})
    told = require("triton_ascend").compile(kernel, tmp_path).details["launches"]
    assert [launch["blocks read and written back"] for launch in told] == [["z"]]
    kernel = make_kernel(ADD, "X[N]: in f32; Y[N]: in f32; Z[N]: out f32")
    told = require("triton_ascend").compile(kernel, tmp_path).details["launches"]
    assert not any("blocks read and written back" in launch for launch in told)


def test_in_place_updates_do_not_reach_the_given_arrays(tmp_path: Path) -> None:
    source = """
        @triton.jit
        def double_kernel(x, n, scale, BLOCK: tl.constexpr):
            lanes = tl.arange(0, BLOCK)
            tl.store(x + lanes, tl.load(x + lanes, lanes < n) * scale, lanes < n)


        def entry(X, *, scale):
            double_kernel[(1,)](X, X.shape[0], scale, BLOCK=64)
            return X
    """
    params = (ir.Param("scale", DType.F32),)
    kernel = make_kernel(source, "X[N]: inout f32", params)
    x = signed((50,))
    before = x.copy()
    result = run(kernel, tmp_path, {"X": x}, {"N": 50}, {"scale": 2.5})["X"]
    np.testing.assert_array_equal(x, before)
    np.testing.assert_array_equal(result, before * np.float32(2.5))


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("tl.load(x + lanes, mask, other=0.0)", "tl.load(x + lanes)", "outside of"),
        ("tl.store(z + lanes, a + b, mask)", "tl.store(z + lanes, a + b)", "outside of"),
        ("tl.store(z + lanes, a + b, mask)", "tl.store(z + lanes - 8, a + b, mask)", "before the"),
        ("tl.store(z + lanes, a + b, mask)", "tl.store(x + lanes, a, mask)", ""),
    ],
)
def test_accesses_outside_of_a_tensor_are_found(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    if not words:  # writing to an input, with other values
        new, words = new.replace("a, mask", "a + 1, mask"), "changes its input X"
    kernel = make_kernel(ADD.replace(old, new), "X[N]: in f32; Y[N]: in f32; Z[N]: out f32")
    with pytest.raises(ToolchainError, match=words) as caught:
        run(kernel, tmp_path, {"X": signed((65,)), "Y": signed((65,))}, {"N": 65})
    assert caught.value.stage == "launch"


def test_programs_that_depend_on_their_order_are_seen(tmp_path: Path) -> None:
    source = """
        @triton.jit
        def chain_kernel(x, y, n):
            i = tl.program_id(0)
            before = tl.load(y + i - 1, i > 0, other=0.0)
            tl.store(y + i, before + tl.load(x + i))


        def entry(X, *, out=None):
            chain_kernel[(X.shape[0],)](X, out, X.shape[0])
            return out
    """
    kernel = make_kernel(source, "X[N]: in f32; Y[N]: out f32")
    x = np.ones(20, np.float32)
    results = {
        order: run(kernel, tmp_path, {"X": x}, {"N": 20}, order=order)["Y"]
        for order in ("forward", "reversed", "shuffled")
    }
    np.testing.assert_array_equal(results["forward"], np.cumsum(x))
    assert np.isnan(results["reversed"]).any()
    assert np.isnan(results["shuffled"]).any()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("a + b, mask", "tl.no_such_function(a), mask", "no_such_function"),
        ("a + b, mask", "tl.sort(a), mask", "triton_sort"),
        ("tl.arange(0, BLOCK)", "tl.arange(0, n)", "arange"),
    ],
)
def test_what_the_front_end_refuses(tmp_path: Path, old: str, new: str, words: str) -> None:
    kernel = make_kernel(ADD.replace(old, new), "X[N]: in f32; Y[N]: in f32; Z[N]: out f32")
    with pytest.raises(ToolchainError, match=words) as caught:
        require("triton_ascend").compile(kernel, tmp_path)
    assert caught.value.stage == "compile"


def test_an_abort_of_the_front_end_is_an_error_not_the_end(tmp_path: Path) -> None:
    source = """
        @triton.jit
        def combine(a, b, c, d, e, f):
            return a + d, b + e, c + f


        @triton.jit
        def three_kernel(x, y, n, BLOCK: tl.constexpr):
            v = tl.load(x + tl.arange(0, BLOCK))
            a, b, c = tl.reduce((v, v + 1, v + 2), 0, combine)
            tl.store(y, a + b + c)


        def entry(X, *, out=None):
            three_kernel[(1,)](X, out, X.shape[0], BLOCK=64)
            return out
    """
    kernel = make_kernel(source, "X[N]: in f32; Y[N]: out f32")
    with pytest.raises(ToolchainError) as caught:
        require("triton_ascend").compile(kernel, tmp_path)
    assert caught.value.stage == "compile"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("(min(7, triton.cdiv(n, 64)),)", "(70000,)", "65535"),
        ("BLOCK=64)", "BLOCK=64, WRONG=1)", "WRONG"),
        ("if n:", "if n > 1: raise ValueError('not today')", "not today"),
    ],
)
def test_launches_that_the_real_launcher_refuses(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    source = ADD.replace(old, new)
    if "not today" in new:
        source = source.replace("            add_kernel[", "        add_kernel[")
    kernel = make_kernel(source, "X[N]: in f32; Y[N]: in f32; Z[N]: out f32")
    with pytest.raises(ToolchainError, match=words) as caught:
        run(kernel, tmp_path, {"X": signed((9,)), "Y": signed((9,))}, {"N": 9})
    assert caught.value.stage == "launch"


def test_a_kernel_that_hangs_is_stopped(tmp_path: Path) -> None:
    source = """
        def entry(X, *, out=None):
            while X.shape[0] == 9:
                pass
            return out
    """
    kernel = make_kernel(source, "X[N]: in f32; Z[N]: out f32")
    toolchain = require("triton_ascend")
    artefact = toolchain.compile(kernel, tmp_path)
    with pytest.raises(ToolchainError) as caught:
        toolchain.run(artefact, {"X": signed((9,))}, {"N": 9}, {}, timeout=3)
    assert caught.value.stage == "timeout"


def test_bfloat16_rounds_to_nearest_even(tmp_path: Path) -> None:
    source = ADD.replace("a + b, mask", "a.to(tl.float32) + b.to(tl.float32), mask")
    kernel = make_kernel(source, "X[N]: in bf16; Y[N]: in bf16; Z[N]: out bf16")
    x = np.array([1.0, 1.0, 1.0, 3.0, 256.0], ml_dtypes.bfloat16)
    y = np.array([2**-8, 3 * 2**-8, 2**-9, 2**-7, 1.0], ml_dtypes.bfloat16)
    result = run(kernel, tmp_path, {"X": x, "Y": y}, {"N": 5})["Z"]
    expected = (x.astype(np.float32) + y.astype(np.float32)).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(result.view(np.uint16), expected.view(np.uint16))


# ---------------------------------------------------------------- a tool that crashes

#: It ends with a signal so many times, and is then the real one.
CRASHING = """#!/bin/sh
count="$(dirname "$(dirname "$1")")/crashes.MARK"
echo >> "$count"
if [ "$(wc -l < "$count")" -le TIMES ]; then
    kill -SEGV $$
fi
rm "$count"
exec "REAL" "$@"
"""


def linked(here: str, there: str) -> None:
    """No second copy, where the file system allows that."""
    try:
        os.link(here, there)
    except OSError:
        shutil.copy2(here, there)


def crashing_environment(folder: Path, times: int) -> Path:
    """A copy of the front end's environment, with a triton-adapter-opt that crashes."""
    place = folder / "environment"
    shutil.copytree(environment.FRONTEND.folder(), place, symlinks=True, copy_function=linked)
    (tool,) = place.glob("lib/python3*/site-packages/triton/backends/ascend/triton-adapter-opt")
    real = tool.rename(tool.with_name("the-real-one"))
    text = CRASHING.replace("TIMES", str(times)).replace("REAL", str(real))
    tool.write_text(text.replace("MARK", secrets.token_hex(8)))
    tool.chmod(0o755)
    return place


@pytest.mark.parametrize("times", [1, 99])
def test_a_crash_of_the_vendors_tool_counts_when_it_comes_again(
    tmp_path: Path, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of some kernels, one conversion in a hundred crashes, where addresses happen to fall so."""
    place = crashing_environment(tmp_path, times)
    monkeypatch.setenv("SKETCHC_ASCEND_ENV", str(place))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    kernel = make_kernel(ADD, "X[N]: in f32; Y[N]: in f32; Z[N]: out f32")
    x, y = signed((65,)), signed((65,))
    if times == 1:
        found = run(kernel, tmp_path, {"X": x, "Y": y}, {"N": 65})["Z"]
        np.testing.assert_array_equal(found, x + y)
        return
    with pytest.raises(ToolchainError, match="triton-adapter-opt ended with status -11") as caught:
        run(kernel, tmp_path, {"X": x, "Y": y}, {"N": 65})
    assert caught.value.stage == "compile"
