"""The C++ target end to end: examples at ragged sizes, every feature, the toolchain."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cpp_cases import (
    EXAMPLES,
    NAMES,
    PARAMS,
    TILES,
    check,
    example,
    inputs,
    load_module,
    lower,
    reference,
    sizes,
)
from example_sizes import params_for
from native_kernel import NativeKernel
from toolchains import require
from triton_sketches import SKETCHES

from sketchc.ir import nodes as ir
from sketchc.lowering.kernel import Kernel
from sketchc.runtime.toolchains.base import ToolchainError
from sketchc.runtime.toolchains.cpp.toolchain import TOOLCHAIN
from sketchc.runtime.toolchains.native.session import signature

require("cpp")

F = torch.nn.functional
GRID = '@llm_hint("parallel", "grididx")'


@pytest.mark.sweep
@pytest.mark.parametrize("name", NAMES)
def test_examples_equal_the_interpreter(name: str, tmp_path: Path) -> None:
    _, kernel = lower(example(name), TILES.get(name))
    params = params_for(kernel.sketch, PARAMS.get(name))
    check(
        example(name),
        tmp_path,
        sizes(kernel, params),
        params,
        ulps=256.0,
        constants=TILES.get(name),
    )


@pytest.mark.sweep
@pytest.mark.parametrize("name", list(SKETCHES))
def test_features_equal_the_interpreter(name: str, tmp_path: Path) -> None:
    text, symbols, params = SKETCHES[name]
    check(text, tmp_path, symbols, params)


def kernel_for(text: str, folder: Path) -> tuple[Kernel, Any]:
    _, kernel = lower(text)
    return kernel, NativeKernel(TOOLCHAIN.compile(kernel, folder))


# ---------------------------------------------------------------- special values


def test_special_values_of_the_math_functions(tmp_path: Path) -> None:
    """exp, sigmoid, tanh, erf, gelu and log at infinities, NaN, denormals and large arguments."""
    operations = ("exp", "tanh", "erf", "sigmoid", "log", "sqrt", "softplus")
    body = "\n        ".join(
        f"{op}(a, y)\n        store(y -> Y[{row}, i*T:(i+1)*T])"
        for row, op in enumerate(operations)
    )
    text = f"""sketch special {{
    symbols: N;
    tensors: A[N]: in f32; Y[{len(operations)}, N]: out f32;
    constexpr: T = 16;
    {GRID}
    for i in range(ceil(N, T)):
        a = alloc([T])
        y = alloc([T])
        load(A[i*T:(i+1)*T] -> a)
        {body}
}}"""
    _, native = kernel_for(text, tmp_path)
    special = [0.0, -0.0, 1e-45, -1e-40, 1e-30, np.inf, -np.inf, np.nan, 88.7, 88.73, -87.4]
    special += [-103.9, -104.5, 1e38, -1e38, 3.0, -3.0, 0.5]
    a = np.array(special + list(np.linspace(-20, 20, 1001)), np.float32)
    y = np.full((len(operations), a.size), np.nan, np.float32)
    assert native({"A": a, "Y": y}, {"N": a.size}) == 0
    x = torch.tensor(a, dtype=torch.float64)
    expected = [torch.exp(x), torch.tanh(x), torch.erf(x), torch.sigmoid(x), torch.log(x)]
    expected += [torch.sqrt(x), F.softplus(x, threshold=30)]
    for row, (name, want) in enumerate(zip(operations, expected, strict=True)):
        exact = want.numpy()
        with np.errstate(over="ignore"):
            rounded = exact.astype(np.float32)
        spacing = np.spacing(np.abs(np.where(np.isfinite(rounded), rounded, 1.0)))
        with np.errstate(invalid="ignore"):
            near = np.abs(y[row].astype(np.float64) - exact) <= 4.0 * spacing
        same = near | (y[row] == rounded) | (np.isnan(y[row]) & np.isnan(rounded))
        assert same.all(), (name, a[~same][:5], y[row][~same][:5], exact[~same][:5])


def test_gelu_of_large_numbers_is_what_relu_gives(tmp_path: Path) -> None:
    """An erf that is off by one bit from -1 would be multiplied by them."""
    text = f"""sketch gelus {{
    symbols: N;
    tensors: A[N]: in f32; Y[N]: out f32;
    constexpr: T = 16;
    {GRID}
    for i in range(ceil(N, T)):
        a = alloc([T])
        y = alloc([T])
        load(A[i*T:(i+1)*T] -> a)
        gelu(a, y)
        store(y -> Y[i*T:(i+1)*T])
}}"""
    _, native = kernel_for(text, tmp_path)
    sizes = [*np.linspace(5.55, 9, 2001), *np.geomspace(9, 3e38, 500)]
    a = np.array([sign * size for sign in (1, -1) for size in sizes], np.float32)
    y = np.full_like(a, np.nan)
    assert native({"A": a, "Y": y}, {"N": a.size}) == 0
    np.testing.assert_array_equal(y, np.maximum(a, 0))
    a = np.linspace(-5.55, 5.55, 20_001, dtype=np.float32)
    y = np.full_like(a, np.nan)
    assert native({"A": a, "Y": y}, {"N": a.size}) == 0
    exact = F.gelu(torch.tensor(a, dtype=torch.float64)).numpy()
    assert (np.abs(y - exact) <= np.abs(a) * 4 * np.finfo(np.float32).eps).all()


@pytest.mark.parametrize("size", [1, 5, 16, 33, 100])
def test_extrema_propagate_nan(size: int, tmp_path: Path) -> None:
    text = f"""sketch extrema {{
    symbols: M, N <= 128;
    tensors: A[M, N]: in f32; HIGH[M]: out f32; LOW[M]: out f32;
    {GRID}
    for i in range(M):
        a = alloc([N])
        high = alloc([1])
        low = alloc([1])
        load(A[i, 0:N] -> a)
        reduce_max(a, 0, high)
        reduce_min(a, 0, low)
        store(high -> HIGH[i:i+1])
        store(low -> LOW[i:i+1])
}}"""
    _, native = kernel_for(text, tmp_path)
    a = np.random.default_rng(0).standard_normal((size + 2, size)).astype(np.float32)
    a[np.arange(size), np.arange(size)] = np.nan  # one NaN at each place, then rows without
    a[size, 0] = np.inf
    tensors = {
        "A": a,
        "HIGH": np.zeros(size + 2, np.float32),
        "LOW": np.zeros(size + 2, np.float32),
    }
    assert native(tensors, {"M": size + 2, "N": size}) == 0
    np.testing.assert_array_equal(tensors["HIGH"], a.max(1))
    np.testing.assert_array_equal(tensors["LOW"], a.min(1))


@pytest.mark.parametrize("length", [1000, 100_003])
def test_long_sums_stay_accurate(length: int, tmp_path: Path) -> None:
    """Constant and one-sided rows: within 8 * sqrt(K) spacings, where naive sums drift."""
    text = f"""sketch sums {{
    symbols: M, N;
    tensors: A[M, N]: in f32; Y[M]: out f32;
    {GRID}
    for i in range(M):
        a = alloc([N])
        y = alloc([1])
        load(A[i, 0:N] -> a)
        reduce_sum(a, 0, y)
        store(y -> Y[i:i+1])
}}"""
    _, native = kernel_for(text, tmp_path)
    rng = np.random.default_rng(0)
    a = np.stack([np.full(length, 0.1), rng.random(length), np.full(length, 1 / 3)])
    a = a.astype(np.float32)
    y = np.zeros(3, np.float32)
    assert native({"A": a, "Y": y}, {"M": 3, "N": length}) == 0
    exact = a.astype(np.float64).sum(1)
    assert (np.abs(y - exact) <= 8 * np.sqrt(length) * 2.0**-24 * exact).all()


# ---------------------------------------------------------------- memory order


def test_in_place_and_read_after_write(tmp_path: Path) -> None:
    """In-place updates, and a load that must see an earlier store of the same tensor."""
    text = f"""sketch order {{
    symbols: M, N <= 64;
    tensors: X[M, N]: inout f32; Y[M, N]: out f32;
    {GRID}
    for i in range(M):
        a = alloc([N])
        b = alloc([N])
        load(X[i, 0:N] -> a)
        add(a, 1, b)
        store(b -> X[i, 0:N])
        load(X[i, 0:N] -> b)
        mul(a, b, b)
        store(b -> Y[i, 0:N])
}}"""
    check(text, tmp_path, [{"M": 3, "N": 1}, {"M": 5, "N": 37}])


# ---------------------------------------------------------------- toolchain


def test_run_in_a_worker_leaves_inputs_alone(tmp_path: Path) -> None:
    kernel = check(example("add"), tmp_path, [])
    artefact = TOOLCHAIN.compile(kernel, tmp_path)
    symbols = {"M": 5, "N": 37}
    tensors = inputs(kernel.sketch, symbols, {})
    before = {name: array.copy() for name, array in tensors.items()}
    results = TOOLCHAIN.run(artefact, tensors, symbols, {})
    np.testing.assert_array_equal(results["Y"], reference(kernel.sketch, tensors, symbols, {})["Y"])
    for name, array in tensors.items():
        np.testing.assert_array_equal(array, before[name])


def test_failed_requires_and_wrong_arrays_are_launch_errors(tmp_path: Path) -> None:
    text = f"""sketch even {{
    symbols: N;
    tensors: X[N]: in f32; Y[N]: out f32;
    constexpr: T = 16;
    require: N % 2 == 0;
    {GRID}
    for i in range(ceil(N, T)):
        x = alloc([T])
        load(X[i*T:(i+1)*T] -> x)
        store(x -> Y[i*T:(i+1)*T])
}}"""
    _, kernel = lower(text)
    artefact = TOOLCHAIN.compile(kernel, tmp_path)
    odd = {"X": np.zeros(3, np.float32)}
    with pytest.raises(ToolchainError, match=r"N ?% ?2 == 0") as caught:
        TOOLCHAIN.run(artefact, odd, {"N": 3}, {})
    assert caught.value.stage == "launch"
    with pytest.raises(ToolchainError, match="must be float32") as caught:
        TOOLCHAIN.run(artefact, {"X": np.zeros(4)}, {"N": 4}, {})
    assert caught.value.stage == "launch"


def test_scratch_that_cannot_be_had_is_a_status(tmp_path: Path) -> None:
    unbounded = re.sub(r"D2 <= \d+", "D2", example("rms"))
    kernel, native = kernel_for(unbounded, tmp_path)
    tensors = {name: np.zeros((0, 0, 0, 0), np.float32) for name in ("X", "Y")}
    request = signature(kernel, dict.fromkeys(("B", "F", "D1", "D2"), 0), {"eps": 0.0}, tensors)
    assert request["scalars"][3] == ["i", 0]
    request["scalars"][3] = ["i", 2**46]  # D2: more memory than there is
    assert native.requested(request, tensors) == -1


def test_compiler_errors_carry_the_log(tmp_path: Path) -> None:
    import attrs

    _, kernel = lower(example("relu"))
    broken = attrs.evolve(kernel, source=kernel.source.replace("return 0;", "return nothing;"))
    with pytest.raises(ToolchainError, match="nothing") as caught:
        TOOLCHAIN.compile(broken, tmp_path)
    assert caught.value.stage == "compile"
    assert "nothing" in caught.value.log


def test_second_build_comes_from_the_cache(tmp_path: Path) -> None:
    _, kernel = lower(example("gelu"))
    TOOLCHAIN.compile(kernel, tmp_path / "first")
    again = TOOLCHAIN.compile(kernel, tmp_path / "second")
    assert again.details["cached"]
    assert again.library is not None
    assert again.library.read_bytes() == (tmp_path / "first" / f"{kernel.name}.so").read_bytes()


def test_examples_are_where_they_should_be() -> None:
    assert EXAMPLES.is_dir()
    assert len(NAMES) >= 11
    roles = {tensor.role for tensor in lower(example("relu"))[1].sketch.tensors}
    assert roles == {ir.Role.IN, ir.Role.OUT}


# ---------------------------------------------------------------- extents of 1, phases, layouts

_BROADCAST = f"""sketch broadcast {{
    symbols: M, N;
    tensors: X[M, N]: in f32; Z[M|1, N|1]: in f32; Y[M, N]: out f32;
    constexpr: T = 16;
    {GRID}
    for i in range(M):
        {GRID}
        for j in range(ceil(N, T)):
            x = alloc([T])
            z = alloc([T])
            load(X[i, j*T:(j+1)*T] -> x)
            load(Z[i, j*T:(j+1)*T] -> z)
            add(x, z, x)
            store(x -> Y[i, j*T:(j+1)*T])
}}"""

_PHASES = f"""sketch phases {{
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[M]: out f32 = 0;
    workspace: P[M, N]: f32;
    constexpr: T = 16;
    {GRID}
    for i in range(M):
        {GRID}
        for j in range(ceil(N, T)):
            x = alloc([T])
            load(X[i, j*T:(j+1)*T] -> x)
            mul(x, x, x)
            store(x -> P[i, j*T:(j+1)*T])
    {GRID}
    for i in range(M):
        total = alloc([1], init=0)
        for j in range(ceil(N, T)):
            x = alloc([T])
            part = alloc([1])
            load(P[i, j*T:(j+1)*T] -> x)
            reduce_sum(x, 0, part)
            add(total, part, total)
        store(total -> Y[i:i+1])
}}"""

_TRANSPOSE = f"""sketch swapped {{
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[N, M]: out f32;
    constexpr: T = 16, S = 8;
    {GRID}
    for i in range(ceil(M, T)):
        {GRID}
        for j in range(ceil(N, S)):
            x = alloc([T, S])
            y = alloc([S, T])
            load(X[i*T:(i+1)*T, j*S:(j+1)*S] -> x)
            transpose(x, y)
            store(y -> Y[j*S:(j+1)*S, i*T:(i+1)*T])
}}"""

_CAUSAL = f"""sketch causal {{
    symbols: M, N <= 64;
    tensors: X[M, N]: in f32; Y[M, N]: out f32;
    constexpr: T = 8;
    {GRID}
    for i in range(ceil(M, T)):
        r = i*T + iota(T)
        c = iota(N)
        x = alloc([T, N])
        load(X[i*T:(i+1)*T, 0:N] -> x)
        where(c[None, :] <= r[:, None], x, 0.0, x)
        store(x -> Y[i*T:(i+1)*T, 0:N])
}}"""


@pytest.mark.parametrize("text", [_PHASES, _TRANSPOSE, _CAUSAL, _BROADCAST])
def test_layouts_and_phases(text: str, tmp_path: Path) -> None:
    check(text, tmp_path, [{"M": 17, "N": 9}, {"M": 5, "N": 33}, {"M": 1, "N": 1}])


@pytest.mark.sweep
@pytest.mark.parametrize("shape", [(1, 37), (5, 1), (1, 1)])
def test_extents_of_one_repeat(shape: tuple[int, int], tmp_path: Path) -> None:
    kernel, native = kernel_for(_BROADCAST, tmp_path)
    x = np.random.default_rng(0).standard_normal((5, 37)).astype(np.float32)
    z = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    y = np.full_like(x, np.nan)
    assert native({"X": x, "Z": z, "Y": y}, {"M": 5, "N": 37}) == 0
    np.testing.assert_array_equal(y, x + z)
    module = load_module(TOOLCHAIN.build_module(kernel, tmp_path), "broadcast_module")
    np.testing.assert_array_equal(module.broadcast(x, z), x + z)
