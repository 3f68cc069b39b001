"""Axes in groups, `iota(T, j*T, OG) + g*OG`: who writes an element is a quotient by a size that is
known to be positive by a condition only (LANGUAGE section 6)."""

from __future__ import annotations

from pathlib import Path

import pytest

from sketchc.base.diagnostics import Source
from sketchc.checker.api import check
from sketchc.ir import nodes as ir

CONV2D = Path(__file__).parents[2] / "examples/conv2d.sketch"


def covered(text: str) -> ir.Tier:
    """The tier of the claim that Y is covered."""
    result = check(Source("test", text))
    if "SK0510" in {diagnostic.code for diagnostic in result.diagnostics}:
        return ir.Tier.REFUTED
    assert result.ok, result.diagnostics
    (sketch,) = result.sketches
    return next(proof.tier for proof in sketch.proofs if proof.claim == "covered")


def grouped(
    require: str = "groups >= 1 and O == OG*groups",
    index: str = "iota(T, j*T, OG) + g*OG",
    groups: str = "groups",
    tiles: str = "ceil(OG, T)",
    let: str = "let: OG = O//groups;",
    params: str = "",
    output: str = "Y[O]",
) -> str:
    return f"""sketch grouped {{
    symbols: O;
    params: groups: i64 = 1; {params}
    {let}
    tensors: X[O]: in f32; {output}: out f32;
    constexpr: T = 16;
    {f"require: {require};" if require else ""}

    @llm_hint("parallel")
    for g in range({groups}):
        @llm_hint("parallel")
        for j in range({tiles}):
            x = alloc([T], f32, init=1)
            store(x -> Y[{index}])
}}
"""


SIZED = {
    "require": "size >= 1 and O == G*size",
    "index": "iota(T, j*T, size) + g*size",
    "groups": "G",
    "tiles": "ceil(size, T)",
    "let": "let: G = O//size;",
    "params": "size: i64 = 1;",
}


@pytest.mark.parametrize(
    "text",
    [
        grouped(),
        grouped("O == OG*groups"),  # that a divisor is positive is checked at launch
        grouped(index="g*OG + j*T:min(g*OG + (j+1)*T, (g+1)*OG)"),
        grouped(index="iota(T, j*T, OG) + (g-1)*OG", groups="1, groups + 1"),
        grouped(output="Y[groups, OG]", index="g, iota(T, j*T, OG)"),
        grouped(
            "groups >= 1 and b >= 1 and O == OG*groups*b",
            groups="groups*b",
            let="let: OG = O//(groups*b);",
            params="b: i64 = 1;",
        ),
        grouped("groups >= 1 and OG >= 0 and O == OG*groups", let="", params="OG: i64 = 1;"),
        grouped(**SIZED),
    ],
    ids=["plain", "divisor", "slices", "from-1", "two-axes", "two-params", "param", "size"],
)
def test_groups_that_a_condition_bounds_are_covered(text: str) -> None:
    assert covered(text) is ir.Tier.PROVED


@pytest.mark.parametrize(
    "text",
    [
        grouped("groups >= 1"),
        grouped("groups >= 1 and O <= OG*groups + 1"),
        grouped("groups >= 1 and O >= OG*groups"),
        grouped(index="iota(T, j*T, OG) + g*(OG+1)"),
        grouped(index="iota(T, j*T, OG) + g*(OG-1)"),
        grouped(index="iota(T, j*T, OG-1) + g*OG"),
        grouped(tiles="ceil(OG, T) - 1"),
        grouped(tiles="OG//T"),
        grouped(groups="groups - 1"),
        grouped(groups="1, groups"),
        grouped(groups="q", params="q: i64 = 1;"),
        grouped("1 <= q and q <= groups and O == OG*groups", groups="q", params="q: i64 = 1;"),
        grouped("groups <= -1 and O == OG*groups", let="let: OG = -O;"),
        grouped("O == OG*groups", let="", params="OG: i64 = 1;"),
        grouped("groups <= 1 and O == OG*groups", let="", params="OG: i64 = 1;"),
        grouped("groups >= -1 and O == OG*groups", let="", params="OG: i64 = 1;"),
        grouped(**{**SIZED, "require": "size >= 1"}),
    ],
    ids=[
        *("no-require", "less", "more", "wide", "narrow", "cut", "tiles", "whole-tiles"),
        *("last-group", "first-group", "other-param", "fewer", "negative", "any-sign"),
        *("sign-above", "sign-below", "sizes"),
    ],
)
def test_groups_that_leave_elements_out_are_refuted(text: str) -> None:
    assert covered(text) is ir.Tier.REFUTED


# ---------------------------------------------------------------- a convolution in groups


def conv2d(*changes: tuple[str, str]) -> str:
    text = CONV2D.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def test_a_convolution_in_groups_is_covered() -> None:
    """Image, row and column are digits of one index, whose radices are `let`s with quotients."""
    assert covered(conv2d()) is ir.Tier.PROVED


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("p//OW % OH", "p//OW % (OH-1)"),
        ("p//OW % OH", "p//OH % OH"),
        ("p//(OH*OW)", "p//(OH*OW+1)"),
        ("ow = p % OW", "ow = p % OH"),
        ("iota(TP, i*TP, N*OH*OW)", "iota(TP, i*TP, N*OH*OW-1)"),
        ("range(ceil(N*OH*OW, TP))", "range(N*OH*OW//TP)"),
        ("range(ceil(OG, TO))", "range(ceil(OG, TO)-1)"),
        ("iota(TO, j*TO, OG)", "iota(TO, j*TO, OG-1)"),
        ("range(groups)", "range(groups-1)"),
        ("range(groups)", "range(1, groups)"),
        ("OG) + g*OG", "OG) + g*(OG+1)"),  # wrong from two groups on
        # Wrong from two groups on, where output channels are left over.
        (" and O == OG*groups", ""),
        ("O == OG*groups", "O >= OG*groups"),
        ("O == OG*groups", "O <= OG*groups+1"),
    ],
)
def test_a_convolution_that_leaves_elements_out_is_refuted(old: str, new: str) -> None:
    assert covered(conv2d((old, new))) is ir.Tier.REFUTED
