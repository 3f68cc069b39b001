"""The C++ target end to end: examples at ragged sizes, every feature, sanitizers, the module."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from cpp_cases import EXAMPLES, NAMES, check, example, inputs, lower, reference
from example_sizes import params_for, sizes_for
from toolchains import require
from triton_sketches import SKETCHES

from sketchc import ir
from sketchc.lowering.kernel import Kernel
from sketchc.runtime.frontends.sizes import refusal
from sketchc.runtime.toolchains.base import ToolchainError
from sketchc.runtime.toolchains.cpp import FLAGS, LIBRARIES, TOOLCHAIN, find_compiler
from sketchc.types import DType

require("cpp")

F = torch.nn.functional
GRID = '@llm_hint("parallel", "grididx")'

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


@pytest.mark.parametrize("name", list(SKETCHES))
def test_features_equal_the_interpreter(name: str, tmp_path: Path) -> None:
    text, symbols, params = SKETCHES[name]
    check(text, tmp_path, symbols, params)


def kernel_for(text: str, folder: Path) -> tuple[Kernel, Any]:
    _, kernel = lower(text)
    return kernel, TOOLCHAIN.load(TOOLCHAIN.compile(kernel, folder))


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
    _, native = kernel_for(example("rms"), tmp_path)
    tensors = {name: np.zeros((0, 0, 0, 0), np.float32) for name in ("X", "Y")}
    bound = native.bind(tensors, dict.fromkeys(("B", "F", "D1", "D2"), 0), {"eps": 0.0})
    bound._arguments[5].value = 2**62  # D2: more memory than there is
    assert bound() == -1


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


# ---------------------------------------------------------------- sanitizers


#: One example for each way in which code touches memory.
SANITIZED = (
    *("add", "batched_matmul", "layer_norm", "matmul_bias_gelu", "online_softmax", "rms"),
    *("sum_middle", "conv2d", "causal_attention", "cumsum_two_phase", "gather", "histogram"),
    *("masked_select", "scatter_add", "sort_rows", "topk", "unpack_int4", "heat"),
)
_C_TYPES = {
    DType.F64: "double",
    DType.F32: "float",
    DType.F16: "uint16_t",
    DType.BF16: "uint16_t",
    DType.I64: "int64_t",
    DType.I32: "int32_t",
    DType.I16: "int16_t",
    DType.I8: "int8_t",
    DType.U8: "uint8_t",
    DType.U32: "uint32_t",
    DType.BOOL: "bool",
}


@pytest.mark.parametrize("name", SANITIZED)
def test_sanitizers_find_nothing(name: str, tmp_path: Path) -> None:
    """A program calls the kernel at ragged sizes on exact heap blocks, under ASan and UBSan."""
    _, kernel = lower(example(name), TILES.get(name))
    params = params_for(kernel.sketch, PARAMS.get(name))
    cases = sizes(kernel, params)
    (tmp_path / "kernel.cpp").write_text(kernel.source + _main(kernel, cases, params))
    optimise = [flag for flag in FLAGS if flag not in ("-shared", "-fPIC", "-O3", "-fwrapv")]
    command = [str(find_compiler()), *optimise, "-O1", "-g", "-fsanitize=address,undefined"]
    command += ["-fno-sanitize-recover=all", str(tmp_path / "kernel.cpp"), *LIBRARIES]
    command += ["-o", str(tmp_path / "program")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ran = subprocess.run(
        [str(tmp_path / "program")],
        capture_output=True,
        text=True,
        check=False,
        env={"OMP_NUM_THREADS": "2", "ASAN_OPTIONS": "detect_leaks=1"},
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "clean\n"


def _main(kernel: Kernel, cases: list[dict[str, int]], params: dict[str, Any]) -> str:
    """A C++ main that calls the kernel once for each case, all elements 1."""
    from sketchc.evaluate import evaluate, host_values

    lines = [
        *("#include <algorithm>", "#include <cstdint>", "#include <cstdio>", "#include <memory>"),
        "template <class T> std::unique_ptr<T[]> ones(long count)",
        "{ std::unique_ptr<T[]> all(new T[count]); std::fill_n(all.get(), count, T(1));",
        "  return all; }",
        *("int main()", "{"),
    ]
    for number, symbols in enumerate(cases):
        values = host_values(kernel.sketch, symbols, params)
        arguments = []
        for tensor in kernel.sketch.tensors:
            if tensor.role is ir.Role.WORKSPACE:
                continue
            count = int(np.prod([int(evaluate(e, values)) for e in tensor.extents]))
            kind = _C_TYPES[tensor.dtype]
            lines.append(f"    auto {tensor.name}_{number} = ones<{kind}>({count});")
            arguments.append(f"{tensor.name}_{number}.get()")
        arguments += [str(symbols[symbol.name]) for symbol in kernel.sketch.symbols]
        for param in kernel.sketch.params:
            floats = param.dtype.is_float
            arguments.append(repr(float(values[param.name]) if floats else int(values[param.name])))
        for tensor in kernel.sketch.tensors:
            for extent, free in zip(tensor.extents, tensor.broadcast, strict=False):
                arguments += [str(int(evaluate(extent, values)))] if free else []
        lines.append(f"    if ({kernel.entry}({', '.join(arguments)}) != 0) return 1;")
    return "\n".join([*lines, '    std::puts("clean");', "}", ""])


# ---------------------------------------------------------------- the importable module


def load_module(path: Path, name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(name, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_module_is_a_drop_in(tmp_path: Path) -> None:
    _, kernel = lower(example("layer_norm"))
    path = TOOLCHAIN.build_module(kernel, tmp_path)
    module = load_module(path, "layer_norm_module")
    x, weight, bias = torch.randn(5, 37), torch.randn(37), torch.randn(37)
    wanted = F.layer_norm(x, (37,), weight, bias, 1e-3)
    from_torch = module.layer_norm(x, weight, bias, eps=1e-3)
    assert isinstance(from_torch, torch.Tensor)
    torch.testing.assert_close(from_torch, wanted)
    from_numpy = module.layer_norm(x.numpy(), weight.numpy(), bias.numpy(), eps=1e-3)
    assert isinstance(from_numpy, np.ndarray)
    np.testing.assert_array_equal(from_numpy, from_torch.numpy())
    strided = torch.randn(37, 5).T
    torch.testing.assert_close(
        module.layer_norm(strided, weight, bias), F.layer_norm(strided, (37,), weight, bias)
    )
    with pytest.raises(ValueError, match="WEIGHT has extent 36 on axis 0, expected N = 37"):
        module.layer_norm(x, weight[1:], bias)
    with pytest.raises(ValueError, match="X must be float32, not float64"):
        module.layer_norm(x.double(), weight, bias)
    with pytest.raises(ValueError, match="X must have 2 dimensions, not 1"):
        module.layer_norm(x[0], weight, bias)


def test_module_with_inout_bfloat16_and_requires(tmp_path: Path) -> None:
    text = f"""sketch update {{
    symbols: M, N;
    params: scale: f32 = 2.0; count: i64;
    tensors: X[M, N]: inout bf16; S[N]: in bf16; Y[M, N]: out bf16;
    constexpr: T = 16;
    require: count > 0;
    {GRID}
    for i in range(M):
        {GRID}
        for j in range(ceil(N, T)):
            x = alloc([T])
            s = alloc([T])
            load(X[i, j*T:(j+1)*T] -> x)
            load(S[j*T:(j+1)*T] -> s)
            store(x -> Y[i, j*T:(j+1)*T])
            fma(x, scale, s, x)
            store(x -> X[i, j*T:(j+1)*T])
}}"""
    _, kernel = lower(text)
    module = load_module(TOOLCHAIN.build_module(kernel, tmp_path), "update_module")
    original = torch.randn(3, 37).bfloat16()
    shift = torch.randn(37).bfloat16()
    x = original.clone()
    result, copy = module.update(x, shift, scale=3.0, count=1)
    wanted = (original.double() * 3.0 + shift.double()).bfloat16()
    assert torch.equal(copy, original)
    assert torch.equal(x, wanted)
    assert result is x
    with pytest.raises(ValueError, match="count > 0"):
        module.update(x, shift, count=0)
    with pytest.raises(ValueError, match="must not overlap"):
        module.update(x, x[0], count=1)
    with pytest.raises(TypeError):
        module.update(x, shift)


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
