"""Advice is given where it helps, and none that would be wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from sketchc.base.diagnostics import Source
from sketchc.checker.api import check
from sketchc.lowering.lints import lint as lint_plan
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.parsing.parser import parse

ROOT = Path(__file__).parents[2]

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


FRAME = """sketch a {{
    symbols: M, N;
    tensors: X[M, N]: in f32; H[M, N]: in f16; Y[M, N]: out f32; S[M]: out f16 = 0;
    constexpr: T = 64;

    @llm_hint("parallel")
    for i in range(0, M, T):
        for j in range(0, N, T):
{body}
}}
"""


def advice(*body: str) -> list[str]:
    """The codes for these statements in two loops, in the order of the text."""
    text = FRAME.format(body="\n".join(" " * 12 + line for line in body))
    result = check(Source("a.sketch", text), allow_unproved=True)
    assert result.sketches, [found.message for found in result.diagnostics]
    warned = sorted(result.diagnostics, key=lambda found: found.span.start)
    return [found.code for found in warned if found.code.startswith("SK065")]


TILES = ("x = alloc([T, T])", "p = iota(T, i, M)", "q = iota(T, j, N)")


@pytest.mark.parametrize(
    ("load", "store", "codes"),
    [
        ("p[:, None], q[None, :]", "i:i + T, j:j + T", []),
        ("p[None, :], q[:, None]", "p[None, :], q[:, None]", ["SK0652", "SK0652"]),
        ("p[:, None], 0*q[None, :]", "i:i + T, j:j + T", []),
        ("p[None, :], q[:, None] % N", "p[None, :], q[:, None] % N", []),
    ],
)
def test_lanes_of_indices_run_along_the_last_dimension(load: str, store: str, codes: list[str]):
    assert advice(*TILES, f"load(X[{load}] -> x)", f"store(x -> Y[{store}])") == codes


def test_an_atomic_sum_in_a_narrow_tensor():
    tiles = ("x = alloc([T, T])", "part = alloc([T])", "load(X[i:i + T, j:j + T] -> x)")
    rest = ("store(x -> Y[i:i + T, j:j + T])", "reduce_sum(x, 1, part)")
    assert advice(*tiles, *rest, "atomic_add(part -> S[i:i + T])") == ["SK0651"]
    assert advice(*tiles, *rest, "atomic_max(part -> S[i:i + T])") == []


def test_what_a_load_feeds_in_vain_goes_with_it():
    tiles = ("x = alloc([T, T])", "c = alloc([T, T])", "d = alloc([T, T])")
    loads = ("load(X[i:i + T, j:j + T] -> x)", "load(H[i:i + T, j:j + T] -> c)")
    last = "store(x -> Y[i:i + T, j:j + T])"
    assert advice(*tiles, *loads, "mul(c, 2.0, d)", "add(d, x, d)", last) == ["SK0650"]
    assert advice(*tiles, *loads, "mul(c, 2.0, d)", "add(d, x, x)", last) == []


def test_a_narrow_accumulator_is_said_once():
    text = (ROOT / "tests/golden/diagnostics/SK0602_narrow_accumulator.sketch").read_text("utf-8")
    codes = [found.code for found in check(Source("a.sketch", text)).diagnostics]
    assert codes == ["SK0602"]


COLUMNS = """sketch columns {{
    tensors: X[64, {size}]: in f32; Y[64]: out f32;
    constexpr: T = 1024;

    @llm_hint("parallel")
    for i in range(64):
        total = alloc([1], init=0)
        for j in range(0, {size}, T):
            x = alloc([T])
            part = alloc([1])
            load(X[i, j:j + T] -> x)
            reduce_sum(x, 0, part)
            add(total, part, total)
        store(total -> Y[i])
}}
"""


@pytest.mark.parametrize(("size", "codes"), [(2**20, ["SK0658"]), (2**14, [])])
def test_a_small_grid_is_judged_at_constant_extents(size: int, codes: list[str]):
    tree, _ = parse(Source("a.sketch", COLUMNS.format(size=size)))
    assert tree is not None
    plan = build_plan(tree.sketches[0], "triton_cuda", None, {}, False).plan
    assert [found.code for found in lint_plan(plan)] == codes


PASSES = """sketch passes {{
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[M, N]: out f32; A[M]: out f32; B[M]: out f32;
    workspace: W[M, N]: f32;
    constexpr: T = 64;

    @llm_hint("parallel")
    for i in range(M):
        a = alloc([1], f32, init=0)
        for j in range(0, N, T):
            x = alloc([T])
            part = alloc([1])
            load(X[i, j:j + T] -> x)
            reduce_sum(x, 0, part)
            add(a, part, a)
            exp(x, x)
            store(x -> W[i, j:j + T])
        store(a -> A[i])
{between}
        b = alloc([1], f32, init=0)
        for {loop}:
            x = alloc([T])
            part = alloc([1])
            load({load} -> x)
{rest}
            reduce_sum(x, 0, part)
            add(b, part, b)
            store(x -> Y[{row}, {columns}])
        store(b -> B[{row}])
}}
"""
TIMES_T = ("jj in range(ceil(N, T))", "jj*T:(jj+1)*T")
BY_T = ("c in range(0, N, T)", "c:c + T")
LAUNCH = '    @llm_hint("parallel")\n    for r in range(M):'


@pytest.mark.parametrize("header", [TIMES_T, BY_T], ids=["times", "by"])
@pytest.mark.parametrize(
    ("launch", "load", "needs", "found"),
    [
        (False, "X[i, {}]", "", True),
        (False, "X[i, {}]", "sub(x, a, x)", False),
        (False, "X[0, {}]", "", False),
        (True, "X[r, {}]", "", True),
        (True, "X[r, {}]", "load(A[r] -> part); sub(x, part, x)", False),
        (True, "X[0, {}]", "", False),
        (True, "W[r, {}]", "", True),
        (True, "W[r, {}]", "load(A[r] -> part); sub(x, part, x)", False),
        (True, "W[M-1-r, {}]", "", False),
    ],
)
def test_two_passes(
    header: tuple[str, str], launch: bool, load: str, needs: str, found: bool
) -> None:
    loop, columns = header
    row = "r" if launch else "i"
    text = PASSES.format(
        between=LAUNCH if launch else "        pass",
        loop=loop,
        load=load.format(columns),
        rest="            " + (needs or "pass"),
        row=row,
        columns=columns,
    )
    result = check(Source("a.sketch", text), allow_unproved=True)
    assert result.ok, result.diagnostics
    assert ("SK0655" in {each.code for each in result.diagnostics}) is found


@pytest.mark.parametrize(("columns", "scattered"), [(8, False), (2, True)])
def test_columns_of_a_line_that_a_short_loop_takes_together(columns: int, scattered: bool) -> None:
    text = f"""sketch f {{
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[M]: out f32;
    @llm_hint("parallel")
    for i in range(0, M, 16):
        s = alloc([16], f32, init=0)
        for q in range(ceil(N, {columns})):
            x = alloc([16])
            for j in range({columns}):
                load(X[i:i+16, q*{columns} + j] -> x, pad=0)
                add(s, x, s)
        store(s -> Y[i:i+16])
}}
"""
    found = {each.code for each in check(Source("a", text)).diagnostics}
    assert ("SK0652" in found) is scattered
