"""Every fact that the language prompt states, tried: the words stand in the prompt, and the checker
does what they say."""

from __future__ import annotations

import re

import pytest
from prompt_probes import ALLOWED, PROMPT, STORED, checked, codes, probe
from prompt_refusals import REFUSED

from sketchc.base.diagnostics import Source
from sketchc.checker.selfcheck import self_check


@pytest.mark.parametrize("name", ALLOWED)
def test_what_the_prompt_offers_checks(name: str) -> None:
    words, added, sections = ALLOWED[name]
    assert words in PROMPT
    assert codes(probe(STORED + added, sections)) == set()


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_prompt_warns_of_is_refused(name: str) -> None:
    words, body, sections, expected = REFUSED[name]
    assert words in PROMPT
    found = codes(probe(body, sections))
    assert expected <= found
    assert found <= expected | set(re.findall(r"SK\d{4}", words))


def test_accumulators_and_tiles_end_with_their_phase() -> None:
    assert "An accumulator made before the parallel loop: make it inside (SK0212)" in PROMPT
    assert "tiles and names of one nest end with it" in PROMPT
    text = probe(STORED + "add(acc, s, acc)").replace(
        '    @llm_hint("parallel"', '    acc = alloc([1], f32, init=0)\n    @llm_hint("parallel"'
    )
    assert codes(text) == {"SK0212"}


def test_names_of_the_top_level_remain() -> None:
    assert "`total` made at top level and in a later phase" in PROMPT
    text = probe(STORED + "total = alloc([1])\nfill(0, total)").replace(
        '    @llm_hint("parallel"',
        '    total = alloc([1], f32)\n    fill(0, total)\n    @llm_hint("parallel"',
    )
    assert codes(text) == {"SK0202", "SK0212"}


def test_initial_values_make_partial_stores_possible() -> None:
    assert "`Y[M]: out f32 = 0;` fills an output before the first launch" in PROMPT
    body = STORED + "store(y -> V[i+1, 1:N+1])\nstore(y -> Z[i, 0:min(N, 3)])"
    sections = "workspace: V[M+2, N+2]: f32 = 0;\n    tensors: Z[M, N]: out f32 = 0;"
    assert codes(probe(body, sections)) == set()


def test_a_result_over_one_tile_is_found_out() -> None:
    assert "A maximum or a sum over one tile is not that of the row" in PROMPT
    body = STORED + (
        "for j in range(ceil(N, T)):\n    x = alloc([T])\n    m = alloc([1])\n"
        "    load(X[i, j*T:(j+1)*T] -> x)\n    reduce_max(x, 0, m)\n    sub(x, m, x)\n"
        "    store(x -> Z[i, j*T:(j+1)*T])"
    )
    text = probe(body, "tensors: Z[M, N]: out f32;")
    assert codes(text) == set()
    assert {found.code for found in self_check(Source("probe", text))} == {"SK0809"}


def test_types_of_tiles_without_one() -> None:
    assert "Without a type the tile has that of the tensor first loaded into it, else f32" in PROMPT
    tensors = "X[M, N]: in f16; D[M, N]: in f64; Y[M, N]: out f16; Z[M, N]: out f64"
    text = f"""sketch probe {{
    symbols: M, N <= 64;
    tensors: {tensors};
    @llm_hint("parallel")
    for i in range(M):
        x = alloc([N])
        d = alloc([N])
        e = alloc([N])
        y = alloc([N])
        load(X[i, 0:N] -> x)
        load(D[i, 0:N] -> d)
        exp(x, y)
        exp(d, e)
        store(y -> Y[i, 0:N])
        store(e -> Z[i, 0:N])
}}
"""
    (result,) = checked(text).sketches
    found = {tile.name: tile.dtype.value for tile in result.sketch.tiles}
    assert found == {"x": "f16", "d": "f64", "e": "f64", "y": "f32"}
