"""Claims that no proof decides are tried at sizes: which ones, and what the claim says of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sketchc.base.diagnostics import Source
from sketchc.checker.api import check
from sketchc.checker.check import judge_sketch
from sketchc.checker.testing.testing import MOST_EMPTY, settings
from sketchc.ir import nodes as ir
from sketchc.parsing.parser import parse

EXAMPLES = Path(__file__).parents[2] / "examples"

SPLIT = """sketch split {
    symbols: M, N, K;
    tensors: A[M, K]: in f32; B[K, N]: in f32; C[M, N]: out f32;
    workspace: P[S, M, N]: f32;
    constexpr: S: i64 = 4; TM = 16 in [16, 32], TN = 16 in [16, 32], TK = 16 in [16, 32];
    let: KS = cdiv(K, S);
    @llm_hint("parallel")
    for s in range(S):
        @llm_hint("parallel")
        for i in range(ceil(M, TM)):
            @llm_hint("parallel")
            for j in range(ceil(N, TN)):
                c = alloc([TM, TN], f32, init=0)
                for k in range(s*KS, min((s+1)*KS, K), TK):
                    a = alloc([TM, TK])
                    b = alloc([TK, TN])
                    load(A[i*TM:(i+1)*TM, k:min(k+TK, (s+1)*KS)] -> a)
                    load(B[k:min(k+TK, (s+1)*KS), j*TN:(j+1)*TN] -> b)
                    gemm(a, b, c)
                if CONDITION:
                    store(c -> P[s, i*TM:(i+1)*TM, j*TN:(j+1)*TN])
    @llm_hint("parallel")
    for i in range(ceil(M, TM)):
        @llm_hint("parallel")
        for j in range(ceil(N, TN)):
            c = alloc([TM, TN], f32, init=0)
            for s in range(S):
                p = alloc([TM, TN])
                load(P[s, i*TM:(i+1)*TM, j*TN:(j+1)*TN] -> p)
                add(c, p, c)
            store(c -> C[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
}
"""


def proofs(text: str) -> dict[tuple[str, str], ir.Proof]:
    tree, found = parse(Source("one.sketch", text))
    assert tree is not None, found
    judged, found = judge_sketch(tree.sketches[0])
    assert judged is not None, found
    return {(proof.claim, proof.subject): proof for proof in judged.proofs}


@pytest.mark.parametrize("sizes", [(5, 1, 1), (1, 5, 1), (1, 1, 5), (1, 2, 1), (2, 1, 3)])
def test_small_sizes_are_tried(sizes: tuple[int, int, int]) -> None:
    """What breaks at one setting of small sizes alone is found."""
    m, n, k = sizes
    square = f"M*M*N*N*K*K*K*(M + 10*N + 100*K) != {m * m * n * n * k**3 * (m + 10 * n + 100 * k)}"
    proof = proofs(SPLIT.replace("CONDITION", square))["initialised", "P"]
    assert proof.tier is ir.Tier.REFUTED, proof.detail
    assert proof.counter_example is not None
    assert dict(proof.counter_example.symbols) == {"M": m, "N": n, "K": k}


def test_few_of_the_sizes_are_empty() -> None:
    result = check(Source("one.sketch", SPLIT.replace("if CONDITION:", "if M >= 1:")))
    assert result.ok, result.diagnostics
    found = list(settings(result.sketches[0].sketch))
    assert sum(0 in sizes.values() for sizes in found) == MOST_EMPTY
    assert {"M": 5, "N": 1, "K": 1} in found
    assert len({tuple(sizes.values()) for sizes in found}) == len(found)


ROWS = """sketch rows {
    symbols: M, N;
    params: mode: i64 = 0;
    tensors: X[M, N]: in f32; Y[M, N]: out f32;
    constexpr: T = 64;
    @llm_hint("parallel")
    for i in range(M):
        @llm_hint("parallel")
        for j in range(ceil(N, T)):
            x = alloc([T])
            load(X[i, j*T:(j+1)*T] -> x)
            if CONDITION:
                store(x -> Y[i, j*T:(j+1)*T])
}
"""


def test_the_claim_names_the_sizes() -> None:
    proof = proofs(ROWS.replace("CONDITION", "M*M % 3 != 2"))["covered", "Y"]
    assert proof.tier is ir.Tier.TESTED
    assert "sizes (M = 0, 1, 2, 3, 5, 7, " in proof.detail.replace("4, ", "").replace("6, ", "")


def test_accesses_that_no_run_reached_are_unproved() -> None:
    text = ROWS.replace("if CONDITION:", "if mode*mode % 100003 == 7:")
    text = text.replace("Y[M, N]: out f32", "Y[M, N]: out f32 = 0")
    text = text.replace("Y[i, j*T:(j+1)*T]", "Y[(i*i + i*N) % (M*M + 1), j*T:(j+1)*T]")
    found = proofs(text)["independent", "Y"]
    assert found.tier is ir.Tier.UNPROVED
    assert "no run reached `" in found.detail


@pytest.mark.parametrize(
    ("bound", "tier"),
    [("T", ir.Tier.TESTED), ("T*T*T*T*T", ir.Tier.UNPROVED)],
)
def test_parallel_loops_run_twice_or_the_claim_is_unproved(bound: str, tier: ir.Tier) -> None:
    """With one iteration, nothing is seen of what two write."""
    text = ROWS.replace("ceil(N, T)", f"ceil(N, {bound})").replace("T = 64", "T = 16")
    text = text.replace("j*T:(j+1)*T", f"j*{bound}:(j+1)*{bound}").replace("CONDITION", "N >= 0")
    text = text.replace("alloc([T])", f"alloc([{bound}])").replace(
        "x -> Y[i, j", "x -> Y[(i*i*i + i) % (M*M*M + M), j"
    )
    found = proofs(text.replace("Y[M, N]: out", "Y[M*M*M + M, N]: inout"))["independent", "Y"]
    assert found.tier is tier, found.detail
    if tier is ir.Tier.UNPROVED:
        assert "no run reached the loop over `j` (line 9)" in found.detail


@pytest.mark.parametrize("wrong", ["N", "C", "W", "OW"])
def test_a_loop_over_the_wrong_extent_is_found(wrong: str) -> None:
    """Right but for sizes of which one is large while that of the loop gives one iteration."""
    path = Path(__file__).parents[2] / "examples/avg_pool2d.sketch"
    text = path.read_text("utf-8").replace("range(ceil(OH, TH))", f"range(ceil({wrong}, TH))")
    assert proofs(text)["covered", "Y"].tier is ir.Tier.REFUTED


def test_nothing_is_tested_where_an_access_is_refuted() -> None:
    text = (EXAMPLES / "unscale_gradients.sketch").read_text("utf-8")
    assert "j*TN:(j+1)*TN] -> gradient" in text
    wrong = text.replace("j*TN:(j+1)*TN] -> gradient", "j*i:(j+1)*TN] -> gradient")
    result = check(Source("wrong.sketch", wrong), {"TM": 2, "TN": 3})
    proofs = [proof for sketch in result.judged for proof in sketch.proofs]
    tiers = {(proof.claim, proof.subject): proof.tier for proof in proofs}
    assert tiers["slice-fits", "GRADIENT"] is ir.Tier.REFUTED
    assert tiers["covered", "Y"] is ir.Tier.UNPROVED  # written in part, where the load was left out
    assert [diagnostic.code for diagnostic in result.diagnostics] == ["SK0503"]
