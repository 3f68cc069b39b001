"""A condition of the launch is said once, and the tightest bound of a param stays."""

from __future__ import annotations

import pytest

from sketchc.base.diagnostics import Source
from sketchc.checker.api import check
from sketchc.launch.conditions import launch_conditions

TEXT = """sketch signed {{
    symbols: N;
    params: m: i32;
    require: {require};
    let: h = 3 - m;
    tensors: X[N]: in f32; Y[N]: out f32;
    @llm_hint("parallel")
    for i in range(N):
        v = alloc([1])
        load(X[i:i+1] -> v)
        mul(v, h % 7, v)
        store(v -> Y[i:i+1])
}}
"""


@pytest.mark.parametrize(
    ("require", "bounds"),
    [
        ("m <= 2147483647", ["-2147483648 <= m and m <= 2147483647"]),
        ("-2147483648 <= m", ["-2147483648 <= m and m <= 2147483647"]),
        ("m <= 9", ["-2147483648 <= m and m <= 2147483647", "m <= 9"]),
        ("m <= 9 and m <= 11", ["-2147483648 <= m and m <= 2147483647", "m <= 9 and m <= 11"]),
    ],
)
def test_bounds_of_a_param_are_listed_once(require: str, bounds: list[str]) -> None:
    (checked,) = check(Source("a", TEXT.format(require=require))).sketches
    found = [c.text for c in launch_conditions(checked.sketch) if "abs" not in c.text]
    assert sorted(text for text in found if "m" in text) == sorted(bounds)
