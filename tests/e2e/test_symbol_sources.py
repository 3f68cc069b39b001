"""Sizes that launches solve from shapes, or that no given input has: in the interpreter, the Triton
wrapper, and the module around a C++ kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
import torch
from cpp_cases import load_module
from hypothesis import given
from hypothesis import strategies as st
from proof_cases import elaborated
from toolchains import require
from triton_cases import lower

from sketchc.base.diagnostics import Source, UsageError
from sketchc.checker.api import check
from sketchc.interpreter.api import interpret
from sketchc.launch.inputs import solve_symbols
from sketchc.runtime.cases.binding import bind_symbols
from sketchc.runtime.toolchains.cpp.toolchain import TOOLCHAIN

HALVES = """sketch halves {
    symbols: N, K, P;
    tensors: X[2*N + 1]: in f32; LONG[P + K]: in f32; W[K]: in f32; Y[N]: out f32; Z[P]: out f32;

    @llm_hint("parallel", "grididx")
    for i in range(0, N, 4):
        x = alloc([4])
        load(X[2*i+1:2*(i+4)+1:2] -> x)
        store(x -> Y[i:i+4])
    @llm_hint("parallel", "grididx")
    for i in range(0, P, 4):
        x = alloc([4])
        load(LONG[i:i+4] -> x)
        store(x -> Z[i:i+4])
}
"""
OPTIONAL = """sketch shifted {
    symbols: N, E, H;
    tensors: X[N]: in f32; A[E, 3*H]: in f32?; B[E]: in f32?; Y[N]: out f32; SIZES[2]: out i64;

    @llm_hint("parallel", "grididx")
    for i in range(0, N, 4):
        x = alloc([4])
        load(X[i:i+4] -> x)
        store(x -> Y[i:i+4])
    @llm_hint("parallel", "grididx")
    for i in range(1):
        e = alloc([1], i64)
        fill(E, e)
        store(e -> SIZES[0])
        fill(H, e)
        store(e -> SIZES[1])
}
"""
Call = Callable[..., Any]


def zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(shape)


@pytest.fixture(scope="module", params=["cpp", "triton_cuda"])
def call(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Call:
    """The importable function of a sketch on a target, by text."""
    require(request.param)

    def made(text: str) -> Call:
        _, kernel = lower(text, request.param)
        folder = tmp_path_factory.mktemp(kernel.name)
        if request.param == "cpp":
            path = TOOLCHAIN.build_module(kernel, folder)
            module = load_module(path, f"{kernel.name}_module")
            return cast(Call, getattr(module, kernel.name))
        path = folder / f"{kernel.name}_triton.py"
        path.write_text(kernel.source, "utf-8")
        return cast(Call, getattr(load_module(path, path.stem), kernel.name))

    return made


@pytest.mark.parametrize(
    ("x", "long", "w"), [(4, 5, 2), (0, 5, 2), (5, 1, 2), (2, 0, 1)], ids=lambda n: str(n)
)
def test_a_shape_that_no_size_gives_is_refused(call: Call, x: int, long: int, w: int) -> None:
    with pytest.raises(ValueError, match=r"size|extent|shape|axis|needs N >= 0 and P >= 0"):
        call(HALVES)(zeros(x), zeros(long), zeros(w))


def test_a_shape_that_no_size_gives_is_refused_in_the_interpreter() -> None:
    sketch = elaborated(HALVES)
    shapes = {"X": 7, "LONG": 5, "W": 2}
    fitting = {name: np.zeros(size, np.float32) for name, size in shapes.items()}
    assert interpret(sketch, fitting).symbols == {"N": 3, "K": 2, "P": 3}
    for name, size in (("X", 4), ("X", 0), ("LONG", 1)):
        with pytest.raises(UsageError, match=r"and no [NP] gives"):
            interpret(sketch, fitting | {name: np.zeros(size, np.float32)})
    with pytest.raises(UsageError, match="axis 0 of X is 8, and no N gives 2"):
        bind_symbols(sketch, {"X": (8,), "LONG": (3,), "W": (1,)})


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_solving_is_the_inverse_of_shapes(n: int, k: int, p: int) -> None:
    shapes = {"X": (2 * n + 1,), "LONG": (p + k,), "W": (k,)}
    wanted = {"N": n, "K": k, "P": p}
    assert solve_symbols(elaborated(HALVES), shapes, {}) == wanted
    assert bind_symbols(elaborated(HALVES), shapes) == wanted


@pytest.mark.parametrize(
    ("a", "b", "sizes"),
    [(None, None, (0, 0)), ((5, 6), None, (5, 2)), (None, 4, (4, 0)), ((3, 0), 3, (3, 0))],
    ids=["none", "first", "second", "both"],
)
def test_sizes_of_inputs_that_are_absent_are_0(
    a: tuple[int, int] | None, b: int | None, sizes: tuple[int, int]
) -> None:
    sketch = elaborated(OPTIONAL)
    tensors = {
        "X": np.zeros(3, np.float32),
        "A": None if a is None else np.zeros(a, np.float32),
        "B": None if b is None else np.zeros(b, np.float32),
    }
    found = interpret(sketch, tensors, {"E": 9, "H": 9} if a is None and b is None else {})
    assert tuple(found.outputs["SIZES"]) == sizes
    shapes = {name: array.shape for name, array in tensors.items() if array is not None}
    symbols = bind_symbols(sketch, shapes)
    assert (symbols["E"], symbols["H"]) == sizes


def test_two_optional_inputs_agree(call: Call) -> None:
    shifted = call(OPTIONAL)
    with pytest.raises(ValueError, match=r"B|E"):
        shifted(zeros(3), zeros(5, 6), zeros(4))
    with pytest.raises(ValueError, match=r"A|H"):
        shifted(zeros(3), zeros(5, 7))


@pytest.mark.parametrize(
    "extents", ["X[N*K]: in f32", "X[N + K]: in f32", "X[N//2]: in f32", "X[8 - N]: in f32"]
)
def test_what_no_shape_says_is_refused(extents: str) -> None:
    text = f"""sketch lost {{
    symbols: N, K;
    tensors: {extents}; W[N|1]: in f32; Y[N]: out f32;

    @llm_hint("parallel", "grididx")
    for i in range(N):
        y = alloc([1], f32, init=0)
        store(y -> Y[i])
}}
"""
    assert "SK0205" in [found.code for found in check(Source("test", text)).diagnostics]
