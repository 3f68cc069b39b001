"""Promises about places that are computed from inputs: inputs are found that keep them."""

from __future__ import annotations

import numpy as np
import pytest

from sketchc.base.diagnostics import Source
from sketchc.checker.api import check
from sketchc.checker.selfcheck import tile_size_verdict
from sketchc.interpreter.api import Options, interpret
from sketchc.interpreter.inputs import DRAWINGS, keeping_inputs, random_inputs
from sketchc.interpreter.launch import bind_values, tensor_shapes
from sketchc.ir import nodes as ir


def verdict(text: str):
    """The verdict on the tile sizes of a sketch that passes the checker."""
    result = check(Source("one.sketch", text))
    assert result.ok, result.diagnostics
    assert result.tree is not None
    return tile_size_verdict(result.tree.sketches[0])


def agreed(text: str) -> None:
    proof, found = verdict(text)
    assert proof is not None
    assert (proof.tier, found) == (ir.Tier.TESTED, ()), proof.detail


def elaborated(text: str) -> ir.Sketch:
    result = check(Source("one.sketch", text))
    assert result.ok, result.diagnostics
    return result.sketches[0].sketch


FLAT = """sketch flat_scatter {
    symbols: N, D, R;
    tensors: TO[N]: in i32; X[N, D]: in f32; Y[R, D]: inout f32;
    constexpr: T = 8 in [8, 16];
    views: YF[R*D] = Y;
    @llm_hint("parallel")
    for i in range(0, N, T):
        to = alloc([T], i32)
        load(TO[i:i+T] -> to)
        for j in range(0, D, T):
            x = alloc([T, T])
            column = j + iota(T)
            load(X[i:i+T, j:j+T] -> x)
            store(x -> YF[to[:, None]*D + column[None, :]], unique=True, where=column[None, :] < D)
}
"""
PERMUTED = """sketch permute_rows {
    symbols: B, N;
    tensors: TO[B, N]: in i32; X[B, N]: in f32; Y[B, N]: out f32;
    constexpr: T = 8 in [8, 16];
    @llm_hint("parallel")
    for b in range(B):
        @llm_hint("parallel")
        for i in range(0, N, T):
            to = alloc([T], i32)
            x = alloc([T])
            load(TO[b, i:i+T] -> to)
            sub(to, 1, to)
            load(X[b, i:i+T] -> x)
            store(x -> Y[b, to], unique=True, covers=True)
}
"""
HALVED = """sketch halved {
    symbols: N;
    tensors: X[N]: in f32; TO[N]: in i64; Y[N]: out f32 = 0;
    constexpr: T = 8 in [8, 16];
    @llm_hint("parallel")
    for i in range(0, N, T):
        x = alloc([T])
        to = alloc([T], i64)
        load(X[i:i+T] -> x)
        load(TO[i:i+T] -> to)
        floordiv(to, 2, to)
        store(x -> Y[to], unique=True)
}
"""
RANKED = """sketch by_group {
    symbols: N, E;
    tensors: G[N]: in i32; FIRST[E]: in i32; RANK[N]: in i32; X[N]: in f32; Y[N]: out f32;
    constexpr: T = 8 in [8, 16];
    @llm_hint("parallel")
    for i in range(0, N, T):
        g = alloc([T], i32)
        to = alloc([T], i32)
        rank = alloc([T], i32)
        x = alloc([T])
        load(G[i:i+T] -> g)
        load(FIRST[g] -> to)
        load(RANK[i:i+T] -> rank)
        add(to, rank, to)
        load(X[i:i+T] -> x)
        store(x -> Y[to], unique=True, covers=True)
}
"""
FETCHED = """sketch fetched {
    symbols: N, D, R;
    tensors: TO[N]: in i32; X[N, D]: in f32; Y[R, D]: inout f32;
    constexpr: T = 8 in [8, 16];
    @llm_hint("parallel")
    for n in range(N):
        to = fetch(TO[n])
        for j in range(0, D, T):
            x = alloc([T])
            load(X[n, j:j+T] -> x)
            store(x -> Y[to//2, j:j+T], unique=True)
}
"""
AWAY = HALVED.replace("floordiv(to, 2, to)", "sub(to, 1000, to)")
GATHERED = """sketch gathered {
    symbols: N, R;
    tensors: FROM[N]: in i32; X[R]: in f32; Y[N]: out f32;
    constexpr: T = 8 in [8, 16];
    @llm_hint("parallel")
    for i in range(0, N, T):
        at = alloc([T], i32)
        x = alloc([T])
        load(FROM[i:i+T] -> at)
        floordiv(at, 2, at)
        sub(at, 3, at)
        load(X[at] -> x)
        store(x -> Y[i:i+T])
}
"""
ADDED = """sketch added {
    symbols: N, R;
    tensors: TO[N]: in i32; X[N]: in f32; Y[R]: inout f32;
    constexpr: T = 8 in [8, 16];
    @llm_hint("parallel")
    for i in range(0, N, T):
        to = alloc([T], i32)
        x = alloc([T])
        load(TO[i:i+T] -> to)
        mul(to, -1, to)
        sub(to, 3, to)
        load(X[i:i+T] -> x)
        atomic_add(x -> Y[to])
}
"""
COMPUTED = {
    "gathered": (GATHERED, "load(FROM[i:i+T]", "load(FROM[i//2:i//2+T]"),
    "added": (ADDED, "load(X[i:i+T]", "load(X[i//2:i//2+T]"),
    "flat": (FLAT, "load(TO[i:i+T]", "load(TO[0:T]"),
    "permuted": (PERMUTED, "load(TO[b, i:i+T]", "load(TO[b, i//T:i//T+T]"),
    "halved": (HALVED, "load(X[i:i+T]", "load(X[i//2:i//2+T]"),
    "ranked": (RANKED, "load(RANK[i:i+T]", "load(RANK[0:T]"),
    "fetched": (FETCHED, "load(X[n, j:j+T]", "load(X[n, j//2:j//2+T]"),
    "away": (AWAY, "load(X[i:i+T]", "load(X[i//2:i//2+T]"),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", COMPUTED)
def test_a_promise_can_be_made_of_places_computed_from_inputs(name: str) -> None:
    text, right, wrong = COMPUTED[name]
    assert text.count(right) == 1
    agreed(text)
    proof, found = verdict(text.replace(right, wrong))
    assert proof is not None
    assert proof.tier is ir.Tier.REFUTED, proof.detail
    assert {item.code for item in found} <= {"SK0805", "SK0806", "SK0809"}


@pytest.mark.parametrize("text", [FLAT, PERMUTED, HALVED, RANKED], ids=lambda text: text[7:12])
def test_inputs_found_for_computed_places_keep_the_promise(text: str) -> None:
    """And they do not do so by going nowhere: what the indices promise is written."""
    sketch = elaborated(text)
    sizes = {"N": 4, "D": 3, "R": 5, "B": 2, "E": 2}
    symbols = {symbol.name: sizes[symbol.name] for symbol in sketch.symbols}
    shapes = tensor_shapes(sketch, bind_values(sketch, symbols, {}), 2**20)
    generator = np.random.default_rng(0)
    arrays = random_inputs(sketch, shapes, generator, drawing=DRAWINGS[-1])

    def trial(inputs):
        options = Options(collect=True, places=True)
        return interpret(sketch, inputs, symbols, {}, options)

    found = keeping_inputs(sketch, arrays, trial, list(symbols.values()), generator, 300)
    assert found is not None
    result = trial(found)
    assert result.violations == ()
    written = {place for one in result.places for place in one.positions.tolist() if place >= 0}
    assert len(written) == found["TO" if "TO" in found else "RANK"].size * symbols.get("D", 1)
    assert {name for name in arrays if found[name] is not arrays[name]} <= {"TO", "G", "RANK"}


def test_a_promise_that_no_inputs_keep_is_left_open_not_refuted() -> None:
    text = HALVED.replace("floordiv(to, 2, to)", "clamp(to, to, low=0, high=0)")
    proof, found = verdict(text)
    assert proof is not None
    assert proof.tier is ir.Tier.UNPROVED
    assert [item.code for item in found] == ["SK0810"]
    assert "a promise of inputs was broken" in proof.detail
    reached, _, ran = proof.detail.partition("most iterations of loops: ")
    assert "no run at telling tile sizes had two iterations of the loop over `i`" in reached
    assert "i " not in ran
