"""Operations that cross lanes or move them, against PyTorch, as in test_ops_reference.py."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from operation_cases import (
    EPSILON,
    FLOATS,
    INTEGERS,
    REDUCTIONS,
    TORCH,
    assert_same,
    elaborated,
    to_torch,
)

from sketchc.base.types import DType
from sketchc.interpreter.api import Options, interpret
from sketchc.interpreter.inputs import random_array


def reduction(name: str, source: str, result: str, axis: int, keep: bool) -> str:
    shape, tile = ("[T, N]", "X[i*T:(i+1)*T, 0:N]") if axis else ("[N, T]", "X[0:N, i*T:(i+1)*T]")
    declared = "M, N" if axis else "N, M"
    kept = ("[T, 1]" if axis else "[1, T]") if keep else "[T]"
    rows = ("M, 1" if axis else "1, M") if keep else "M"
    part = ("i*T:(i+1)*T, 0:1" if axis else "0:1, i*T:(i+1)*T") if keep else "i*T:(i+1)*T"
    return f"""sketch reduce {{
    symbols: M, N <= 64;
    tensors: X[{declared}]: in {source}; Y[{rows}]: out {result};
    constexpr: T = 4;
    @llm_hint("parallel")
    for i in range(ceil(M, T)):
        x = alloc({shape})
        y = alloc({kept}, {result})
        load({tile} -> x)
        {name}(x, {axis}, y)
        store(y -> Y[{part}])
}}
"""


@pytest.mark.sweep
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name, dtype, axis, keep):
    boolean = name in ("reduce_any", "reduce_all")
    result = "bool" if boolean else dtype
    sketch = elaborated(reduction(name, dtype, result, axis, keep))
    generator = np.random.default_rng(axis)
    for rows, columns in [(1, 1), (3, 7), (4, 13), (5, 1), (9, 2)]:
        shape = (rows, columns) if axis else (columns, rows)
        x = random_array(generator, shape, DType(dtype))
        if name == "reduce_prod":
            x = np.clip(x, -2, 2).astype(x.dtype)
        if dtype in FLOATS and rows > 4:
            x[0, 0] = np.nan
        for padding in (0, 3):
            options = Options(check_domains=True, shuffle=1, padding=padding)
            actual = interpret(sketch, {"X": x}, options=options).outputs["Y"]
            given = to_torch(x).double() if dtype in FLOATS else to_torch(x)
            expected = REDUCTIONS[name](given, axis)
            expected = expected.unsqueeze(axis) if keep else expected
            if dtype in FLOATS and not boolean:
                scale = torch.nan_to_num(given).abs().sum().item()
                np.testing.assert_allclose(
                    actual.astype(np.float64),
                    expected.to(TORCH[dtype]).double().numpy(),
                    rtol=2 * EPSILON[dtype],
                    atol=1e-15 * scale,
                )
            else:
                assert_same(actual, expected, result)


@pytest.mark.parametrize(
    ("name", "dtype", "identity"),
    [
        ("reduce_sum", "f32", 0.0),
        ("reduce_prod", "f32", 1.0),
        ("reduce_max", "f32", -np.inf),
        ("reduce_min", "f32", np.inf),
        ("reduce_max", "i32", np.iinfo(np.int32).min),
        ("reduce_min", "i64", np.iinfo(np.int64).max),
        ("reduce_any", "i32", False),
        ("reduce_all", "i32", True),
    ],
)
@pytest.mark.parametrize("padding", [0, 3])
def test_an_empty_reduction_gives_the_identity(name, dtype, identity, padding):
    result = "bool" if name in ("reduce_any", "reduce_all") else dtype
    sketch = elaborated(reduction(name, dtype, result, 1, False))
    x = np.zeros((5, 0), DType(dtype).numpy_name)
    options = Options(check_domains=True, padding=padding)
    assert interpret(sketch, {"X": x}, options=options).outputs["Y"].tolist() == [identity] * 5


def product(name: str, source: str, result: str, trans_a: bool, trans_b: bool) -> str:
    a, b = ("K, M" if trans_a else "M, K"), ("N, K" if trans_b else "K, N")
    row, inner, column = "i*T:(i+1)*T", "k*T:(k+1)*T", "j*T:(j+1)*T"
    left = f"{inner}, {row}" if trans_a else f"{row}, {inner}"
    right = f"{column}, {inner}" if trans_b else f"{inner}, {column}"
    update = (
        f"gemm(a, b, c, trans_a={trans_a}, trans_b={trans_b})"
        if name == "gemm"
        else f"p = alloc([T, T], {result})\n                "
        f"{name}(a, b, p, trans_a={trans_a}, trans_b={trans_b})\n                add(c, p, c)"
    )
    return f"""sketch product {{
    symbols: M, N, K;
    tensors: A[{a}]: in {source}; B[{b}]: in {source}; C[M, N]: out {result};
    constexpr: T = 4;
    @llm_hint("parallel")
    for i in range(ceil(M, T)):
        @llm_hint("parallel")
        for j in range(ceil(N, T)):
            c = alloc([T, T], {result}, init=0)
            for k in range(ceil(K, T)):
                a = alloc([T, T])
                b = alloc([T, T])
                load(A[{left}] -> a)
                load(B[{right}] -> b)
                {update}
            store(c -> C[i*T:(i+1)*T, j*T:(j+1)*T])
}}
"""


@pytest.mark.sweep
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize(
    ("source", "result"),
    [("f32", "f32"), ("f16", "f32"), ("bf16", "f32"), ("f64", "f64"), ("i32", "i32")],
)
@pytest.mark.parametrize("name", ["gemm", "matmul", "dot"])
def test_matrix_products(name, source, result, transposed):
    sketch = elaborated(product(name, source, result, *transposed))
    generator = np.random.default_rng(0)
    for rows, columns, inner in [(1, 1, 1), (4, 4, 4), (5, 3, 7), (3, 5, 0), (2, 9, 13)]:
        a = random_array(generator, (rows, inner), DType(source))
        b = random_array(generator, (inner, columns), DType(source))
        given = {
            "A": a.T.copy() if transposed[0] else a,
            "B": b.T.copy() if transposed[1] else b,
        }
        left, right = to_torch(a), to_torch(b)
        exact = result in INTEGERS
        expected = left @ right if exact else left.double() @ right.double()
        scale = 0.0 if exact else (left.double().abs() @ right.double().abs()).numpy()
        for padding in (0, 3):
            options = Options(check_domains=True, shuffle=2, padding=padding)
            actual = interpret(sketch, given, options=options).outputs["C"]
            error = np.abs(actual.astype(np.float64) - expected.numpy())
            assert (error <= scale * 8 * EPSILON.get(result, 0.0)).all()


@pytest.mark.parametrize("padding", [0, 3])
def test_transpose_and_broadcast(padding):
    text = """sketch layout {
    symbols: M, N;
    tensors: X[M, N]: in f32; V[N]: in f32; Y[N, M]: out f32; Z[M, N]: out f32;
    constexpr: T = 4, S = 3;
    @llm_hint("parallel")
    for i in range(ceil(M, T)):
        @llm_hint("parallel")
        for j in range(ceil(N, S)):
            x = alloc([T, S])
            v = alloc([S])
            y = alloc([S, T])
            z = alloc([T, S])
            load(X[i*T:(i+1)*T, j*S:(j+1)*S] -> x)
            load(V[j*S:(j+1)*S] -> v)
            transpose(x, y)
            broadcast(v, z)
            store(y -> Y[j*S:(j+1)*S, i*T:(i+1)*T])
            sub(z, x, z)
            store(z -> Z[i*T:(i+1)*T, j*S:(j+1)*S])
}
"""
    sketch = elaborated(text)
    generator = np.random.default_rng(3)
    for rows, columns in [(1, 1), (4, 3), (5, 2), (3, 4), (7, 11), (0, 3)]:
        x = random_array(generator, (rows, columns), DType.F32)
        v = random_array(generator, (columns,), DType.F32)
        options = Options(check_domains=True, shuffle=4, padding=padding)
        outputs = interpret(sketch, {"X": x, "V": v}, options=options).outputs
        np.testing.assert_array_equal(outputs["Y"], x.T)
        np.testing.assert_array_equal(outputs["Z"], v[None, :] - x)
