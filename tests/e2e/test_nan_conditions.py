"""Conditions on floats: a NaN is on neither side of a comparison, on every target."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from every_target import run_everything
from triton_cases import lower, make_case

from sketchc.lowering.registry import TARGETS

CONDITIONS = ("v < 0.5", "not (v < 0.5)", "not (v >= 0.5 or v < 0.0)", "not (v != 0.5)")


def text(number: int, condition: str) -> str:
    """A fetched float, a param and the elements of a tile in the same condition."""
    name = f"neither_{number}"
    return f"""sketch {name} {{
    symbols: N;
    params: p: f32 = 0.0;
    tensors: X[N]: in f32; V[1]: in f32; A[N]: out f32 = 0; B[N]: out f32 = 0; C[N]: out f32 = 0;
        D[N]: out f32 = 0; E[N]: out f32 = 0;
    @llm_hint("parallel")
    for i in range(ceil(N, 16)):
        v = fetch(V[0])
        x = alloc([16])
        one = alloc([16], f32, init=1.0)
        load(X[i*16:(i+1)*16] -> x)
        store(one -> A[i*16:(i+1)*16], where={condition})
        if {condition}:
            store(one -> B[i*16:(i+1)*16])
        else:
            store(x -> B[i*16:(i+1)*16])
        store(one -> C[i*16:(i+1)*16], where={condition.replace("v", "x")})
        store(one -> D[i*16:(i+1)*16], where={condition.replace("v", "p")})
        if {condition.replace("v", "p")}:
            store(one -> E[i*16:(i+1)*16])
}}
"""


@pytest.mark.parametrize("target", TARGETS)
def test_a_nan_is_on_neither_side(target: str, tmp_path: Path) -> None:
    x = np.resize(np.array([np.nan, 0.25, -1.0, 0.5, 2.0, np.inf], np.float32), 37)
    cases = []
    for number, condition in enumerate(CONDITIONS):
        kernel = lower(text(number, condition), target)[1]
        for given in (np.nan, 0.25, 0.75):
            tensors = {"X": x, "V": np.array([given], np.float32)}
            cases.append(make_case(kernel, {"N": 37}, {"p": given}, tensors))
    for case, found in zip(cases, run_everything(target, cases, tmp_path), strict=True):
        assert not isinstance(found, str), found
        for name, expected in case.expected.items():
            message = f"{case.kernel.name}, {name}, {case.params}"
            np.testing.assert_array_equal(found[name], expected, err_msg=message)
