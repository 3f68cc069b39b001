"""What is written under one shape and read under another: a view has the elements of its tensor,
all of them, so whoever writes all of one has written all of the other (R7, R8)."""

from __future__ import annotations

from itertools import product

import pytest
from proof_cases import check_against_runs, elaborated

from sketchc.base.diagnostics import Source
from sketchc.checker.api import check
from sketchc.checker.claims.proofs import prove
from sketchc.ir import nodes as ir

FLAT = """
    @llm_hint("parallel", "grididx")
    for i in range({count}):
        x = alloc([4])
        load(XF[i*4:i*4+4] -> x)
        store(x -> {name}[{lanes}])
"""
ROWS = """
    @llm_hint("parallel", "grididx")
    for b in range({rows}):
        for l in range(0, L, 4):
            x = alloc([4])
            load(X[b, l:l+4] -> x)
            store(x -> {name}[b, {lanes}])
"""
READ_FLAT = """
    @llm_hint("parallel", "grididx")
    for i in range(0, B*L, 4):
        y = alloc([4])
        load({name}[i:i+4] -> y)
        store(y -> YF[i:i+4])
"""
READ_ROWS = """
    @llm_hint("parallel", "grididx")
    for b in range(B):
        for l in range(0, L, 4):
            y = alloc([4])
            load({name}[b, l:l+4] -> y)
            store(y -> Y[b, l:l+4])
"""


def sketch(workspace: str, view: str, write: str, read: str, let: str = "") -> str:
    return f"""sketch shapes {{
    symbols: B, L;
    {let}
    tensors: X[B, L]: in f32; Y[B, L]: out f32;
    workspace: {workspace}: f32;
    views: {view}; XF[B*L] = X; YF[B*L] = Y;
{write}{read}}}
"""


def flat_then_rows(
    count: str = "ceil(B*L, 4)", lanes: str = "i*4:i*4+4", extent: str = "B*L", let: str = ""
) -> str:
    write = FLAT.format(count=count, lanes=lanes, name="W")
    return sketch(f"W[{extent}]", "WV[B, L] = W", write, READ_ROWS.format(name="WV"), let)


def rows_then_flat(
    rows: str = "B", lanes: str = "l:l+4", extent: str = "B*L", let: str = ""
) -> str:
    write = ROWS.format(rows=rows, lanes=lanes, name="WV")
    return sketch(f"W[{extent}]", "WV[B, L] = W", write, READ_FLAT.format(name="W"), let)


RIGHT = [
    flat_then_rows(),
    rows_then_flat(),
    flat_then_rows(extent="N", let="let: N = B*L;"),
    rows_then_flat(extent="N", let="let: N = B*L;"),
    sketch(
        "W[B, L]",
        "WF[B*L] = W",
        ROWS.format(rows="B", lanes="l:l+4", name="W"),
        READ_FLAT.format(name="WF"),
    ),
    sketch(  # the tensor itself is neither written nor read
        "W[L, B]",
        "WF[B*L] = W; WV[B, L] = W",
        FLAT.format(count="ceil(B*L, 4)", lanes="i*4:i*4+4", name="WF"),
        READ_ROWS.format(name="WV"),
    ),
]
WRONG = [
    *(flat_then_rows(count) for count in ("B*L//4", "ceil(B*L, 4) - 1", "1, ceil(B*L, 4)", "B")),
    *(flat_then_rows(lanes=lanes) for lanes in ("i*4:i*4+3", "i*4+1:i*4+5", "i*3:i*3+3")),
    *(rows_then_flat(rows) for rows in ("B - 1", "1, B", "min(B, 2)", "B//2")),
    *(rows_then_flat(lanes=lanes) for lanes in ("l:min(l+4, L-1)", "l:l+3")),
]


@pytest.mark.parametrize("text", RIGHT)
def test_what_is_written_under_another_shape_is_written(text: str) -> None:
    found = check_against_runs(text)
    assert set(found.values()) == {ir.Tier.PROVED}


@pytest.mark.parametrize("text", WRONG)
def test_a_gap_under_another_shape_is_refuted(text: str) -> None:
    """By a counter-example, or by the runs that follow."""
    assert check_against_runs(text)["initialised W"] is not ir.Tier.PROVED
    assert "SK0530" in [found.code for found in check(Source("test", text)).diagnostics]


def test_what_was_written_before_in_part_is_left_to_runs() -> None:
    """Only what is read was written: no proof of the whole, and no false accusation."""
    text = rows_then_flat("min(B, 2)").replace("range(0, B*L, 4)", "range(0, min(B, 2)*L, 4)")
    text = text.replace("W[i:i+4]", "W[i:min(i+4, min(B, 2)*L)]").replace("out f32", "out f32 = 0")
    assert check_against_runs(text)["initialised W"] is ir.Tier.UNPROVED
    result = check(Source("test", text))
    assert result.ok, result.diagnostics


def test_heads_of_a_linear_layer() -> None:
    """Rows of a matrix product, read as heads: [B*L, D] as [B, L, H, D//H]."""
    text = """sketch heads {
    symbols: B, L, D;
    params: H: i64 = 2;
    let: DH = D//H;
    require: H >= 1 and D % H == 0;
    tensors: X[B, L, D]: in f32; Y[B, H, L, DH]: out f32;
    workspace: W[B*L, D]: f32;
    views: WV[B, L, H, DH] = W; XF[B*L, D] = X;

    @llm_hint("parallel", "grididx")
    for i in range(0, B*L, 4):
        for d in range(0, D, 4):
            x = alloc([4, 4])
            load(XF[i:i+4, d:d+4] -> x)
            store(x -> W[i:i+4, d:d+4])
    @llm_hint("parallel", "grididx")
    for b in range(B):
        for h in range(H):
            for l in range(0, L, 4):
                for d in range(0, DH, 4):
                    y = alloc([4, 4])
                    load(WV[b, l:l+4, h, d:d+4] -> y)
                    store(y -> Y[b, h, l:l+4, d:d+4])
}
"""
    params = ({"H": 1}, {"H": 2}, {"H": 3})
    assert check_against_runs(text, (1, 2, 6), params)["initialised W"] is ir.Tier.PROVED


@pytest.mark.parametrize(("first", "order"), [*product((0, 1), ("1 - s", "s"))])
def test_a_loop_of_the_host_around_both(first: int, order: str) -> None:
    """Each round writes rows of one side under a flat shape, and reads those of either side."""
    text = f"""sketch rounds {{
    symbols: L;
    tensors: X[L]: in f32; Y[2, L]: inout f32;
    workspace: W[2, L]: f32;
    views: WF[2*L] = W;

    for s in range({first}, 2):
        @llm_hint("parallel", "grididx")
        for i in range(0, 2*L, 4):
            x = alloc([4], f32, init=0)
            store(x -> WF[i:min(i+4, max(i, L*(s+1)))])
        @llm_hint("parallel", "grididx")
        for l in range(0, L, 4):
            y = alloc([4])
            load(W[{order}, l:l+4] -> y)
            store(y -> Y[s, l:l+4])
}}
"""
    found = check_against_runs(text)["initialised W"]
    right = order == "s" or first == 1
    assert found is not (ir.Tier.REFUTED if right else ir.Tier.PROVED)


def test_what_is_not_shown_names_the_stores() -> None:
    text = """sketch squares {
    symbols: N;
    tensors: X[N]: in f32; Y[4*N]: out f32;
    workspace: W[4, N]: f32;
    views: WF[4*N] = W;

    @llm_hint("parallel", "grididx")
    for i in range(2):
        for j in range(2):
            x = alloc([16])
            for k in range(0, N, 16):
                load(X[k:k+16] -> x)
                store(x -> W[2*i*i + j*j, k:k+16])
    @llm_hint("parallel", "grididx")
    for k in range(0, 4*N, 16):
        y = alloc([16])
        load(WF[k:k+16] -> y)
        store(y -> Y[k:k+16])
}
"""
    (found,) = (one for one in prove(elaborated(text))[2] if one.code == "SK0531")
    assert "writes `W`, not provably the whole" in found.labels[0].text
    assert "under one shape" in found.help
