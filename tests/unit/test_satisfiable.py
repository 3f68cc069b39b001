"""Conditions that no launch satisfies, and counter-examples that no run repeats."""

from __future__ import annotations

import attrs
import pytest

from sketchc.base.diagnostics import Source
from sketchc.checker.api import check
from sketchc.checker.claims.proofs import prove, reproduced, without_contradictions
from sketchc.checker.facts import Finding
from sketchc.ir import nodes as ir

TEXT = """sketch part {{
    symbols: N, M;
    params: k: i64, on: bool = True;
    tensors: X[N]: in f32; W[M]: in f32; Y[N]: out f32;
    constexpr: T = 4;
    require: {conditions};

    @llm_hint("parallel", "grididx")
    for i in range({stop}):
        x = alloc([T])
        load(X[i*T:(i+1)*T] -> x)
        store(x -> Y[i*{step}:i*{step}+T])
}}
"""


def checked(conditions: str, stop: str = "ceil(N, T)", step: str = "T"):
    text = TEXT.format(conditions=conditions, stop=stop, step=step)
    return check(Source("part.sketch", text))


@pytest.mark.parametrize(
    ("conditions", "contradict"),
    [
        ("N >= 8 and N < 8", True),
        ("k >= 3 and 2*k <= 5", True),
        ("N == 2*k and N % 2 == 1", True),
        ("N <= M and M < N", True),
        ("k >= 1 and k <= 1", False),
        ("N == 1000 and M == 7", False),
        ("N == 2*k", False),
        ("N % 2 == 1 or M == 3", False),
    ],
)
def test_conditions_that_nothing_satisfies_are_warned_of(conditions, contradict):
    result = checked(conditions)
    assert result.ok
    assert ("SK0660" in [found.code for found in result.diagnostics]) == contradict
    details = [proof.detail for proof in result.sketches[0].proofs]
    assert any("no launch satisfies" in detail for detail in details) == contradict


def test_a_counter_example_names_the_params_that_matter():
    result = checked("k >= 1 and k <= 2", step="k")
    examples = [p.counter_example for p in result.judged[0].proofs if p.tier is ir.Tier.REFUTED]
    assert examples
    for example in examples:
        assert example is not None
        assert set(example.params) == {"k"}
        assert "k = " in example.text


def test_what_no_run_repeats_is_unproved():
    result = checked("k >= 1 and k <= 2", step="k")
    sketch = result.judged[0].sketch
    _, proofs, _ = prove(sketch)
    wrong = next(p for p in proofs if p.tier is ir.Tier.REFUTED and p.claim == "independent")
    assert wrong.counter_example is not None
    (same,) = reproduced(sketch, [Finding(wrong)])
    assert same.proof == wrong
    # One block alone meets no other.
    example = attrs.evolve(wrong.counter_example, symbols={"N": 1, "M": 1})
    (other,) = reproduced(sketch, [Finding(attrs.evolve(wrong, counter_example=example))])
    assert other.proof.tier is ir.Tier.UNPROVED
    assert "no run repeats" in other.diagnostics[0].notes[-1]


def test_a_claim_has_one_verdict():
    holds = ir.Proof("in-bounds", "X", ir.Tier.PROVED, "")
    fails = ir.Proof("in-bounds", "X", ir.Tier.REFUTED, "")
    other = ir.Proof("in-bounds", "Y", ir.Tier.PROVED, "")
    kept = without_contradictions([Finding(holds), Finding(fails), Finding(other)])
    assert [finding.proof for finding in kept] == [fails, other]
