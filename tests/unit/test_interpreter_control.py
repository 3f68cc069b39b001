"""Branches, optional tensors, fetches, host steps and loops of the interpreter, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from operation_cases import elaborated

from sketchc.base.diagnostics import DiagnosticError
from sketchc.interpreter.api import Options, interpret

CHECKED = tuple(Options(check_domains=True, shuffle=5 + p, padding=p) for p in (0, 3))
SIZES = (0, 1, 3, 4, 5, 13)


def run(text: str, params: dict[str, float] | None = None, **tensors: np.ndarray | None):
    sketch = elaborated(text)
    first, second = (interpret(sketch, tensors, params=params, options=o).outputs for o in CHECKED)
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name])
    return first


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# ---------------------------------------------------------------- branches


@pytest.mark.parametrize("size", SIZES)
def test_branches_on_loop_variables_and_params(size):
    text = """sketch branches {
    symbols: M;
    params: flip: bool;
    tensors: X[M]: in f32; Y[M]: out f32;
    constexpr: T = 4;
    @llm_hint("parallel")
    for i in range(cdiv(M, T)):
        x = alloc([T])
        load(X[i*T:(i+1)*T] -> x)
        if flip and i % 2 == 1:
            neg(x, x)
        else:
            if i > 1:
                add(x, 10.0, x)
        store(x -> Y[i*T:(i+1)*T])
}
"""
    x = numbers(size)
    tile = np.arange(size) // 4
    for flip in (False, True):
        expected = np.where(tile > 1, x + np.float32(10), x)
        expected = np.where((tile % 2 == 1) & flip, -x, expected)
        np.testing.assert_array_equal(run(text, {"flip": flip}, X=x)["Y"], expected)


@pytest.mark.parametrize("size", SIZES)
def test_an_optional_tensor_may_be_absent(size):
    text = """sketch optional {
    symbols: M;
    tensors: X[M]: in f32; B[M]: in f32?; Y[M]: out f32;
    constexpr: T = 4;
    @llm_hint("parallel")
    for i in range(cdiv(M, T)):
        x = alloc([T])
        load(X[i*T:(i+1)*T] -> x)
        if present(B):
            b = alloc([T])
            load(B[i*T:(i+1)*T] -> b)
            add(x, b, x)
        store(x -> Y[i*T:(i+1)*T])
}
"""
    x, b = numbers(size), numbers(size, seed=1)
    np.testing.assert_array_equal(run(text, X=x, B=b)["Y"], x + b)
    np.testing.assert_array_equal(run(text, X=x, B=None)["Y"], x)
    np.testing.assert_array_equal(run(text, X=x)["Y"], x)


# ---------------------------------------------------------------- one element, fetches


def test_one_element_tensors_and_a_fetch_inside_a_nest():
    text = """sketch rows {
    symbols: M, N;
    tensors: X[N]: in f32; S[M]: in i32; SCALE[]: in f32; Y[M, 4]: out f32; LAST[]: out f32;
    @llm_hint("parallel")
    for i in range(M):
        s = fetch(S[i])
        c = fetch(SCALE[])
        x = alloc([4])
        load(X[s:s+4] -> x, pad=0)
        mul(x, c, x)
        store(x -> Y[i, 0:4])
    z = alloc([1])
    load(SCALE[] -> z)
    neg(z, z)
    store(z -> LAST[])
}
"""
    x, scale = numbers(9), np.asarray(numbers(1)[0])
    starts = np.array([3, -2, 7, 100], np.int32)
    found = run(text, X=x, S=starts, SCALE=scale)
    wide = np.concatenate((np.zeros(50), x, np.zeros(200))).astype(np.float32)
    expected = np.stack([wide[50 + s : 54 + s] for s in starts]) * scale
    np.testing.assert_array_equal(found["Y"], expected)
    assert found["LAST"].shape == ()
    assert found["LAST"] == -scale


def test_host_loops_and_fetches_at_top_level():
    """Halving steps until the host has read a count: each launch sees what the one before wrote."""
    text = """sketch rounds {
    symbols: M;
    tensors: X[M]: in f32; COUNT[1]: in i64; Y[M]: inout f32;
    constexpr: T = 4;
    n = fetch(COUNT[0])
    for k in range(n, 0, -1):
        @llm_hint("parallel")
        for i in range(cdiv(M, T)):
            x = alloc([T])
            y = alloc([T])
            load(X[i*T:(i+1)*T] -> x)
            load(Y[i*T:(i+1)*T] -> y)
            mul(y, 0.5, y)
            mul(x, k, x)
            add(x, y, y)
            store(y -> Y[i*T:(i+1)*T])
        if k % 2 == 0:
            @llm_hint("parallel")
            for i in range(cdiv(M, T)):
                y = alloc([T])
                load(Y[i*T:(i+1)*T] -> y)
                neg(y, y)
                store(y -> Y[i*T:(i+1)*T])
}
"""
    for size in SIZES:
        x, y = numbers(size), numbers(size, seed=1)
        for count in (0, 1, 3):
            expected = y
            for k in range(count, 0, -1):
                expected = (x * np.float32(k) + expected * np.float32(0.5)).astype(np.float32)
                expected = -expected if k % 2 == 0 else expected
            found = run(text, X=x, Y=y, COUNT=np.array([count]))["Y"]
            np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_neighbours_may_be_read_by_the_next_launch_only():
    """Reading what another iteration of the same launch writes is a conflict; two launches of a
    host loop that exchange two tensors are not."""
    text = """sketch shift {
    symbols: M;
    params: steps: i64;
    tensors: X[M]: inout f32; Z[M]: inout f32;
    constexpr: T = 4;
    for k in range(steps):
        @llm_hint("parallel")
        for i in range(cdiv(M, T)):
            x = alloc([T])
            load(X[i*T+1:(i+1)*T+1] -> x, pad=0)
            store(x -> Z[i*T:(i+1)*T])
        @llm_hint("parallel")
        for i in range(cdiv(M, T)):
            z = alloc([T])
            load(Z[i*T:(i+1)*T] -> z)
            store(z -> X[i*T:(i+1)*T])
}
"""
    x = numbers(11)
    found = run(text, {"steps": 3}, X=x, Z=numbers(11))
    np.testing.assert_array_equal(found["X"], np.concatenate((x[3:], np.zeros(3, np.float32))))
    racing = text.replace("store(x -> Z[i*T:(i+1)*T])", "store(x -> X[i*T:(i+1)*T])")
    with pytest.raises(DiagnosticError, match="SK0806"):
        interpret(elaborated(racing), {"X": x, "Z": x}, params={"steps": 1})


# ---------------------------------------------------------------- loops


def test_a_loop_downwards_and_a_triangular_one():
    text = """sketch triangle {
    symbols: M;
    tensors: X[M]: in f32; Y[M]: out f32; Z[M]: out f32;
    @llm_hint("parallel")
    for i in range(M):
        y = alloc([1], f32, init=0)
        z = alloc([1], f32, init=0)
        x = alloc([1])
        for j in range(i + 1):
            load(X[j:j+1] -> x)
            add(y, x, y)
        for j in range(i, -1, -2):
            load(X[j:j+1] -> x)
            mul(z, 0.5, z)
            add(z, x, z)
        store(y -> Y[i:i+1])
        store(z -> Z[i:i+1])
}
"""
    x = numbers(9)
    found = run(text, X=x)
    np.testing.assert_allclose(found["Y"], np.cumsum(x, dtype=np.float64), rtol=1e-5)
    expected = []
    for i in range(9):
        total = np.float32(0)
        for j in range(i, -1, -2):
            total = np.float32(total * np.float32(0.5)) + x[j]
        expected.append(total)
    np.testing.assert_array_equal(found["Z"], np.array(expected, np.float32))
