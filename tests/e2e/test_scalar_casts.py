"""Conversions of literals, constants, params and host values, in every direction, on every target.

A float is rounded once, from the type that it has; the interpreter, which is asked first, is held
to NumPy.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from every_target import run_everything
from triton_cases import Array, lower, make_case

from sketchc.base.types import DType, numpy_dtype

TARGETS = ("cpp", "triton_cuda", "triton_ascend")
ROUNDINGS = ("down", "up", "zero", "nearest")
#: The operands with their values; those that are f64 when the kernel runs, a target may lack.
OPERANDS = ("{}", "c", "p", "q", "t", "u")
WIDE = ("q", "t", "u")


def combinations(target: str) -> list[tuple[str, str, str]]:
    """Destination types with roundings and operands."""
    types = ("f32", "f16", "bf16", "i32", "u8", "bool")
    return [
        (dtype, rounding, operand)
        for dtype, rounding, operand in product(types, ROUNDINGS, OPERANDS)
        if target != "triton_ascend"
        or operand not in WIDE
        or (rounding == "nearest" and dtype.strip("bf").isdigit())
    ]


def sketch(target: str, number: float) -> str:
    tensors, lines = [], []
    for place, (dtype, rounding, operand) in enumerate(combinations(target)):
        tensors.append(f"Y{place}[N]: out {dtype};")
        lines += [
            f"y{place} = alloc([1], {dtype})",
            f'cast({operand.format(number)}, y{place}, round="{rounding}")',
            f"store(y{place} -> Y{place}[0:1])",
        ]
    return (
        f"""sketch conversions {{
    symbols: N;
    params: p: f32 = {number}, q: f64 = {number};
    constexpr: c = {number};
    let: t = p/3; u = q/3;
    require: N == 1;
    tensors: X[N]: in f32; Z[N]: out f32; {" ".join(tensors)}
    x = alloc([1], f32)
    load(X[0:1] -> x)
    store(x -> Z[0:1])
    """
        + "\n    ".join(lines)
        + "\n}\n"
    )


@pytest.mark.sweep
@pytest.mark.parametrize("number", [0.1, 1.6, 2.5, 254.9999])
@pytest.mark.parametrize("target", TARGETS)
def test_scalars_are_rounded_once_in_the_direction_asked_for(
    target: str, number: float, tmp_path: Path
) -> None:
    kernel = lower(sketch(target, number), target)[1]
    case = make_case(kernel, {"N": 1}, params={"p": number, "q": number})
    found = run_everything(target, [case], tmp_path)[0]
    assert isinstance(found, dict), found
    for place, (dtype, rounding, operand) in enumerate(combinations(target)):
        name = f"Y{place}"
        assert bits(found[name]) == bits(case.expected[name]), (dtype, rounding, operand)
        exact = float(np.float32(number)) if operand in ("p", "t") else number
        exact /= 3 if operand in ("t", "u") else 1
        assert is_rounded(case.expected[name], exact, DType(dtype), rounding)


def bits(array: Array) -> bytes:
    return np.ascontiguousarray(array).tobytes()


def is_rounded(array: Array, exact: float, dtype: DType, rounding: str) -> bool:
    """Whether the one element is a neighbour of `exact` on the right side, or the nearest."""
    value = float(array[0])
    if dtype is DType.BOOL:
        return value == 1
    if dtype.is_integer:
        unit = {"down": np.floor, "up": np.ceil, "zero": np.trunc, "nearest": np.rint}[rounding]
        return value == unit(exact)
    kind = numpy_dtype(dtype)
    below, above = (
        float(np.nextafter(np.asarray(array[0], kind), np.asarray(end, kind)))
        for end in (-np.inf, np.inf)
    )
    if rounding == "nearest":  # by way of the type that is computed in
        return abs(value - exact) <= (above - below) / 4 * (1 + 1e-6)
    return exact <= value and below < exact if rounding == "up" else value <= exact < above
