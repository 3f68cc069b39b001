"""Domains across branches, host steps, loops that run down, and the operations that move lanes."""

from __future__ import annotations

import pytest
from test_domains_accesses import accepted, codes, inferred, statements, the_load, the_store

from sketchc.checker.domains.messages import describe
from sketchc.ir import nodes as ir


def branching(then: str, otherwise: str, condition: str = "N > 3", after: str = "") -> str:
    return f"""sketch branching {{
    symbols: M;
    params: N: i64 = 1;
    tensors: X[M]: in f32; Y[M]: out f32 = 0;
    constexpr: T = 8;

    @llm_hint("parallel")
    for i in range(ceil(M, T)):
        x = alloc([T], f32)
        if {condition}:
            {then}
        else:
            {otherwise}
        {after or "store(x -> Y[i*T:(i+1)*T])"}
}}
"""


FULL_LOAD = "load(X[i*T:(i+1)*T] -> x)"


@pytest.mark.parametrize(
    ("then", "otherwise", "condition", "refused"),
    [
        (FULL_LOAD, FULL_LOAD, "N > 3", False),
        (FULL_LOAD, "load(X[i*T:i*T + 4] -> x)", "N > 3", True),
        (FULL_LOAD, "load(X[i*T:M] -> x)", "(i+1)*T <= M", False),
        (FULL_LOAD, "load(X[i*T:M] -> x)", "(i+1)*T <= M + 1", False),
        ("load(X[i*T:i*T + 4] -> x)", "fill(0.0, x)", "N > 3", True),
        ("load(X[i*T:i*T + N] -> x)", FULL_LOAD, "N == T", False),
        ("load(X[i*T:i*T + N] -> x)", FULL_LOAD, "0 <= N and N < T", True),
    ],
)
def test_branches_agree_where_they_mean_the_same_lanes(
    then: str, otherwise: str, condition: str, refused: bool
) -> None:
    _, found = inferred(branching(then, otherwise, condition))
    assert ("SK0427" in codes(found)) == refused, found


def test_branches_may_differ_where_nothing_reads_the_tile() -> None:
    after = "load(X[i*T:(i+1)*T] -> x)\n        store(x -> Y[i*T:(i+1)*T])"
    accepted(branching(FULL_LOAD, "load(X[i*T:i*T + 4] -> x)", after=after))


def test_the_condition_of_a_branch_bounds_accesses_in_it() -> None:
    sketch = accepted(branching("load(X[i*T + iota(T)] -> x)", "fill(0.0, x)", "i*T + T <= M"))
    assert describe(the_load(sketch).domain) == "all lanes"


def test_what_the_host_knows_bounds_a_launch() -> None:
    sketch = accepted("""sketch steps {
    symbols: M, N;
    tensors: X[N, M]: in f32; Y[N, M]: out f32 = 0;
    constexpr: T = 8;

    for t in range(N - 1, 0, -1):
        if (t + 1)*T <= M:
            @llm_hint("parallel")
            for i in range(t + 1):
                x = alloc([T], f32)
                load(X[t, i*T:(i+1)*T] -> x)
                store(x -> Y[t - 1, i*T:(i+1)*T])
}
""")
    assert describe(the_load(sketch).domain) == "all lanes"
    assert describe(the_store(sketch).domain) == "all lanes"


@pytest.mark.parametrize(
    ("loop", "access", "expected"),
    [
        ("M - 1, -1, -4", "i:i-4:-1", "[lane < i + 1]"),
        ("M - 4, -1, -4", "i:i+4", "all lanes"),
        ("M, 0, -4", "i-4:i", "[4 - i <= lane]"),
        ("0, M, 4", "i:i+8:2", "[lane < (M - i - 1)//2 + 1]"),
    ],
)
def test_loops_that_run_down(loop: str, access: str, expected: str) -> None:
    sketch = accepted(f"""sketch down {{
    symbols: M;
    tensors: X[M]: in f32; Y[M]: out f32 = 0;
    for i in range({loop}):
        x = alloc([4], f32)
        load(X[{access}] -> x)
        store(x -> Y[{access}])
}}
""")
    assert describe(the_load(sketch).domain) == expected


def test_an_accumulator_over_a_triangle_has_the_lanes_of_its_first_block() -> None:
    """The inner loop's variable runs down from the outer one: its first iteration is widest."""
    sketch = accepted("""sketch triangle {
    symbols: M;
    tensors: X[M]: in f32; Y[M]: out f32 = 0;
    @llm_hint("parallel")
    for i in range(M - 1, -1, -4):
        acc = alloc([4], f32, init=0)
        for j in range(i, -1, -1):
            x = alloc([4], f32)
            load(X[j:j-4:-1] -> x)
            add(acc, x, acc)
        store(acc -> Y[i:i-4:-1])
}
""")
    (acc,) = [tile for tile in sketch.tiles if tile.name == "acc"]
    assert acc.domain is not None
    assert describe(acc.domain) == "[lane < i + 1]"


def computed(body: str, tiles: str, store: str) -> ir.Sketch:
    return accepted(f"""sketch computed {{
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[M, N]: out f32 = 0; Z[N, M]: out f32 = 0; V[M]: out i64 = 0;
    @llm_hint("parallel")
    for i in range(0, M, 4):
        for j in range(0, N, 8):
            x = alloc([4, 8], f32)
            {tiles}
            load(X[i:i+4, j:j+8] -> x)
            {body}
            {store}
}}
""")


TWO = "w = alloc([4, 8], f32, init=0)\n            y = alloc([4, 16], f32)"
ROWS, COLUMNS = "lane < M - i", "lane < N - j"


@pytest.mark.parametrize(
    ("operation", "tile", "store", "expected"),
    [
        ("cumsum(x, 1, y)", "y = alloc([4, 8], f32)", "Y[i:i+4, j:j+8]", [ROWS, COLUMNS]),
        ("permute(x, [1, 0], y)", "y = alloc([8, 4], f32)", "Z[j:j+8, i:i+4]", [COLUMNS, ROWS]),
        ("argmax(x, 1, y)", "y = alloc([4], i64)", "V[i:i+4]", [ROWS]),
        ("concat(w, x, 1, y)", TWO, "Y[i:i+4, j:j+16]", [ROWS, "lane < 8 + (N - j)"]),
        ("reshape(x, y)", "y = alloc([4, 8], f32)", "Y[i:i+4, j:j+8]", [ROWS, COLUMNS]),
    ],
)  # fmt: skip
def test_operations_move_lanes_and_their_validity(
    operation: str, tile: str, store: str, expected: list[str]
) -> None:
    sketch = computed(operation, tile, f"store(y -> {store})")
    (compute,) = [s for s in statements(sketch) if isinstance(s, ir.Compute)]
    assert describe(compute.domain) == f"[{', '.join(expected)}]"


def test_topk_keeps_all_places_of_its_destinations() -> None:
    sketch = accepted("""sketch best {
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[M, 2]: out f32 = 0; I[M, 2]: out i64 = 0;
    @llm_hint("parallel")
    for i in range(0, M, 4):
        v = alloc([4, 2], f32, init=-inf)
        w = alloc([4, 2], i64, init=-1)
        for j in range(0, N, 8):
            x = alloc([4, 8], f32)
            load(X[i:i+4, j:j+8] -> x)
            topk(x, j + iota(8), 1, v, w)
        store(v -> Y[i:i+4, 0:2])
        store(w -> I[i:i+4, 0:2])
}
""")
    for name in ("v", "w"):
        domain = sketch.tile(name).domain
        assert domain is not None
        assert describe(domain) == "[lane < M - i, all]"
    assert all(
        describe(s.domain) == "[lane < M - i, all]"
        for s in statements(sketch)
        if isinstance(s, ir.Compute | ir.Store)
    )
