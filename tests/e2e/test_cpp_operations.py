"""Every operation of the table on the C++ target equals the interpreter, in every dtype."""

from __future__ import annotations

from pathlib import Path

import pytest
from cpp_cases import check
from toolchains import require

from sketchc.ops.table import OPS, Category

require("cpp")

GRID = '@llm_hint("parallel", "grididx")'
SIZES = [{"N": size} for size in (1, 15, 16, 17, 37, 0)]

#: Calls on tiles a, b, c (operands) with destination y; `p` is a positive operand.
UNARY = [name for name, row in OPS.items() if row.operands == ("source",)]
FLOAT_CALLS = [
    "copy(a, y)", "neg(a, y)", "abs(a, y)", "relu(a, y)", "clamp(a, y, low=-0.5, high=0.75)",
    "floor(a, y)", "ceil(a, y)", "round(a, y)", "trunc(a, y)", "sign(a, y)", "exp(a, y)",
    "exp2(a, y)", "log(p, y)", "log2(p, y)", "expm1(a, y)", "log1p(p, y)", "sqrt(p, y)",
    "rsqrt(p, y)", "sin(a, y)", "cos(a, y)", "tan(a, y)", "atan(a, y)", "tanh(a, y)",
    "erf(a, y)", "sigmoid(a, y)",
    "silu(a, y)", "gelu(a, y)", 'gelu(a, y, approximate="tanh")', "softplus(a, y)",
    "softsign(a, y)", "hardsigmoid(a, y)", "hardswish(a, y)", "elu(a, y)",
    "elu(a, y, alpha=0.3)", "selu(a, y)", "leaky_relu(a, y)", "leaky_relu(a, y, slope=0.2)",
    "add(a, b, y)", "sub(a, b, y)", "mul(a, b, y)", "div(a, b, y)", "max(a, b, y)",
    "min(a, b, y)", "pow(p, b, y)", "atan2(a, b, y)", "floordiv(a, b, y)", "mod(a, b, y)",
    "fma(a, b, c, y)", "where(f, a, b, y)", "fill(2.5, y)", "cast(a, y)",
    "add(a, 1.5, y)", "sub(1, b, y)",
]  # fmt: skip
BOOL_CALLS = [
    "eq(a, b, f)", "ne(a, b, f)", "lt(a, b, f)", "le(a, b, f)", "gt(a, b, f)", "ge(a, b, f)",
    "isnan(a, f)", "isinf(a, f)", "isfinite(a, f)",
]  # fmt: skip
LOGICAL_CALLS = ["logical_and(f, g, f)", "logical_or(f, g, f)", "logical_not(f, f)"]
INTEGER_CALLS = [
    "copy(a, y)", "neg(a, y)", "abs(a, y)", "relu(a, y)", "sign(a, y)", "add(a, b, y)",
    "clamp(a, y, low=-3, high=9)", "floor(a, y)", "sub(a, b, y)", "mul(a, b, y)", "max(a, b, y)",
    "min(a, b, y)", "floordiv(a, b, y)", "mod(a, b, y)", "fma(a, b, c, y)", "where(f, a, b, y)",
    "bitwise_and(a, b, y)", "bitwise_or(a, b, y)", "bitwise_xor(a, b, y)", "bitwise_not(a, y)",
    "shl(a, s, y)", "shr(a, s, y)", "pow(a, s, y)", "fill(7, y)", "floordiv(a, -3, y)",
    "mod(a, 7, y)",
]  # fmt: skip
REDUCTIONS = ["sum", "prod", "max", "min"]


def elementwise(dtype: str, calls: list[str], integer: bool) -> str:
    """One sketch with a row of the output for each call."""
    body = []
    for row, call in enumerate(calls):
        body += [call, f"store(y -> Y[{row}, i*T:(i+1)*T])"]
    if not integer:
        for row, call in enumerate(BOOL_CALLS):
            body += [call, f"store(f -> F[{row}, i*T:(i+1)*T])"]
    positive = "mod(b, 5, s)" if integer else "abs(a, p)\n        add(p, 0.01, p)"
    divisor = "where(eq(b, 0), 3, b, b)"
    flags = "" if integer else f"; F[{len(BOOL_CALLS)}, N]: out bool"
    lines = "\n        ".join(body)
    guard = "eq(b, 0, g)\n        where(g, 3, b, b)" if integer else ""
    del divisor
    return f"""sketch operations {{
    symbols: N;
    tensors: A[N]: in {dtype}; B[N]: in {dtype}; C[N]: in {dtype};
             Y[{len(calls)}, N]: out {dtype}{flags};
    constexpr: T = 16;
    {GRID}
    for i in range(ceil(N, T)):
        a = alloc([T], {dtype})
        b = alloc([T], {dtype})
        c = alloc([T], {dtype})
        p = alloc([T], {dtype})
        s = alloc([T], {dtype})
        y = alloc([T], {dtype})
        f = alloc([T], bool)
        g = alloc([T], bool)
        load(A[i*T:(i+1)*T] -> a)
        load(B[i*T:(i+1)*T] -> b)
        load(C[i*T:(i+1)*T] -> c)
        {positive}
        {guard}
        lt(a, b, f)
        {lines}
}}"""


def reductions(dtype: str, axis: str, keep: bool) -> str:
    """All reductions of [4, 8] tiles over one axis (or both)."""
    axes = [0, 1] if axis == "[0, 1]" else [int(axis)]
    shape = [("1" if a in axes else e) for a, e in enumerate(("R", "T")) if keep or a not in axes]
    shape = shape or ["1"]
    outs = {"0": "i*T:(i+1)*T", "1": "r*R:(r+1)*R", "[0, 1]": "0:1"}
    place = ", ".join(
        "0:1" if extent == "1" else ("i*T:(i+1)*T" if extent == "T" else "r*R:(r+1)*R")
        for extent in shape
    )
    del outs
    wide = ", ".join("cdiv(N, T)" if (a == 1 and 1 in axes) else "cdiv(M, R)" for a in axes)
    leading = ", ".join("r" if a == 0 else "i" for a in axes)
    extents = ", ".join("1" if e == "1" else ("N" if e == "T" else "M") for e in shape)
    lines, tensors = [], []
    for index, name in enumerate(REDUCTIONS):
        tensors.append(f"Y{index}[{wide}, {extents}]: out {dtype}")
        lines += [
            f"y{index} = alloc([{', '.join(shape)}], {dtype})",
            f"reduce_{name}(a, {axis}, y{index})",
            f"store(y{index} -> Y{index}[{leading}, {place}])",
        ]
    for index, name in enumerate(("any", "all"), len(REDUCTIONS)):
        tensors.append(f"Y{index}[{wide}, {extents}]: out bool")
        lines += [
            f"y{index} = alloc([{', '.join(shape)}], bool)",
            f"reduce_{name}(flag, {axis}, y{index})",
            f"store(y{index} -> Y{index}[{leading}, {place}])",
        ]
    return f"""sketch reductions {{
    symbols: M, N;
    tensors: A[M, N]: in {dtype}; {"; ".join(tensors)};
    constexpr: R = 4, T = 8;
    {GRID}
    for r in range(ceil(M, R)):
        {GRID}
        for i in range(ceil(N, T)):
            a = alloc([R, T], {dtype})
            flag = alloc([R, T], bool)
            load(A[r*R:(r+1)*R, i*T:(i+1)*T] -> a)
            gt(a, 0, flag)
            {(chr(10) + "            ").join(lines)}
}}"""


def test_every_lowered_elementwise_row_is_called() -> None:
    called = {call.split("(")[0] for call in (*FLOAT_CALLS, *BOOL_CALLS, *INTEGER_CALLS)}
    called |= {call.split("(")[0] for call in LOGICAL_CALLS}
    rows = {n for n, r in OPS.items() if r.category is Category.ELEMENTWISE}
    assert rows == called


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_float_operations(dtype: str, tmp_path: Path) -> None:
    check(elementwise(dtype, FLOAT_CALLS, integer=False), tmp_path, SIZES, ulps=32.0)


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", ["i64", "i32", "i16", "i8", "u8", "u32"])
def test_integer_operations(dtype: str, tmp_path: Path) -> None:
    check(elementwise(dtype, INTEGER_CALLS, integer=True), tmp_path, SIZES)


def test_logical_operations(tmp_path: Path) -> None:
    body = "\n        ".join(
        f"{call}\n        store(f -> Y[{row}, i*T:(i+1)*T])"
        for row, call in enumerate((*LOGICAL_CALLS, "bitwise_xor(f, g, f)", "bitwise_not(f, f)"))
    )
    text = f"""sketch logical {{
    symbols: N;
    tensors: F[N]: in bool; G[N]: in bool; Y[5, N]: out bool;
    constexpr: T = 16;
    {GRID}
    for i in range(ceil(N, T)):
        f = alloc([T], bool)
        g = alloc([T], bool)
        load(F[i*T:(i+1)*T] -> f)
        load(G[i*T:(i+1)*T] -> g)
        {body}
}}"""
    check(text, tmp_path, SIZES)


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", ["f32", "f16", "i64"])
@pytest.mark.parametrize(("axis", "keep"), [("0", True), ("1", False), ("[0, 1]", True)])
def test_reductions(dtype: str, axis: str, keep: bool, tmp_path: Path) -> None:
    sizes = [{"M": m, "N": n} for m, n in ((1, 1), (3, 9), (4, 8), (5, 7), (9, 17), (0, 3))]
    check(reductions(dtype, axis, keep), tmp_path, sizes)


CASTS = [
    ("f32", "i32", "cast(a, y)"),
    ("f32", "i32", 'cast(a, y, round="down")'),
    ("f32", "i32", 'cast(a, y, round="up")'),
    ("f32", "i64", 'cast(a, y, round="zero")'),
    ("f64", "i32", "cast(a, y, sat=True)"),
    ("i64", "i32", "cast(a, y, sat=True)"),
    ("i32", "f16", "cast(a, y)"),
    ("f64", "f32", 'cast(a, y, round="down")'),
    ("f32", "f16", 'cast(a, y, round="up")'),
    ("f32", "bf16", 'cast(a, y, round="zero")'),
    ("f64", "bf16", "cast(a, y)"),
    ("f64", "f16", "cast(a, y)"),
    ("bool", "f32", "cast(a, y)"),
    ("f32", "bool", "cast(a, y)"),
]


@pytest.mark.sweep
@pytest.mark.parametrize(("source", "target", "call"), CASTS)
def test_casts(source: str, target: str, call: str, tmp_path: Path) -> None:
    text = f"""sketch casts {{
    symbols: N;
    tensors: A[N]: in {source}; Y[N]: out {target};
    constexpr: T = 16;
    {GRID}
    for i in range(ceil(N, T)):
        a = alloc([T], {source})
        y = alloc([T], {target})
        load(A[i*T:(i+1)*T] -> a)
        {call}
        store(y -> Y[i*T:(i+1)*T])
}}"""
    check(text, tmp_path, SIZES, ulps=0.0)
