"""A precondition that bounds a symbol is worth as much as a bound where it is declared."""

from __future__ import annotations

import pytest

from sketchc.base.diagnostics import Source
from sketchc.checker.api import check
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.lowering.plan import Plan
from sketchc.lowering.registry import TARGETS
from sketchc.parsing.parser import parse


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


def test_a_let_that_sizes_a_tile_is_bounded_or_checked_at_launch() -> None:
    """By what bounds it or what it is made of; else the host refuses what does not fit."""
    text = sketch().replace("let: LIMIT = 50*2;", "let: HALF_N = N//2, LIMIT = 50*2;")
    text = text.replace("alloc([N])", "alloc([HALF_N])").replace("0:N]", "0:HALF_N]")
    text = text.replace("out f32;", "out f32 = 0;")
    free = plan(text, "triton_cuda")
    assert [r.text.split(" <= ")[0] for r in free.sketch.requires if r.generated] == ["HALF_N"]
    for bound, require in (("", "HALF_N <= 100"), ("", "N <= 200"), (" <= 200", "M >= 0")):
        bounded = text.replace("M, N;", f"M, N{bound};").replace(
            "constexpr:", f"require: {require};\n    constexpr:"
        )
        found = plan(bounded, "triton_cuda")
        assert [let.upper_bound for let in found.sketch.lets] == [100, 100]
        assert not [r for r in found.sketch.requires if r.generated]
        assert [use.bytes for use in found.phases[0].memory_use] == [128 * 4]
