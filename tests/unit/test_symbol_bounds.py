"""A precondition that bounds a symbol is worth as much as a bound where it is declared."""

from __future__ import annotations

import pytest

from sketchc.checker.api import check
from sketchc.lowering.passes import build_plan
from sketchc.lowering.plan import Plan
from sketchc.lowering.registry import TARGETS
from sketchc.parser import parse
from sketchc.source import Source


def sketch(bound: str = "", require: str = "") -> str:
    return f"""sketch rows {{
    symbols: M, N{bound};
    let: LIMIT = 50*2;
    tensors: X[M, N]: in f32; Y[M, N]: out f32;
    constexpr: WIDEST = 100 in [50, 100], HALF: i64 = 50;
    {require}

    @llm_hint("parallel", "grididx")
    for i in range(M):
        x = alloc([N])
        y = alloc([WIDEST])
        load(X[i, 0:N] -> x)
        relu(x, x)
        store(x -> Y[i, 0:N])
}}
"""


def plan(text: str, target: str) -> Plan:
    tree, found = parse(Source("rows.sketch", text))
    assert tree is not None, found
    return build_plan(tree.sketches[0], target).plan


SAME = [
    "N <= 100",
    "N < 101",
    "100 >= N",
    "101 > N",
    "N == 100",
    "M >= 1 and N <= 100",
    "N <= LIMIT",
]
SAME += ["N <= LIMIT", "N <= 2*HALF", "N <= 200, N <= 100"]


@pytest.mark.parametrize("condition", SAME)
def test_a_bound_by_require_counts_as_one_by_declaration(condition: str) -> None:
    text = sketch(require=f"require: {condition};")
    assert "SK0601" not in {found.code for found in check(Source("rows.sketch", text)).diagnostics}
    for target in TARGETS:
        ours, declared = plan(text, target), plan(sketch(" <= 100"), target)
        assert [s.upper_bound for s in ours.sketch.symbols] == [None, 100]
        assert ours.tiles == declared.tiles
        assert ours.notes == declared.notes


@pytest.mark.parametrize("condition", ["M <= 100", "N <= 100 or M <= 3", "not N > 100", "N >= 100"])
def test_what_bounds_nothing(condition: str) -> None:
    text = sketch(require=f"require: {condition};")
    assert "SK0601" in {found.code for found in check(Source("rows.sketch", text)).diagnostics}


def test_a_tile_size_is_no_bound() -> None:
    """It changes with the tuning point, and a symbol's bound does not."""
    found = plan(sketch(require="require: N <= WIDEST;"), "cpp")
    assert [symbol.upper_bound for symbol in found.sketch.symbols] == [None, None]


def test_the_tighter_bound_counts() -> None:
    found = plan(sketch(" <= 64", "require: N <= 100;"), "cpp")
    assert [symbol.upper_bound for symbol in found.sketch.symbols] == [None, 64]
