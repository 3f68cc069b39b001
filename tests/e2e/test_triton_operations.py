"""Every operation of the op table, emitted, run under Triton's interpreter, against the oracle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import tile_operations
from sweeps import taken_by
from triton_cases import Array, Case, assert_close, dtype_of, lower, make_case, mixed, run_cases

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ops.table import OPS, Category

UNARY = [n for n, op in OPS.items() if op.operands == ("source",)]
UNARY = [n for n in UNARY if OPS[n].category is Category.ELEMENTWISE and n != "cast"]
BITWISE = ["bitwise_and", "bitwise_or", "bitwise_xor", "shl", "shr"]
TESTS = ["eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite"]
TESTS += ["logical_and", "logical_or", "logical_not"]
FLOAT_BINARY = ["add", "sub", "mul", "div", "max", "min", "pow", "atan2", "floordiv", "mod"]
INTEGER_BINARY = [n for n in FLOAT_BINARY if n != "atan2"] + BITWISE
#: Inputs that keep an operation inside its domain; the default is signed and of mixed scale.
DOMAIN: dict[str, Callable[[Array], Array]] = {
    "exp": lambda x: np.clip(x, -20, 20),
    "exp2": lambda x: np.clip(x, -30, 30),
    # Sine, cosine and tangent of large arguments lose what the argument's rounding lost.
    "tan": lambda x: np.clip(x, -1.4, 1.4),
}
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 2.5, -1.5, 1e-6])
N = 101


def sketch_of(lines: dict[str, str], dtype: str, outputs: dict[str, str]) -> str:
    """One sketch: inputs A, B, C [N]; each line writes the tile `t_NAME`, stored into Y_NAME."""
    tensors = "".join(f" Y_{name}[N]: out {outputs[name]};" for name in lines)
    body = ""
    for name, line in lines.items():
        body += f"        t_{name} = alloc([T], {outputs[name]})\n        {line}\n"
        body += f"        store(t_{name} -> Y_{name}[i*T:(i+1)*T])\n"
    return (
        "sketch operations {\n    symbols: N;\n"
        f"    tensors: A[N]: in {dtype}; B[N]: in {dtype}; C[N]: in {dtype};{tensors}\n"
        '    constexpr: T = 64;\n    @llm_hint("parallel", "grididx")\n'
        "    for i in range(ceil(N, T)):\n"
        "        a = alloc([T])\n        b = alloc([T])\n        c = alloc([T])\n"
        "        load(A[i*T:(i+1)*T] -> a)\n        load(B[i*T:(i+1)*T] -> b)\n"
        f"        load(C[i*T:(i+1)*T] -> c)\n{body}}}\n"
    )


def float_case(dtype: str) -> Case:
    lines = {name: f"{name}(a, t_{name})" for name in UNARY if "bitwise" not in name}
    lines["clamp"] = "clamp(a, low=-0.5, high=1.25, dst=t_clamp)"
    lines |= {name: f"{name}(a, b, t_{name})" for name in FLOAT_BINARY if name != "pow"}
    lines["pow"] = "pow(a, c, t_pow)"
    lines["gelu_tanh"] = 'gelu(a, approximate="tanh", dst=t_gelu_tanh)'
    lines["power_literal"] = "pow(a, 3.0, t_power_literal)"
    lines["square"] = "pow(a, 2, t_square)"
    lines["fma"] = "fma(a, b, c, t_fma)"
    lines["half"] = "mul(a, 0.5, t_half)"
    lines["filled"] = "fill(1.5, t_filled)"
    outputs = {name: "bool" if name in TESTS else dtype for name in lines}
    for name in TESTS:
        if name not in lines:
            lines[name] = f"{name}(a, b, t_{name})"
            outputs[name] = "bool"
    lines["chosen"] = "where(t_lt, a, b, t_chosen)"
    outputs["chosen"] = dtype
    return make_case(lower(sketch_of(lines, dtype, outputs))[1], {"N": N}, tensors=inputs(dtype))


def tiny_case(dtype: str) -> Case:
    """Numbers about the smallest normal one, which some of Triton's primitives take for zero."""
    lines = {name: f"{name}(a, t_{name})" for name in UNARY if "bitwise" not in name}
    lines |= {name: f"{name}(a, b, t_{name})" for name in FLOAT_BINARY if name != "pow"}
    outputs = {name: "bool" if name in TESTS else dtype for name in lines}
    for mode in ("nearest", "down", "up", "zero"):
        lines[f"cast_{mode}"] = f'cast(a, round="{mode}", sat=True, dst=t_cast_{mode})'
        outputs[f"cast_{mode}"] = "i32"
    information = ml_dtypes.finfo(dtype_of(DType(dtype)))
    ends = np.array([information.smallest_subnormal, information.smallest_normal], np.float64)
    sizes = np.outer(ends, [1, 3, 8]).ravel()
    a, b = np.array(np.meshgrid(*2 * [[*sizes, *-sizes]])).reshape(2, -1)
    tensors = {"A": a, "B": b, "C": a}
    tensors = {name: array.astype(dtype_of(DType(dtype))) for name, array in tensors.items()}
    kernel = lower(sketch_of(lines, dtype, outputs))[1]
    return make_case(kernel, {"N": a.size}, tensors=tensors)


def exact_case() -> Case:
    """Quotients that are whole, of which all digits count, and powers over all of f32's range: of
    a chip's own instructions, some would be 1 less, and large powers off by as many units."""
    lines = {"whole": "trunc(a / b, t_whole)", "exp": "exp(c, t_exp)"}
    whole, divisors = np.array(np.meshgrid(np.arange(-9, 10), np.arange(1, 200))).reshape(2, -1)
    tensors = {"A": whole * divisors, "B": divisors, "C": np.linspace(-88, 88.7, whole.size)}
    tensors = {name: array.astype(np.float32) for name, array in tensors.items()}
    kernel = lower(sketch_of(lines, "f32", dict.fromkeys(lines, "f32")))[1]
    return make_case(kernel, {"N": whole.size}, tensors=tensors)


RUNNING = """sketch running {
    symbols: N <= 64;
    tensors: A[N]: in f32; Y_ON[N]: out f32; Y_BACK[N]: out f32;

    @llm_hint("parallel", "grididx")
    for i in range(1):
        a = alloc([N])
        t_on = alloc([N])
        t_back = alloc([N])
        load(A[0:N] -> a)
        cumprod(a, 0, t_on)
        cumprod(a, 0, t_back, reverse=True)
        store(t_on -> Y_ON[0:N])
        store(t_back -> Y_BACK[0:N])
}
"""


#: Powers of ten. "within": products from either end are within f32's range, while those of
#: neighbours are not. "beyond": they leave that of f64 at one side from one end, at the other side
#: from the other, and could come back; behind them, or before, is a zero.
_WITHIN = [-30, 30, 30, -30, -35, 30, 35, -30, -12, 12, -44, 38, 6]
_BEYOND = [*[38] * 9, *[-38] * 9, 7, 30, -np.inf, 30, *[38] * 9, *[-38] * 10]
POWERS = {"within": _WITHIN * 3, "beyond": _BEYOND, "beyond_back": _BEYOND[::-1]}


def running_case(name: str) -> Case:
    """Products of numbers of both signs from either end."""
    exponents = np.array(POWERS[name])
    signs = np.where(np.arange(exponents.size) % 5 == 2, -1.7, 1.3)
    tensors = {"A": (signs * 10.0**exponents).astype(np.float32)}
    return make_case(lower(RUNNING)[1], {"N": exponents.size}, tensors=tensors)


def inputs(dtype: str) -> dict[str, Array]:
    rng = np.random.default_rng(5)
    kind = DType(dtype)
    a, b, c = (mixed(rng, (N,), kind) for _ in range(3))
    if kind.is_float:
        a = np.clip(a.astype(np.float64), -1.4, 1.4).astype(dtype_of(kind))
        pairs = np.array(np.meshgrid(SPECIAL[:9], SPECIAL[:9])).reshape(2, -1)
        a[: pairs.shape[1]] = pairs[0].astype(a.dtype)
        b[: pairs.shape[1]] = pairs[1].astype(b.dtype)
        c = np.round(c.astype(np.float64) % 5).astype(c.dtype)
    elif kind is not DType.BOOL:
        b = np.where(b == 0, 7, b).astype(b.dtype)
        c = (np.abs(c) % 6).astype(c.dtype)
        limits = np.iinfo(a.dtype)
        a[:6] = [limits.min, limits.max, limits.min, limits.max, limits.min, limits.max]
        if kind.is_signed:
            b[:2] = -1  # the lowest number over -1 wraps
    return {"A": a, "B": b, "C": c}


def integer_case(dtype: str) -> Case:
    unary = ["copy", "neg", "abs", "relu", "sign", "bitwise_not", "floor", "round", "trunc"]
    lines = {name: f"{name}(a, t_{name})" for name in unary}
    for name in INTEGER_BINARY:
        right = "c" if name in ("pow", "shl", "shr") else "b"
        lines[name] = f"{name}(a, {right}, t_{name})"
    lines["clamp"] = "clamp(a, low=-3, high=200, dst=t_clamp)"
    lines["fma"] = "fma(a, b, c, t_fma)"
    lines["filled"] = "fill(3, t_filled)"
    seven = ("add", "sub", "mul", "max", "min", "floordiv", "mod", "bitwise_xor")
    lines |= {f"{name}_seven": f"{name}(a, 7, t_{name}_seven)" for name in seven}
    lines |= {
        name: f"{name}(a, b, t_{name})" for name in TESTS if OPS[name].operands != ("source",)
    }
    lines["logical_not"] = "logical_not(a, t_logical_not)"
    outputs = {name: "f32" if name == "div" else dtype for name in lines}
    outputs |= {name: "bool" for name in lines if name in TESTS}
    lines["where_positive"] = "gt(a, 3, t_where_positive)"
    outputs["where_positive"] = "bool"
    lines["picked"] = "where(t_where_positive, a, b, t_picked)"
    outputs["picked"] = dtype
    lines["literals"] = "where(t_where_positive, 5, 6, t_literals)"
    outputs["literals"] = dtype
    return make_case(lower(sketch_of(lines, dtype, outputs))[1], {"N": N}, tensors=inputs(dtype))


def cast_case(wide: bool = True) -> Case:
    lines, outputs = {}, {}
    for mode in ("nearest", "down", "up", "zero"):
        lines[f"int_{mode}"] = f'cast(a, round="{mode}", sat=True, dst=t_int_{mode})'
        lines[f"half_{mode}"] = f'cast(a, round="{mode}", dst=t_half_{mode})'
        lines[f"brain_{mode}"] = f'cast(a, round="{mode}", dst=t_brain_{mode})'
        outputs |= {f"int_{mode}": "i32", f"half_{mode}": "f16", f"brain_{mode}": "bf16"}
    lines["truth"], outputs["truth"] = "cast(a, t_truth)", "bool"
    if wide:
        lines["wide"], outputs["wide"] = "cast(a, t_wide)", "f64"
    rng = np.random.default_rng(9)
    a = (rng.standard_normal(N) * 10.0 ** rng.uniform(-7, 4, N)).astype(np.float32)
    a[:9] = [0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -2.5, np.inf, np.nan]
    tensors = {"A": a, "B": a, "C": a}
    return make_case(lower(sketch_of(lines, "f32", outputs))[1], {"N": N}, tensors=tensors)


def conversion_case(source: str, wide: bool = True) -> Case:
    """Casts to every type: A fits all of them, B holds anything, C anything that is no NaN."""
    lines, outputs = {}, {}
    for kind in DType if wide else [k for k in DType if k is not DType.F64]:
        target = kind.value
        lines[f"fit_{target}"] = f"cast(a, t_fit_{target})"
        outputs[f"fit_{target}"] = target
        if kind.is_integer:
            lines[f"sat_{target}"] = f"cast(b, sat=True, dst=t_sat_{target})"
            outputs[f"sat_{target}"] = target
        elif kind.is_float and not DType(source).is_float:
            lines[f"any_{target}"] = f"cast(c, t_any_{target})"
            outputs[f"any_{target}"] = target
        if not DType(source).is_float and kind.is_integer:
            lines[f"wrap_{target}"] = f"cast(c, t_wrap_{target})"
            outputs[f"wrap_{target}"] = target
    rng, kind = np.random.default_rng(11), DType(source)
    small = rng.integers(0, 100, N)
    if kind.is_float:
        wild = rng.standard_normal(N) * 10.0 ** rng.uniform(0, 4 if source == "f16" else 12, N)
        wild = wild.astype(dtype_of(kind))
        wild[:8] = [np.nan, np.inf, -np.inf, -0.5, 254.5, 255.5, -128.5, 127.5]
    elif kind is DType.BOOL:
        wild = rng.random(N) < 0.5
        small = small % 2
    else:
        limits = np.iinfo(dtype_of(kind))
        wild = rng.integers(limits.min, limits.max, N, endpoint=True, dtype=dtype_of(kind))
        wild[:4] = [limits.min, limits.max, 0, 1]
    tensors = {"A": small.astype(dtype_of(kind)), "B": wild, "C": wild}
    return make_case(lower(sketch_of(lines, source, outputs))[1], {"N": N}, tensors=tensors)


def product_text(dtype: str, accumulator: str, extents: tuple[int, int, int]) -> str:
    """Y = A B by tiles of these extents, with rows, columns and depth cut off."""
    rows, columns, depth = extents
    return f"""sketch product {{
    symbols: M, N, K;
    tensors: A[M, K]: in {dtype}; B[K, N]: in {dtype}; Y[M, N]: out {accumulator};
    constexpr: R = {rows}, S = {columns}, D = {depth};
    @llm_hint("parallel")
    for i in range(ceil(M, R)):
        @llm_hint("parallel")
        for j in range(ceil(N, S)):
            acc = alloc([R, S], {accumulator}, init=0)
            for k in range(ceil(K, D)):
                a = alloc([R, D])
                b = alloc([D, S])
                load(A[i*R:(i+1)*R, k*D:(k+1)*D] -> a)
                load(B[k*D:(k+1)*D, j*S:(j+1)*S] -> b)
                gemm(a, b, acc)
            store(acc -> Y[i*R:(i+1)*R, j*S:(j+1)*S])
}}
"""


#: Operand type, accumulator, tile extents: dots, products too shallow for one, large products of
#: types that have none.
PRODUCTS = {
    "product-i8": ("i8", "i32", (16, 16, 32)),
    "product-i8-shallow": ("i8", "i32", (16, 16, 8)),
    "product-i8-wide": ("i8", "i64", (8, 8, 8)),
    "product-u8": ("u8", "i32", (16, 16, 16)),
    "product-i16": ("i16", "i32", (8, 16, 4)),
    "product-i32-large": ("i32", "i32", (64, 32, 64)),
    "product-u32": ("u32", "u32", (8, 8, 8)),
    "product-f32-shallow": ("f32", "f32", (16, 16, 8)),
    "product-f32-large": ("f32", "f32", (64, 256, 8)),
    "product-f64": ("f64", "f64", (16, 16, 16)),
    "product-f64-large": ("f64", "f64", (64, 32, 64)),
}


def product_case(name: str) -> Case:
    dtype, accumulator, extents = PRODUCTS[name]
    kernel = lower(product_text(dtype, accumulator, extents))[1]
    return make_case(kernel, {"M": 21, "N": 19, "K": 45})


FLOATS = ("f32", "f16", "bf16", "f64")
INTEGERS = ("i64", "i32", "i16", "i8", "u8", "u32")
TINY = tuple(f"tiny-{dtype}" for dtype in FLOATS)
CONVERSIONS = tuple(f"from-{kind.value}" for kind in DType)
#: Operations across lanes by name; see `tile_operations`.
LANES = {name: (dtype, text) for name, dtype, text in tile_operations.all_sketches()}


def lane_cases(name: str, sizes: Sequence[dict[str, int]] = tile_operations.SIZES) -> list[Case]:
    """A sketch of `tile_operations` at each of these sizes."""
    dtype, text = LANES[name]
    kernel = lower(text)[1]
    known = [tensor.name for tensor in kernel.sketch.tensors]
    made = []
    for symbols in sizes:
        tensors = tile_operations.inputs(symbols, dtype)
        tensors = {tensor: array for tensor, array in tensors.items() if tensor in known}
        made.append(make_case(kernel, symbols, tensors=tensors))
    return made


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Case, object]]:
    """The cases that this run takes, by name, run in one worker."""
    taken = taken_by(request, test_operations_match_the_interpreter, "name")
    cases = {dtype: float_case(dtype) for dtype in FLOATS}
    cases |= {dtype: integer_case(dtype) for dtype in INTEGERS}
    cases["cast"] = cast_case()
    cases["exact"] = exact_case()
    cases |= {name: running_case(name) for name in POWERS}
    cases |= {name: tiny_case(name.removeprefix("tiny-")) for name in TINY}
    cases |= {name: conversion_case(name.removeprefix("from-")) for name in CONVERSIONS}
    cases |= {name: product_case(name) for name in PRODUCTS}
    cases = {name: case for name, case in cases.items() if name in taken}
    results = run_cases(list(cases.values()), Path(tmp_path_factory.mktemp("operations")))
    return {name: (case, r) for (name, case), r in zip(cases.items(), results, strict=True)}


def differences(case: Case, result: dict[str, Array], name: str) -> str:
    """What is wrong with the outputs of a case, one line each."""
    wrong = []
    for tensor, expected in case.expected.items():
        # f64 goes by exp2(y log2 x) in `pow`, whose documented error is larger.
        factor = 1000.0 if name == "f64" and tensor.startswith("Y_pow") else 8.0
        terms = 64 if name.startswith(("product", "scans")) else 1
        if tensor in ("Y_even", "Y_wide", "Y_one"):
            factor = 0.0  # `rand` has the same bits everywhere
        try:
            tiny = name.startswith("tiny")
            assert_close(result[tensor], expected, factor, terms, flushed=tiny)
        except AssertionError as error:
            wrong.append(f"{tensor}: {error}")
    return "\n".join(wrong)


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    "name", [*FLOATS, *INTEGERS, "cast", "exact", *POWERS, *TINY, *CONVERSIONS, *PRODUCTS]
)
def test_operations_match_the_interpreter(
    name: str, outcomes: dict[str, tuple[Case, object]]
) -> None:
    case, result = outcomes[name]
    assert isinstance(result, dict), result
    assert not (wrong := differences(case, result, name)), wrong


@pytest.fixture(scope="module")
def lane_outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[tuple[Case, object]]]:
    names = sorted(taken_by(request, test_lane_operations_match_the_interpreter, "name"))
    cases = {name: lane_cases(name) for name in names}
    every = [case for group in cases.values() for case in group]
    results = iter(run_cases(every, Path(tmp_path_factory.mktemp("lanes"))))
    return {name: [(case, next(results)) for case in group] for name, group in cases.items()}


@pytest.mark.sweep
@pytest.mark.parametrize("name", list(LANES))
def test_lane_operations_match_the_interpreter(
    name: str, lane_outcomes: dict[str, list[tuple[Case, object]]]
) -> None:
    for case, result in lane_outcomes[name]:
        assert isinstance(result, dict), result
        assert not (wrong := differences(case, result, name)), f"{case.symbols}: {wrong}"


def test_every_row_of_the_op_table_is_tried() -> None:
    texts = [float_case("f32"), integer_case("i32"), cast_case(), conversion_case("i8")]
    sources = [*(case.kernel.sketch for case in texts)]
    used = {
        statement.operation
        for sketch in sources
        for statement in walk.in_phases(sketch.phases)
        if isinstance(statement, ir.Compute)
    }
    used |= {name for _, text in LANES.values() for name in OPS if f" {name}(" in text}
    used |= {"gemm"}
    # A matmul is a gemm into zeros; the reductions stand among the feature sketches.
    others = {"matmul", "dot", "broadcast"}
    others |= {name for name, op in OPS.items() if op.category is Category.REDUCTION}
    others |= {name for name, op in OPS.items() if op.category is Category.COMPOSITE}
    assert used | others == set(OPS)
