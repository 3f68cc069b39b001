"""Every lowered row of the op table, through a one-operation sketch, against PyTorch.

Floats are compared with PyTorch in float64 on the same (exactly rounded) inputs, to one rounding of
the destination's type; integers and booleans exactly. Sizes are ragged, loops shuffled, and each
case runs on valid boxes and on padded arrays full of poison.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

from sketchc.checker.domains import infer_domains
from sketchc.checker.elaborate import elaborate
from sketchc.diagnostics import DiagnosticError, has_errors
from sketchc.interpreter import Options, interpret
from sketchc.interpreter_inputs import random_array
from sketchc.ops import OPS
from sketchc.parser import parse
from sketchc.source import Source
from sketchc.types import DType

F = torch.nn.functional
FLOATS = ("f32", "f16", "bf16", "f64")
INTEGERS = ("i32", "i64")
SIZES = (0, 1, 7, 8, 9, 13)
TORCH = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "i32": torch.int32,
    "bool": torch.bool,
}
EPSILON = {"f64": 2.0**-52, "f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-7, -3.0, 0.5, 1.5, 2.5, -2.5, 100.0]


def elaborated(text: str):
    tree, found = parse(Source("one.sketch", text))
    assert tree is not None, found
    sketch, more = elaborate(tree.sketches[0], {})
    assert sketch is not None, more
    assert not has_errors(more), more
    sketch, more = infer_domains(sketch)
    assert not has_errors(more), more
    return sketch


def to_torch(array: np.ndarray):
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.astype(np.float32)).to(torch.bfloat16)
    return torch.from_numpy(array.copy())


def assert_same(actual: np.ndarray, expected, dtype: str, slack: float = 1.0) -> None:
    """Floats to `slack` roundings of `dtype`, everything else exactly."""
    assert list(actual.shape) == list(expected.shape)
    if dtype not in EPSILON:
        np.testing.assert_array_equal(actual, expected.to(TORCH[dtype]).numpy())
        return
    rounded = expected.double().to(TORCH[dtype]).double()
    tiny = 1e-7 if dtype == "f16" else 1e-44 if dtype != "f64" else 1e-300
    torch.testing.assert_close(
        torch.from_numpy(actual.astype(np.float64)),
        rounded,
        rtol=slack * EPSILON[dtype],
        atol=tiny,
        equal_nan=True,
    )


def inputs(generator: np.random.Generator, size: int, dtype: str, special: bool) -> np.ndarray:
    array = random_array(generator, (size,), DType(dtype))
    if special and dtype in EPSILON:
        count = min(size, len(SPECIAL))
        places = generator.permutation(size)[:count]
        array[places] = np.array(SPECIAL[:count]).astype(array.dtype)
    return array


def one_operation(call: str, sources: list[str], result: str) -> str:
    """A sketch that applies `call` (to x0, x1, ..., y) tile by tile."""
    declared = " ".join(f"X{n}[M]: in {dtype};" for n, dtype in enumerate(sources))
    body = []
    for n in range(len(sources)):
        body += [f"x{n} = alloc([T])", f"load(X{n}[i*T:(i+1)*T] -> x{n})"]
    body += [f"y = alloc([T], {result})", call, "store(y -> Y[i*T:(i+1)*T])"]
    lines = "\n        ".join(body)
    return f"""sketch one {{
    symbols: M;
    tensors: {declared} Y[M]: out {result};
    constexpr: T = 8;
    @llm_hint("parallel")
    for i in range(ceil(M, T)):
        {lines}
}}
"""


def check(call, sources, result, expect, arrays=None, special=True, slack=1.0) -> None:
    sketch = elaborated(one_operation(call, sources, result))
    generator = np.random.default_rng(sum(map(ord, call + result)))
    for size in SIZES:
        made = arrays or (lambda n, g, s: inputs(g, s, sources[n], special))
        given = {f"X{n}": made(n, generator, size) for n in range(len(sources))}
        for padding in (0, 3):
            options = Options(check_domains=True, shuffle=size, padding=padding)
            outputs = interpret(sketch, given, {"M": size}, options=options).outputs
            expected = expect(*(to_torch(array) for array in given.values()))
            assert_same(outputs["Y"], expected, result, slack)


def wide(function):
    """PyTorch's function on the operands in float64."""
    return lambda *operands: function(*(operand.double() for operand in operands))


def keep_nan(function):
    """As `function`, but NaN stays NaN (NumPy's rule where PyTorch has another)."""
    return lambda x: torch.where(torch.isnan(x), x, function(x))


UNARY_FLOAT = {
    "exp": torch.exp,
    "exp2": torch.exp2,
    "log": torch.log,
    "log2": torch.log2,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "atan": torch.atan,
    "tanh": torch.tanh,
    "erf": torch.erf,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "gelu": F.gelu,
    "softplus": F.softplus,
    "softsign": F.softsign,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "elu": F.elu,
    "selu": F.selu,
    "leaky_relu": F.leaky_relu,
}
UNARY_SAME = {
    "copy": lambda x: x,
    "neg": lambda x: -x,
    "abs": torch.abs,
    "relu": torch.relu,
    "clamp": lambda x: torch.clamp(x, -2, 5),
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
    "trunc": torch.trunc,
    "sign": torch.sign,
}
BINARY = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "max": torch.maximum,
    "min": torch.minimum,
    "pow": torch.pow,
}
COMPARISONS = {
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
}
TESTS = {"isnan": torch.isnan, "isinf": torch.isinf, "isfinite": torch.isfinite}
BITWISE = {
    "bitwise_and": torch.bitwise_and,
    "bitwise_or": torch.bitwise_or,
    "bitwise_xor": torch.bitwise_xor,
}
REDUCTIONS = {
    "reduce_sum": lambda x, axis: torch.sum(x, axis),
    "reduce_prod": lambda x, axis: torch.prod(x, axis),
    "reduce_max": lambda x, axis: torch.amax(x, axis),
    "reduce_min": lambda x, axis: torch.amin(x, axis),
    "reduce_any": lambda x, axis: torch.any(x != 0, axis),
    "reduce_all": lambda x, axis: torch.all(x != 0, axis),
}
OTHERS = {
    "div", "atan2", "floordiv", "mod", "fma", "logical_not", "bitwise_not", "shl", "shr", "where",
    "cast", "fill", "gemm", "matmul", "dot", "transpose", "broadcast",
}  # fmt: skip


def test_every_lowered_row_has_a_test_here():
    covered = {*UNARY_FLOAT, *UNARY_SAME, *BINARY, *COMPARISONS, *TESTS, *BITWISE, *REDUCTIONS}
    lowered = {name for name, row in OPS.items() if row.lowered}
    assert covered | OTHERS == lowered


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", UNARY_FLOAT)
def test_functions(name, dtype):
    check(f"{name}(x0, y)", [dtype], dtype, wide(UNARY_FLOAT[name]), slack=2.0)


@pytest.mark.parametrize("name", ["exp", "sqrt", "sigmoid", "tanh"])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_functions_of_integers_give_f32(name, dtype):
    check(f"{name}(x0, y)", [dtype], "f32", wide(UNARY_FLOAT[name]), slack=2.0)


@pytest.mark.parametrize("dtype", FLOATS)
def test_gelu_in_its_tanh_form(dtype):
    expect = wide(lambda x: F.gelu(x, approximate="tanh"))
    # Near 0 of 1 + tanh, both cancel: the last digits of float64 differ.
    slack = 32.0 if dtype == "f64" else 2.0
    check('gelu(x0, y, approximate="tanh")', [dtype], dtype, expect, slack=slack)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("call", "expect"),
    [
        ("elu(x0, y, alpha=0.7)", lambda x: F.elu(x, 0.7)),
        ("leaky_relu(x0, y, slope=0.3)", lambda x: F.leaky_relu(x, 0.3)),
        ("clamp(x0, y, low=0.25)", lambda x: torch.clamp(x, min=0.25)),
    ],
)
def test_attributes(call, expect, dtype):
    check(call, [dtype], dtype, wide(expect), slack=2.0)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
@pytest.mark.parametrize("name", UNARY_SAME)
def test_same_type(name, dtype):
    call = "clamp(x0, y, low=-2, high=5)" if name == "clamp" else f"{name}(x0, y)"
    expect = UNARY_SAME[name]
    if dtype in FLOATS:
        expect = wide(keep_nan(expect))
    elif name in ("floor", "ceil", "round", "trunc"):
        expect = UNARY_SAME["copy"]
    check(call, [dtype], dtype, expect)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
@pytest.mark.parametrize("name", BINARY)
def test_arithmetic(name, dtype):
    made = None
    if name == "pow" and dtype in INTEGERS:

        def made(n, generator, size):
            limits = (-9, 10) if n == 0 else (0, 9)
            return generator.integers(*limits, size).astype(DType(dtype).numpy_name)

    function = wide(BINARY[name]) if dtype in FLOATS else BINARY[name]
    check(f"{name}(x0, x1, y)", [dtype, dtype], dtype, function, made, slack=2.0)


@pytest.mark.parametrize("name", ["add", "sub", "mul"])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_wrap(name, dtype):
    limits = np.iinfo(DType(dtype).numpy_name)

    def made(n, generator, size):
        return generator.integers(limits.min, limits.max, size, limits.dtype, endpoint=True)

    check(f"{name}(x0, x1, y)", [dtype, dtype], dtype, BINARY[name], made)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["div", "atan2"])
def test_float_division_and_angle(name, dtype):
    function = {"div": torch.true_divide, "atan2": torch.atan2}[name]
    check(f"{name}(x0, x1, y)", [dtype, dtype], dtype, wide(function), slack=2.0)


def test_division_of_integers_is_float():
    def made(n, generator, size):
        return generator.integers(1, 9, size).astype(np.int32)

    check("div(x0, x1, y)", ["i32", "i32"], "f32", wide(torch.true_divide), made)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["floordiv", "mod"])
def test_float_floor_division(name, dtype):
    compute = torch.float64 if dtype == "f64" else torch.float32

    def expect(a, b):
        quotient = torch.floor(a.to(compute) / b.to(compute)).double()
        return quotient if name == "floordiv" else a.double() - b.double() * quotient

    check(f"{name}(x0, x1, y)", [dtype, dtype], dtype, expect)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", ["floordiv", "mod"])
def test_integer_floor_division(name, dtype):
    def made(n, generator, size):
        values = random_array(generator, (size,), DType(dtype))
        return np.where(values == 0, 3, values).astype(values.dtype) if n else values

    functions = {
        "floordiv": lambda a, b: torch.div(a, b, rounding_mode="floor"),
        "mod": torch.remainder,
    }
    check(f"{name}(x0, x1, y)", [dtype, dtype], dtype, functions[name], made)


@pytest.mark.parametrize("name", ["floordiv", "mod"])
def test_integer_division_by_zero_is_an_error_on_valid_lanes_only(name):
    sketch = elaborated(one_operation(f"{name}(x0, x1, y)", ["i32", "i32"], "i32"))
    ones = np.ones(5, np.int32)
    for padding in (0, 3):  # void lanes hold no divisor, poisoned ones may hold anything
        interpret(sketch, {"X0": ones, "X1": ones}, options=Options(padding=padding))
    zero = np.array([1, 1, 0, 1, 1], np.int32)
    with pytest.raises(DiagnosticError, match="SK0807"):
        interpret(sketch, {"X0": ones, "X1": zero})


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons(name, dtype):
    check(f"{name}(x0, x1, y)", [dtype, dtype], "bool", COMPARISONS[name])


@pytest.mark.parametrize("name", [*COMPARISONS, *BITWISE])
def test_booleans(name):
    function = {**COMPARISONS, **BITWISE}[name]
    check(f"{name}(x0, x1, y)", ["bool", "bool"], "bool", function)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", TESTS)
def test_float_classes(name, dtype):
    check(f"{name}(x0, y)", [dtype], "bool", TESTS[name])


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, "bool"])
def test_logical_not(dtype):
    check("logical_not(x0, y)", [dtype], "bool", torch.logical_not)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", [*BITWISE, "bitwise_not"])
def test_bits(name, dtype):
    if name == "bitwise_not":
        check("bitwise_not(x0, y)", [dtype], dtype, torch.bitwise_not)
    else:
        check(f"{name}(x0, x1, y)", [dtype, dtype], dtype, BITWISE[name])


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", ["shl", "shr"])
def test_shifts(name, dtype):
    def made(n, generator, size):
        limits = (-1000, 1000) if n == 0 else (0, 31)
        return generator.integers(*limits, size).astype(DType(dtype).numpy_name)

    function = torch.bitwise_left_shift if name == "shl" else torch.bitwise_right_shift
    check(f"{name}(x0, x1, y)", [dtype, dtype], dtype, function, made)


@pytest.mark.parametrize("dtype", FLOATS)
def test_fma(dtype):
    check("fma(x0, x1, x2, y)", [dtype] * 3, dtype, wide(lambda a, b, c: a * b + c), slack=2.0)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_where(dtype):
    check("where(x0, x1, x2, y)", ["bool", dtype, dtype], dtype, torch.where)


@pytest.mark.parametrize("source", [*FLOATS, *INTEGERS, "bool"])
@pytest.mark.parametrize("target", FLOATS)
def test_cast_to_floats(source, target):
    check("cast(x0, y)", [source], target, lambda x: x)


@pytest.mark.parametrize("source", [*INTEGERS, *FLOATS, "bool"])
@pytest.mark.parametrize("target", [*INTEGERS, "bool"])
def test_cast_to_integers_rounds_to_nearest(source, target):
    def expect(x):
        return torch.round(x) if x.is_floating_point() and target != "bool" else x

    check("cast(x0, y)", [source], target, expect, special=False)


@pytest.mark.parametrize(
    ("mode", "function"),
    [("zero", torch.trunc), ("down", torch.floor), ("up", torch.ceil), ("nearest", torch.round)],
)
def test_cast_modes(mode, function):
    check(f'cast(x0, y, round="{mode}")', ["f32"], "i32", function, special=False)


@pytest.mark.parametrize(("mode", "sign"), [("down", -1), ("up", 1), ("zero", 0)])
@pytest.mark.parametrize("target", ["f32", "f16", "bf16"])
def test_cast_modes_between_floats(mode, sign, target):
    def expect(x):
        nearest = x.to(TORCH[target])
        back = nearest.double()
        towards = torch.where(x < 0, 1, -1) if sign == 0 else torch.full_like(x, sign)
        wrong = torch.where(towards > 0, back < x, back > x)
        step = torch.where(towards > 0, torch.inf, -torch.inf).to(TORCH[target])
        return torch.where(wrong, torch.nextafter(nearest, step), nearest)

    check(f'cast(x0, y, round="{mode}")', ["f64"], target, expect, special=False, slack=0.0)


def test_saturating_cast_and_one_that_does_not_fit():
    values = np.array([1e12, -1e12, np.nan, np.inf, 7.5], np.float32)
    sketch = elaborated(one_operation("cast(x0, y, sat=True)", ["f32"], "i32"))
    result = interpret(sketch, {"X0": values}).outputs["Y"]
    limits = np.iinfo(np.int32)
    assert result.tolist() == [limits.max, limits.min, 0, limits.max, 8]
    plain = elaborated(one_operation("cast(x0, y)", ["f32"], "i32"))
    for padding in (0, 3):
        with pytest.raises(DiagnosticError, match=r"SK0808.*1e\+12 does not fit i32 in lane"):
            interpret(plain, {"X0": values}, options=Options(padding=padding))


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, "bool"])
def test_fill(dtype):
    value, number = ("true", True) if dtype == "bool" else ("3", 3)
    value = "True" if dtype == "bool" else value
    check(f"fill({value}, y)", [dtype], dtype, lambda x: torch.full_like(x, number))


def test_scalars_take_the_tiles_type():
    check("add(x0, 0.1, y)", ["f32"], "f32", lambda x: x.double() + float(np.float32(0.1)))
    check("mul(x0, 3, y)", ["i64"], "i64", lambda x: x * 3)


def test_integer_scalars_wrap_at_64_bits():
    text = one_operation("add(x0, M * 4611686018427387904, y)", ["i64"], "i64")
    x = np.arange(3, dtype=np.int64)
    result = interpret(elaborated(text), {"X0": x}).outputs["Y"]
    assert result.tolist() == [2**62 * 3 - 2**64 + value for value in range(3)]


def test_a_narrow_tile_rounds_at_each_write():
    """f16: 2048 + 1 is 2048, so adding 1 twice adds nothing; PyTorch's f16 agrees."""
    text = one_operation("add(x0, 1.0, y)\n        add(y, 1.0, y)", ["f16"], "f16")
    values = np.array([2048.0, 1.0], np.float16)
    result = interpret(elaborated(text), {"X0": values}).outputs["Y"]
    expected = (torch.from_numpy(values) + 1) + 1
    assert result.tolist() == expected.tolist() == [2048.0, 3.0]


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
