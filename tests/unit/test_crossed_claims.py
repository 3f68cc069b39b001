"""Tested claims rest on runs in which what the sketch compares came out either way.

Each sketch is right at small sizes, and where sizes, lets or params make comparisons come out as
they do at small sizes; what is wrong shows only beyond.
"""

from __future__ import annotations

import numpy as np
import pytest

from sketchc.base.diagnostics import Source
from sketchc.checker.check import judge_sketch
from sketchc.interpreter.api import Options, interpret
from sketchc.interpreter.inputs import random_inputs
from sketchc.interpreter.launch import bind_values, tensor_shapes
from sketchc.ir import nodes as ir
from sketchc.parsing.parser import parse

VOLUME = """sketch volume {
    symbols: D, H;
    require: D >= 3 and H >= 2;
    let: OD = D - 2; OH = H - 1;
    tensors: X[D, H]: in f32; Y[OD, OH]: out f32;
    constexpr: T = 16;
    @llm_hint("parallel")
    for first in range(0, OD*OH, T):
        p = iota(T, first, OD*OH)
        od = p//OH % MODULUS
        oh = p % OH
        x = alloc([T])
        load(X[od, oh] -> x)
        store(x -> Y[od, oh])
}
"""

GROUPED = """sketch grouped {
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[M, N]: out f32;
    constexpr: TM = 16; TN = 32; G = 4;
    @llm_hint("parallel")
    for p in range(ceil(M, TM)*ceil(N, TN)):
        rows = ceil(M, TM)
        width = G*ceil(N, TN)
        first = p//width*G
        high = min(ROWS, G)
        i = first + p % width % high
        j = p % width//high
        x = alloc([TM, TN])
        load(X[i*TM:(i+1)*TM, j*TN:(j+1)*TN] -> x)
        store(x -> Y[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
}
"""

HEADS = """sketch heads {
    symbols: B, E;
    params: G: i64 = 4;
    require: G >= 1 and E % G == 0;
    let: W = E//G;
    tensors: X[B, E]: in f32; Y[B, E]: out f32;
    constexpr: T = 16;
    @llm_hint("parallel")
    for b in range(B):
        @llm_hint("parallel")
        for g in range(G):
            for j in range(0, WIDTH, T):
                x = alloc([T])
                load(X[b, g*W+j:g*W+min(j+T, W)] -> x)
                store(x -> Y[b, g*W+j:g*W+min(j+T, W)])
}
"""


def judged(text: str) -> tuple[ir.Sketch, dict[tuple[str, str], ir.Proof]]:
    tree, found = parse(Source("one.sketch", text))
    assert tree is not None, found
    result, found = judge_sketch(tree.sketches[0])
    assert result is not None, found
    return result.sketch, {(proof.claim, proof.subject): proof for proof in result.proofs}


def assert_breaks(text: str, claim: str) -> None:
    """The claim on `Y` is refuted, and breaks in a run at its counter-example."""
    sketch, proofs = judged(text)
    proof = proofs[claim, "Y"]
    assert proof.tier is ir.Tier.REFUTED, proof.detail
    example = proof.counter_example
    assert example is not None
    values = bind_values(sketch, example.symbols, example.params)
    shapes = tensor_shapes(sketch, values, 2**26)
    inputs = random_inputs(sketch, shapes, np.random.default_rng(0), example.params)
    result = interpret(sketch, inputs, example.symbols, example.params, Options(collect=True))
    assert claim in {violation.kind for violation in result.violations}


@pytest.mark.parametrize("modulus", ["5", "27", "64", "(27 + H//H)", "max(OH, 30)"])
def test_a_modulus_in_the_place_of_an_extent(modulus: str) -> None:
    assert_breaks(VOLUME.replace("MODULUS", modulus), "covered")


def test_a_modulus_within_the_bounds_of_a_symbol() -> None:
    text = VOLUME.replace("D >= 3 and", "D >= 3 and D <= 40 and")
    assert_breaks(text.replace("MODULUS", "30"), "covered")
    _, proofs = judged(text.replace("MODULUS", "OD"))
    assert proofs["covered", "Y"].tier in (ir.Tier.PROVED, ir.Tier.TESTED)


def test_what_takes_too_long_to_reach_is_unproved() -> None:
    """No run has 100,003 rows, some launch may."""
    _, proofs = judged(VOLUME.replace("MODULUS", "100003"))
    proof = proofs["covered", "Y"]
    assert proof.tier is ir.Tier.UNPROVED
    assert "no run reached `p//OH >= 100003`, as with D = " in proof.detail


@pytest.mark.parametrize("rows", ["rows", "max(rows, 1)", "rows + first"])
def test_groups_that_forget_the_last_one(rows: str) -> None:
    assert_breaks(GROUPED.replace("ROWS", rows), "covered")


def test_right_groups_are_accepted() -> None:
    _, proofs = judged(GROUPED.replace("ROWS", "rows - first"))
    assert proofs["covered", "Y"].tier in (ir.Tier.PROVED, ir.Tier.TESTED)


@pytest.mark.sweep
@pytest.mark.parametrize(
    "width",
    [
        "W - 1",
        "max(W - 1, 1)",
        "min(W, T)",
        "min(W, 2*T)",
        "min(W, 40)",
        "W if b < 11 else W - 1",
        "W if W < 50 else 50",
        "W//T*T",
    ],
)
def test_the_width_of_a_head_is_crossed(width: str) -> None:
    assert_breaks(HEADS.replace("WIDTH", width), "covered")


@pytest.mark.parametrize("width", ["W", "min(W, E)", "max(W, 1)"])
def test_right_widths_are_accepted(width: str) -> None:
    _, proofs = judged(HEADS.replace("WIDTH", width))
    assert proofs["covered", "Y"].tier in (ir.Tier.PROVED, ir.Tier.TESTED)


def test_one_report_does_not_say_tested_and_never_written() -> None:
    """With tunable tiles, runs at other tile sizes break what those at its own ones do."""
    text = HEADS.replace("T = 16", "T = 16 in [16, 32]").replace("WIDTH", "min(W, T)")
    _, proofs = judged(text)
    assert proofs["covered", "Y"].tier is ir.Tier.REFUTED
