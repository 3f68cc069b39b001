"""The importable module that wraps a C++ kernel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from cpp_cases import example, load_module, lower
from toolchains import require

from sketchc.base.types import DType
from sketchc.runtime.toolchains.cpp.toolchain import TOOLCHAIN

require("cpp")

F = torch.nn.functional
GRID = '@llm_hint("parallel", "grididx")'


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
    swapped = x.numpy().astype(">f4")
    with pytest.raises(ValueError, match="X must be float32, not >f4"):
        module.layer_norm(swapped, weight.numpy(), bias.numpy())
    with pytest.raises(ValueError, match="Y must be float32, not >f4"):
        module.layer_norm(x.numpy(), weight.numpy(), bias.numpy(), out=swapped)
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
    numbers = np.arange(3 * 37).reshape(3, 37).astype(ml_dtypes.bfloat16)
    every_other = np.repeat(numbers, 2, axis=1)[:, ::2]
    result, copy = module.update(every_other, np.zeros(37, ml_dtypes.bfloat16), count=1)
    assert result is every_other
    np.testing.assert_array_equal(result, numbers * np.asarray(2, ml_dtypes.bfloat16))
    np.testing.assert_array_equal(copy, numbers)
    numbers.flags.writeable = False
    with pytest.raises(ValueError, match="X is read-only"):
        module.update(numbers, np.zeros(37, ml_dtypes.bfloat16), count=1)


class Other(np.ndarray):  # type: ignore[type-arg]
    """Arrays that the module does not read at once, but asks NumPy about."""


@pytest.fixture(scope="module")
def gather(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """`Y[i] = X[i] + W[i]` for two types of elements, with `SUM` updated in place."""
    text = f"""sketch both {{
    symbols: M, N;
    params: scale: f32 = 1.0;
    tensors: X[M, N]: in f32; W[M]: in i64; SUM[M, N]: inout f32; Y[M, N]: out f32; V[M]: out i64;
    {GRID}
    for i in range(M):
        x = alloc([N])
        total = alloc([N])
        w = alloc([1])
        load(X[i, 0:N] -> x)
        load(SUM[i, 0:N] -> total)
        load(W[i:i+1] -> w)
        fma(x, scale, total, total)
        store(total -> SUM[i, 0:N])
        store(x -> Y[i, 0:N])
        store(w -> V[i:i+1])
}}"""
    _, kernel = lower(text)
    path = TOOLCHAIN.build_module(kernel, tmp_path_factory.mktemp("module"))
    found: Callable[..., Any] = load_module(path, "both_module").both
    return found


def arguments(rows: int = 3, columns: int = 5) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "X": rng.standard_normal((rows, columns), np.float32),
        "W": rng.integers(-9, 9, rows),
        "SUM": np.ones((rows, columns), np.float32),
        "Y": np.zeros((rows, columns), np.float32),
        "V": np.zeros(rows, np.int64),
    }


#: Faults of one argument, each made of what would be right.
FAULTS: dict[str, Callable[[Any], Any]] = {
    "dtype": lambda given: given.astype(np.float16),
    "rank": lambda given: given[None],
    "extent": lambda given: np.repeat(given, 2, axis=-1),
    "text": lambda given: np.array(["a"] * len(given)),
    "number": lambda given: 3,
    "complex": lambda given: given.astype(np.complex64),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", ["X", "W", "SUM", "Y", "V"])
@pytest.mark.parametrize("torch_too", [False, True])
def test_faults_are_refused_alike(
    gather: Callable[..., Any], fault: str, name: str, torch_too: bool
) -> None:
    """Arguments that are read at once are refused with the words for all others."""
    said = []
    for usual in (True, False):
        given = arguments()
        given[name] = FAULTS[fault](given[name])
        if not usual:
            given = {
                key: value.view(Other) if isinstance(value, np.ndarray) else value
                for key, value in given.items()
            }
        elif torch_too and fault != "text":
            given = {
                key: torch.from_numpy(value) if isinstance(value, np.ndarray) else value
                for key, value in given.items()
            }
        out = (given.pop("Y"), given.pop("V"))
        with pytest.raises(ValueError, match=rf"\b{name}\b|N = ") as caught:
            gather(*given.values(), out=out)
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_memory_of_any_layout(gather: Callable[..., Any]) -> None:
    """Views that are not contiguous, run backwards, or lie side by side; read-only ones."""
    for wrap in (np.asarray, lambda value: value.view(Other), torch.from_numpy):
        given = arguments(4, 6)
        both = np.zeros((4, 12), np.float32)  # Y and SUM, column by column
        backwards = np.ascontiguousarray(given["W"][::-1])[::-1]
        places = {"SUM": both[:, ::2], "Y": np.zeros((4, 6), np.float32)}
        places["SUM"][...] = 1
        w = given["W"] if wrap is torch.from_numpy else backwards  # torch has no such steps
        out = (wrap(places["Y"]), wrap(given["V"]))
        gather(wrap(given["X"]), wrap(w), wrap(places["SUM"]), scale=2, out=out)
        np.testing.assert_array_equal(places["Y"], given["X"])
        np.testing.assert_array_equal(given["V"], given["W"])
        np.testing.assert_array_equal(places["SUM"], given["X"] * np.float32(2) + np.float32(1))
        np.testing.assert_array_equal(both[:, 1::2], 0)


def test_overlaps_by_the_byte(gather: Callable[..., Any]) -> None:
    for wrap in (np.asarray, lambda value: value.view(Other), torch.from_numpy):
        given, rows = arguments(), np.zeros((7, 5), np.float32)
        out = (wrap(rows[3:6]), wrap(given["V"]))
        gather(wrap(rows[:3]), wrap(given["W"]), wrap(given["SUM"]), out=out)
        for first in (1, 2, 4):
            out = (wrap(rows[first : first + 3]), wrap(given["V"]))
            with pytest.raises(ValueError, match="Y is written and must not overlap X"):
                gather(wrap(rows[2:5]), wrap(given["W"]), wrap(given["SUM"]), out=out)
        with pytest.raises(ValueError, match="SUM is written and must not overlap X"):
            gather(wrap(rows[:3]), wrap(given["W"]), wrap(rows[2:5]))
        wide = np.zeros((3, 10), np.float32)
        with pytest.raises(ValueError, match="SUM is written and must not overlap X"):
            gather(wrap(wide[:, :5]), wrap(given["W"]), wrap(wide[:, 5:]))
        empty = wrap(rows[:0])
        gather(empty, wrap(given["W"][:0]), empty)


def test_what_has_no_memory_or_may_not_be_written(gather: Callable[..., Any]) -> None:
    given = arguments()
    x, w, total = (given[name] for name in ("X", "W", "SUM"))
    tensors = [torch.from_numpy(each) for each in (x, w, total)]
    gather(*tensors)  # from here on tensors are read at once
    read_only = total.copy()
    read_only.flags.writeable = False
    for kind in (np.asarray, lambda value: value.view(Other)):
        with pytest.raises(ValueError, match="SUM is read-only"):
            gather(x, w, kind(read_only))
        with pytest.raises(ValueError, match="Y is read-only"):
            gather(x, w, total, out=(kind(read_only), given["V"]))
    result, *_ = gather(torch.nn.Parameter(tensors[0]), *tensors[1:])
    assert result is tensors[2]
    with pytest.raises(TypeError):
        gather(tensors[0].to("meta"), *tensors[1:])
    one = torch.ones(1, 1)
    with pytest.raises(RuntimeError, match="negative bit"):
        gather(torch.complex(one, one).conj().imag, torch.ones(1).long(), one)
    with pytest.raises((RuntimeError, TypeError, ValueError)):
        gather(tensors[0].to_sparse(), *tensors[1:])
    with pytest.raises((RuntimeError, TypeError, ValueError)):
        torch.func.vmap(lambda each: gather(each, *tensors[1:])[1])(tensors[0][None])


@pytest.mark.parametrize(
    "dtype", [dtype for dtype in DType if dtype is not DType.BF16], ids=lambda dtype: dtype.value
)
def test_elements_of_every_type(dtype: DType, tmp_path: Path) -> None:
    """Arrays and tensors, read at once (from the second call on) or not."""
    text = f"""sketch copied {{
    symbols: N;
    tensors: X[N]: in {dtype.value}; Y[N]: out {dtype.value};
    {GRID}
    for i in range(ceil(N, 16)):
        x = alloc([16])
        load(X[i*16:(i+1)*16] -> x)
        store(x -> Y[i*16:(i+1)*16])
}}"""
    _, kernel = lower(text)
    module = load_module(TOOLCHAIN.build_module(kernel, tmp_path), "copied_module")
    x = np.arange(37).astype(dtype.numpy_name)
    for _ in range(3):
        for given in (x, x.view(Other), x[::-1][::-1]):
            found = module.copied(given)
            assert found.dtype == x.dtype
            np.testing.assert_array_equal(found, x)
        tensor = torch.from_numpy(x)
        out = torch.zeros_like(tensor)
        assert torch.equal(module.copied(tensor), tensor)
        assert module.copied(tensor, out=out) is out
        assert torch.equal(out, tensor)
