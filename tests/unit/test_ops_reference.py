"""Every lowered row of the op table, through a one-operation sketch, against PyTorch.

Floats are compared with PyTorch in float64 on the same (exactly rounded) inputs, to one rounding of
the destination's type; integers and booleans exactly. Sizes are ragged, loops shuffled, and each
case runs on valid boxes and on padded arrays full of poison.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from operation_cases import (
    BINARY,
    BITWISE,
    COMPARISONS,
    FLOATS,
    INTEGERS,
    LANES,
    OTHERS,
    REDUCTIONS,
    TESTS,
    TORCH,
    UNARY_FLOAT,
    UNARY_SAME,
    F,
    check,
    elaborated,
    keep_nan,
    one_operation,
    wide,
)

from sketchc.base.diagnostics import DiagnosticError
from sketchc.base.types import DType
from sketchc.interpreter.api import Options, interpret
from sketchc.interpreter.inputs import random_array
from sketchc.ops.table import OPS


def test_every_row_has_a_test_here():
    covered = {*UNARY_FLOAT, *UNARY_SAME, *BINARY, *COMPARISONS, *TESTS, *BITWISE, *REDUCTIONS}
    assert covered | OTHERS | LANES == set(OPS)


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
        a, b = a.to(compute), b.to(compute)
        return torch.remainder(a, b) if name == "mod" else torch.div(a, b, rounding_mode="floor")

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


def test_scalars_stay_within_64_bits_and_data_wraps():
    """A scalar expression is an integer of the language: a launch at which it leaves 64 bits is
    refused. What it is added to is data."""
    sketch = elaborated(one_operation("add(x0, M * 4611686018427387904, y)", ["i64"], "i64"))
    x = np.array([2**62 + 5], np.int64)
    assert interpret(sketch, {"X0": x}).outputs["Y"].tolist() == [2**63 + 5 - 2**64]
    for size in (2, 3):
        with pytest.raises(DiagnosticError, match="SK0801"):
            interpret(sketch, {"X0": np.arange(size, dtype=np.int64)})


def test_a_narrow_tile_rounds_at_each_write():
    """f16: 2048 + 1 is 2048, so adding 1 twice adds nothing; PyTorch's f16 agrees."""
    text = one_operation("add(x0, 1.0, y)\n        add(y, 1.0, y)", ["f16"], "f16")
    values = np.array([2048.0, 1.0], np.float16)
    result = interpret(elaborated(text), {"X0": values}).outputs["Y"]
    expected = (torch.from_numpy(values) + 1) + 1
    assert result.tolist() == expected.tolist() == [2048.0, 3.0]


def test_the_columns_of_facts_name_rows() -> None:
    from sketchc.ops import table

    named = {name for names in table._FACTS.values() for name in names.split()} | {*table._PARTIAL}
    assert named <= set(table.OPS)
