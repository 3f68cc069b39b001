"""Advice that would be wrong is not given."""

from __future__ import annotations

import pytest

from sketchc.checker.api import check
from sketchc.source import Source

BRANCH = """sketch masked {
    symbols: M, N <= 256;
    tensors: X[M, N]: in f32; MASK[M, N]: in f32; Y[M, N]: out f32;
    constexpr: CAUSAL: bool = False;

    @llm_hint("parallel")
    for i in range(M):
        x = alloc([N])
        mask = alloc([N])
        both = alloc([N])
        load(X[i, 0:N] -> x)
        load(MASK[i, 0:N] -> mask)
        if CAUSAL:
            add(x, mask, both)
            copy(both, x)
        store(x -> Y[i, 0:N])
}
"""
GATHER = """sketch pairs {
    symbols: M, N;
    tensors: X[M]: in f32; I[N]: in i64; J[N]: in i64; Y[N]: out f32;
    constexpr: T = 16;

    @llm_hint("parallel")
    for i in range(0, N, T):
        index = alloc([T], i64)
        a = alloc([T])
        b = alloc([T])
        load(I[i:i + T] -> index)
        load(X[index] -> a)
        load(J[i:i + T] -> index)
        load(X[index] -> b)
        add(a, b, a)
        store(a -> Y[i:i + T])
}
"""
PREDICATE = """sketch outside {
    symbols: M, N <= 512;
    tensors: X[M, N]: in f32; W[N]: in f32; Y[M, N]: out f32;

    @llm_hint("parallel")
    for i in range(0, M):
        chosen = alloc([N], bool)
        x = alloc([N], init=0)
        a = alloc([N])
        load(X[i, 0:N] -> x)
        for j in range(3):
            lt(x, j, chosen)
            load(W[0:N] -> a, where=chosen, pad=0)
            add(x, a, x)
        store(x -> Y[i, 0:N])
}
"""


@pytest.mark.parametrize(
    ("text", "code"),
    [(BRANCH, "SK0650"), (BRANCH, "SK0659"), (GATHER, "SK0653"), (PREDICATE, "SK0654")],
    ids=["loaded-for-a-branch", "made-for-a-branch", "other-indices", "other-lanes"],
)
def test_no_advice_against_what_is_needed(text: str, code: str):
    result = check(Source("a.sketch", text))
    assert result.ok
    assert code not in {found.code for found in result.diagnostics}
