"""Arithmetic of the narrow and unsigned types against Python's integers, wrapped to the type."""

from __future__ import annotations

import math
import operator

import numpy as np
import pytest
from operation_cases import elaborated, one_operation

from sketchc.base.types import DType
from sketchc.interpreter.api import Options, interpret

NARROW = ("i16", "i8", "u8", "u32")
OPTIONS = (Options(check_domains=True, shuffle=1), Options(check_domains=True, padding=3))
UNARY = {
    "copy": lambda x: x,
    "neg": operator.neg,
    "abs": abs,
    "relu": lambda x: max(x, 0),
    "sign": lambda x: (x > 0) - (x < 0),
    "floor": lambda x: x,
    "round": lambda x: x,
    "bitwise_not": operator.invert,
}
BINARY = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "max": max,
    "min": min,
    "floordiv": lambda a, b: a // (b or 1),
    "mod": lambda a, b: a % (b or 1),
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
    "eq": operator.eq,
    "lt": operator.lt,
    "ge": operator.ge,
}


def wrap(value: int, dtype: str) -> int:
    bits = DType(dtype).bytes * 8
    value %= 1 << bits
    return value - (1 << bits) if DType(dtype).is_signed and value >> (bits - 1) else value


def anything(dtype: str, size: int, seed: int) -> np.ndarray:
    """The whole range, with the limits."""
    limits = np.iinfo(DType(dtype).numpy_name)
    generator = np.random.default_rng(seed)
    values = generator.integers(limits.min, limits.max, size, limits.dtype, endpoint=True)
    edges = [limits.min, limits.max, 0, 1, limits.max // 2 + 1][: max(0, size - 2)]
    values[generator.permutation(size)[: len(edges)]] = edges
    return values


def run(call: str, sources: list[str], result: str, *arrays: np.ndarray) -> list[int]:
    sketch = elaborated(one_operation(call, sources, result))
    given = {f"X{n}": array for n, array in enumerate(arrays)}
    first, second = (
        interpret(sketch, given, options=options).outputs["Y"].tolist() for options in OPTIONS
    )
    assert first == second
    return first


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("name", UNARY)
def test_unary(name, dtype):
    x = anything(dtype, 13, 1)
    expected = [wrap(UNARY[name](value), dtype) for value in x.tolist()]
    assert run(f"{name}(x0, y)", [dtype], dtype, x) == expected


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("name", BINARY)
def test_binary(name, dtype):
    a, b = anything(dtype, 13, 2), anything(dtype, 13, 3)
    b = np.where(b == 0, 1, b).astype(b.dtype) if name in ("floordiv", "mod") else b
    result = "bool" if name in ("eq", "lt", "ge") else dtype
    exact = [BINARY[name](*pair) for pair in zip(a.tolist(), b.tolist(), strict=True)]
    expected = exact if result == "bool" else [wrap(value, dtype) for value in exact]
    assert run(f"{name}(x0, x1, y)", [dtype, dtype], result, a, b) == expected


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("name", ["shl", "shr"])
def test_shifts_by_less_than_the_width(name, dtype):
    bits = DType(dtype).bytes * 8
    a = anything(dtype, 13, 4)
    b = np.random.default_rng(5).integers(0, bits, 13).astype(a.dtype)
    shift = operator.lshift if name == "shl" else operator.rshift
    expected = [wrap(shift(x, n), dtype) for x, n in zip(a.tolist(), b.tolist(), strict=True)]
    assert run(f"{name}(x0, x1, y)", [dtype, dtype], dtype, a, b) == expected


@pytest.mark.parametrize("dtype", NARROW)
def test_clamp_to_bounds_that_the_type_does_not_hold(dtype):
    x = anything(dtype, 13, 6)
    expected = [max(-3, min(value, 2**40)) for value in x.tolist()]
    assert run(f"clamp(x0, y, low=-3, high={2**40})", [dtype], dtype, x) == expected


@pytest.mark.parametrize("source", [*NARROW, "i64"])
@pytest.mark.parametrize("target", [*NARROW, "i64", "bool"])
@pytest.mark.parametrize("saturate", [False, True])
def test_casts_between_integers(source, target, saturate):
    x = anything(source, 13, 7)
    if target == "bool":
        expected = [value != 0 for value in x.tolist()]
    elif saturate:
        limits = np.iinfo(DType(target).numpy_name)
        expected = [max(limits.min, min(value, limits.max)) for value in x.tolist()]
    else:
        expected = [wrap(value, target) for value in x.tolist()]
    assert run(f"cast(x0, y, sat={saturate})", [source], target, x) == expected


@pytest.mark.parametrize("target", NARROW)
def test_saturating_casts_of_floats_round_to_even(target):
    x = np.array([2.5, 3.5, -0.5, -7.2, 1e20, -1e20, np.nan, np.inf], np.float32)
    limits = np.iinfo(DType(target).numpy_name)
    expected = [
        0 if math.isnan(v) else max(limits.min, min(round(max(min(v, 1e30), -1e30)), limits.max))
        for v in x.tolist()
    ]
    assert run("cast(x0, y, sat=True)", ["f32"], target, x) == expected


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("name", ["reduce_sum", "reduce_prod", "reduce_max", "reduce_min"])
def test_reductions_take_the_destinations_type(name, dtype):
    """Sums and products of narrow integers go on in i32 and wrap there; extrema keep the type."""
    result = "i32" if name in ("reduce_sum", "reduce_prod") and dtype != "u32" else dtype
    text = f"""sketch narrow {{
    symbols: M, N <= 8;
    tensors: X[M, N]: in {dtype}; Y[M]: out {result};
    constexpr: T = 2;
    @llm_hint("parallel")
    for i in range(cdiv(M, T)):
        x = alloc([T, 8])
        y = alloc([T], {result})
        load(X[i*T:(i+1)*T, 0:N] -> x)
        {name}(x, 1, y)
        store(y -> Y[i*T:(i+1)*T])
}}
"""
    function = {
        "reduce_sum": sum,
        "reduce_prod": math.prod,
        "reduce_max": lambda row: max(row, default=int(np.iinfo(DType(dtype).numpy_name).min)),
        "reduce_min": lambda row: min(row, default=int(np.iinfo(DType(dtype).numpy_name).max)),
    }[name]
    for size in (0, 1, 5, 8):
        x = anything(dtype, 3 * size, 8).reshape(3, size)
        for options in OPTIONS:
            found = interpret(elaborated(text), {"X": x}, options=options).outputs["Y"]
            assert found.tolist() == [wrap(function(row), result) for row in x.tolist()]


@pytest.mark.parametrize("inner", [0, 1, 5, 8])
def test_products_of_i8_matrices_accumulate_in_i32(inner):
    text = """sketch product {
    symbols: M, N, K <= 8;
    tensors: A[M, K]: in i8; B[K, N]: in i8; C[M, N]: out i32;
    constexpr: T = 4;
    @llm_hint("parallel")
    for i in range(cdiv(M, T)):
        @llm_hint("parallel")
        for j in range(cdiv(N, T)):
            a = alloc([T, 8])
            b = alloc([8, T])
            c = alloc([T, T], i32, init=0)
            load(A[i*T:(i+1)*T, 0:K] -> a)
            load(B[0:K, j*T:(j+1)*T] -> b)
            gemm(a, b, c)
            store(c -> C[i*T:(i+1)*T, j*T:(j+1)*T])
}
"""
    a = anything("i8", 5 * inner, 9).reshape(5, inner)
    b = anything("i8", 6 * inner, 10).reshape(inner, 6)
    for options in OPTIONS:
        found = interpret(elaborated(text), {"A": a, "B": b}, options=options).outputs["C"]
        np.testing.assert_array_equal(found, a.astype(np.int64) @ b.astype(np.int64))
