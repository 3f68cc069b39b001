"""What runs at several tile sizes must reach before results count as independent of them (R6b).

Each sketch here satisfies every proof; the wrong ones work per block where they should work on the
whole, in a way that only some sizes, params or inputs show.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sketchc.base.diagnostics import Severity, Source
from sketchc.checker import selfcheck
from sketchc.checker.api import check
from sketchc.checker.selfcheck import tile_size_verdict
from sketchc.checker.testing.goals import goals, reachable
from sketchc.checker.testing.settings import Settings
from sketchc.cli.main import run
from sketchc.interpreter.inputs import DRAWINGS, random_inputs
from sketchc.ir import nodes as ir
from sketchc.launch.inputs import promises
from sketchc.parsing.parser import parse


def verdict(text: str, **options: bool):
    """The verdict on the tile sizes of a sketch that passes the checker."""
    result = check(Source("one.sketch", text))
    assert result.ok, result.diagnostics
    assert result.tree is not None
    return tile_size_verdict(result.tree.sketches[0], **options)


def agreed(text: str) -> str:
    proof, found = verdict(text)
    assert proof is not None
    assert (proof.tier, found) == (ir.Tier.TESTED, ()), proof.detail
    return proof.detail


def refused(text: str) -> None:
    proof, found = verdict(text)
    assert proof is not None
    assert proof.tier is ir.Tier.REFUTED, proof.detail
    assert [item.code for item in found] == ["SK0809"]


def elaborated(text: str) -> ir.Sketch:
    result = check(Source("one.sketch", text))
    assert result.ok, result.diagnostics
    return result.sketches[0].sketch


MASK = """\
                    query = i*TM + iota(TM)
                    key = j*TN + iota(TN)
                    where(key[None, :] <= query[:, None], scores, -inf, scores)
"""


def attention(heads: str, extents: str = "S", mask: str = MASK) -> str:
    """Causal attention in blocks of keys; without its mask, a query sees its block's later keys."""
    return f"""sketch attention {{
    symbols: B, S, E{extents.removeprefix("S")};
    {heads}
    tensors: Q[B, S, E]: in f32; K[B, S, E]: in f32; V[B, S, E]: in f32; Y[B, S, E]: out f32;
    views:
        QV[B, S, heads, D] = Q;
        KV[B, S, heads, D] = K;
        VV[B, S, heads, D] = V;
        YV[B, S, heads, D] = Y;
    constexpr: TM in [32, 64], TN in [32, 64];
    @llm_hint("parallel")
    for b in range(B):
        @llm_hint("parallel")
        for h in range(heads):
            @llm_hint("parallel")
            for i in range(ceil(S, TM)):
                q = alloc([TM, D])
                y = alloc([TM, D], f32, init=0)
                total = alloc([TM, 1], init=0)
                load(QV[b, i*TM:(i+1)*TM, h, 0:D] -> q)
                for j in range(ceil(min((i+1)*TM, S), TN)):
                    k = alloc([TN, D])
                    v = alloc([TN, D])
                    scores = alloc([TM, TN], f32)
                    part = alloc([TM, 1])
                    load(KV[b, j*TN:(j+1)*TN, h, 0:D] -> k)
                    load(VV[b, j*TN:(j+1)*TN, h, 0:D] -> v)
                    matmul(q, k, scores, trans_b=True)
                    mul(scores, 0.01, scores)
{mask}                    exp(scores, scores)
                    reduce_sum(scores, 1, part)
                    add(total, part, total)
                    gemm(scores, v, y)
                div(y, total, y)
                store(y -> YV[b, i*TM:(i+1)*TM, h, 0:D])
}}
"""


def by_count(heads: int) -> str:
    return (
        f"params: heads: i64 = {heads}; let: D = E//heads; "
        "require: heads >= 1 and E == D*heads and D <= 128;"
    )


BY_WIDTH = "let: heads = E//D; require: D >= 1 and E == D*heads and D <= 128;"


@pytest.mark.parametrize("heads", [8, 16, 50])
def test_heads_of_a_param_are_found_sizes_that_give_several_blocks(heads: int) -> None:
    refused(attention(by_count(heads), mask=""))
    detail = agreed(attention(by_count(heads)))
    assert f"heads = {heads}" in detail
    assert "j " in detail.partition("most iterations of loops: ")[2]


def test_heads_of_a_symbol_for_their_width_are_too() -> None:
    text = attention(BY_WIDTH, "S, D").replace("tensors:", "tensors: W[D]: in f32;", 1)
    text = text.replace("load(QV", "load(W[0:D] -> w)\n                load(QV")
    text = text.replace("q = alloc([TM, D])", "q = alloc([TM, D])\n                w = alloc([D])")
    text = text.replace("for j in", "mul(q, w, q)\n                for j in")
    agreed(text)
    refused(text.replace(MASK, ""))


def rows(body: str, declared: str = "", tensors: str = "", extent: str = "N") -> str:
    lines = "\n".join(f"            {line}" for line in body.splitlines())
    return f"""sketch rows {{
    symbols: M, N;
    {declared}
    tensors: X[M, N]: in f32; Y[M, N]: out f32;{tensors}
    constexpr: T = 64 in [32, 64, 128];
    @llm_hint("parallel")
    for i in range(M):
        for j in range(ceil(N, T)):
            x = alloc([T])
            y = alloc([T])
            load(X[i, j*T:(j+1)*T] -> x)
            copy(x, y)
{lines}
            store(y -> Y[i, j*T:(j+1)*T])
}}
"""


@pytest.mark.parametrize(
    ("declared", "condition"),
    [
        ("params: mode: i64 = 0;", "mode == 1"),
        ("params: mode: i64 = 0;", "mode == 4711"),
        ("params: flag: bool = False;", "flag"),
        ("params: alpha: f32 = 0.0;", "alpha > 0.5"),
        ("params: mode: i64 = 3; let: other = mode*mode - 9;", "other > 0"),
        ("", "present(B)"),
    ],
)
def test_each_side_of_a_branch_is_taken_with_several_blocks(declared: str, condition: str) -> None:
    bias = " B[M, N]: in f32?;" if "present" in condition else ""
    refused(rows(f"if {condition}:\n    softmax(x, y)", declared, bias))
    right = "load(B[i, j*T:(j+1)*T] -> y)" if bias else "relu(x, y)"
    agreed(rows(f"if {condition}:\n    {right}", declared, bias))


def test_extents_behind_a_let_get_several_blocks() -> None:
    text = """sketch heads {
    symbols: M, D, H;
    let: DH = D//H;
    tensors: X[M, D]: in f32; W[H]: in f32; Y[M, D]: out f32;
    views: XV[M, H, DH] = X; YV[M, H, DH] = Y;
    constexpr: T = 64 in [32, 64, 128];
    require: H >= 4 and D == DH*H;
    @llm_hint("parallel")
    for i in range(M):
        @llm_hint("parallel")
        for h in range(H):
            w = alloc([1])
            load(W[h] -> w)
            for j in range(ceil(DH, T)):
                x = alloc([T])
                load(XV[i, h, j*T:(j+1)*T] -> x)
                mul(x, w, x)
                softmax(x, x)
                store(x -> YV[i, h, j*T:(j+1)*T])
}
"""
    refused(text)
    agreed(text.replace("softmax", "relu"))


@pytest.mark.parametrize("first", ["i + T", "i + T + 1"])
def test_runs_in_which_nothing_is_read_show_nothing(first: str) -> None:
    """Most sizes that launches take, and whole tiles of one lane, read no element at all."""
    text = f"""sketch late {{
    symbols: N;
    tensors: X[N]: in u8; COUNTS[256]: out i32 = 0;
    constexpr: T in [512, 1024, 2048];
    @llm_hint("parallel")
    for i in range(ceil(N, T)):
        x = alloc([T])
        load(X[{first}:(i+1)*T] -> x)
        atomic_add(1 -> COUNTS[x])
}}
"""
    refused(text)
    agreed(text.replace(first, "i*T"))


def test_a_param_takes_values_between_the_tile_sizes() -> None:
    """With the default of 1, and sizes drawn for all, nothing depends on T % stride."""
    text = """sketch strided {
    symbols: N, C, H, W;
    params: stride: i64 = 1; padding: i64 = 0; dilation: i64 = 1;
    let: OH = (H-1)*stride + 1; OW = (W-1)*stride + 1;
    tensors: X[N, C, H, W]: in f32; Y[N, C, OH, OW]: out f32;
    constexpr: T in [32, 64, 128];
    require: stride >= 1 and padding >= 0 and dilation >= 1;
    @llm_hint("parallel")
    for i in range(ceil(N*C*OH*OW, T)):
        x = alloc([T])
        p = iota(T, i*T, N*C*OH*OW)
        n = p//(C*OH*OW)
        c = p//(OH*OW) % C
        h = p//OW % OH
        w = p % OW
        load(X[n, c, h//stride, w//stride] -> x, pad=0, where=SIDE % stride == 0)
        store(x -> Y[n, c, h, w])
}
"""
    refused(text.replace("SIDE", "T"))
    agreed(text.replace("SIDE", "h"))


def test_values_of_params_are_tried_together() -> None:
    """What is computed from indices shows with a shift, in the branch of a flag, at several tiles;
    the shift needs a wider window than the default."""
    text = """sketch means {
    symbols: L;
    params: width: i64 = 2; shift: i64 = 0; inside: bool = False;
    let: OL = L + 2*shift - width + 1;
    tensors: X[L]: in f32; Y[OL]: out f32;
    constexpr: T in [64, 128];
    require: width >= 1 and shift >= 0 and 2*shift <= width;
    @llm_hint("parallel")
    for j in range(ceil(OL, T)):
        y = alloc([T], init=0)
        for k in range(width):
            x = alloc([T])
            first = j*T + k - shift
            load(X[first:first+T] -> x, pad=0)
            add(y, x, y)
        if inside:
            start = PLACE + iota(T) - shift
            div(y, min(start + width, L) - max(start, 0), y)
        store(y -> Y[j*T:(j+1)*T])
}
"""
    refused(text.replace("PLACE", "shift*T"))
    agreed(text.replace("PLACE", "j*T"))


EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("example", "old", "new"),
    [
        ("max_pool2d", "h = i*TH*stride", "h = i*TW*stride"),
        ("max_pool2d", "w = j*TW*stride", "w = j*TH*stride"),
        ("max_pool3d", "h = i*TH*stride", "h = i*TW*stride"),
        ("max_pool3d", "w = j*TW*stride", "w = j*TH*stride"),
    ],
)
def test_a_tile_size_in_the_place_of_another_shows(example: str, old: str, new: str) -> None:
    """Parallel loops run twice at sizes that differ from one another and from 1: with one
    iteration, or equal ones, each may stand for the other."""
    text = (EXAMPLES / f"{example}.sketch").read_text("utf-8")
    assert old in text
    agreed(text)
    refused(text.replace(old, new))


@pytest.mark.parametrize(
    ("condition", "sizes"),
    [
        ("T == U", (64, 64)),
        ("T % U == 0", (32, 64)),
        ("U % T == 0", (64, 32)),
        ("T == 2*U", (32, 64)),
        ("U == 2*T", (64, 32)),
    ],
)
def test_tile_sizes_that_a_condition_ties_differ_as_far_as_they_can(
    condition: str, sizes: tuple[int, int]
) -> None:
    u, t = sizes
    text = f"""sketch tied {{
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[M, N]: out f32;
    constexpr: U = {u} in [32, 64, 128], T = {t} in [32, 64, 128];
    require: {condition};
    @llm_hint("parallel")
    for i in range(ceil(M, U)):
        @llm_hint("parallel")
        for j in range(ceil(N, T)):
            x = alloc([U, T])
            load(X[i*U:(i+1)*U, j*T:(j+1)*T] -> x)
            relu(x, x)
            store(x -> Y[i*U:(i+1)*U, j*T:(j+1)*T])
}}
"""
    agreed(text)
    refused(text.replace("relu", "softmax"))


def test_a_loop_of_the_host_runs_twice() -> None:
    text = """sketch steps {
    symbols: N;
    params: steps: i64 = 1;
    tensors: X[N]: inout f32;
    constexpr: T = 64 in [32, 64];
    for s in range(steps):
        @llm_hint("parallel")
        for i in range(ceil(N, T)):
            x = alloc([T])
            load(X[i*T:(i+1)*T] -> x)
            if s > 0:
                softmax(x, x)
            store(x -> X[i*T:(i+1)*T])
}
"""
    refused(text)
    assert "s " in agreed(text.replace("softmax", "relu")).partition("iterations of loops")[2]


def product(stop: str, bound: str = "A*B*C") -> str:
    """Sums over flattened axes, in tiles that go up to `stop` and have lanes up to `bound`."""
    return f"""sketch sums {{
    symbols: M, N, A, B, C; tensors: X[N, A, B, C]: in f32; W[M, A, B, C]: in f32;
    tensors: Y[N, M]: out f32;
    constexpr: TN in [32, 64, 128], TM in [16, 32, 64], TK in [16, 32, 64];
    @llm_hint("parallel")
    for i in range(ceil(N, TN)):
        @llm_hint("parallel")
        for j in range(ceil(M, TM)):
            n = iota(TN, i*TN, N)
            m = iota(TM, j*TM, M)
            y = alloc([TN, TM], f32, init=0)
            for k0 in range(0, {stop}, TK):
                x = alloc([TN, TK])
                w = alloc([TK, TM])
                k = iota(TK, k0, {bound})
                a = k//(B*C)
                b = k//C % B
                c = k % C
                load(X[n[:, None], a[None, :], b[None, :], c[None, :]] -> x, pad=0)
                load(W[m[None, :], a[:, None], b[:, None], c[:, None]] -> w, pad=0)
                gemm(x, w, y)
            store(y -> Y[n[:, None], m[None, :]])
}}
"""


#: What is right up to some size, or by chance at some.
STOPS = ["A*B+C", "A*B*min(C, 6)", "A*min(B, 5)*C", "min(A*B*C, 140)", "min(A*B*C, A*24)"]


@pytest.mark.parametrize("stop", STOPS)
def test_a_loop_that_ends_before_its_lanes_shows(stop: str) -> None:
    """Only tiles that end before the last lane differ from those that hold all of them."""
    agreed(product("A*B*C"))
    refused(product(stop))


def test_what_a_last_tile_leaves_out_in_no_run_is_unproved(monkeypatch) -> None:
    """A launch sees it, and no time is left to run there."""
    monkeypatch.setattr(selfcheck, "CROSSING_TRIED", 0)
    proof, found = verdict(product("min(A*B*C, 140)"))
    assert proof is not None
    assert proof.tier is ir.Tier.UNPROVED, proof.detail
    assert "no run reached a last tile that ends before `A*B*C`" in proof.detail
    assert [item.code for item in found] == ["SK0810"]


SUM = """sketch total {
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[M]: out f32;
    constexpr: T = 64 in [32, 64, 128];
    @llm_hint("parallel")
    for i in range(M):
        total = alloc([1], f32, init=0)
        for j in range(ceil(N, T)):
            x = alloc([T])
            part = alloc([1])
            load(X[i, j*T:(j+1)*T] -> x)
            COMPUTE
            reduce_sum(x, 0, part)
            add(total, part, total)
        store(total -> Y[i])
}
"""


@pytest.mark.parametrize(
    "compute",
    [
        "log(x, x)",
        "neg(x, x)\n            log(x, x)",
        "mul(x, x, x)\n            sub(x, 1.0, x)\n            log(x, x)",
        "sub(x, inf, x)\n            rsqrt(x, x)",
    ],
)
def test_results_that_are_all_nan_or_infinite_show_nothing(compute: str) -> None:
    right = SUM.replace("COMPUTE", compute)
    wrong = right.replace("add(total, part, total)", "copy(part, total)")
    if "inf" in compute:
        for text in (right, wrong):
            proof, (error,) = verdict(text)
            assert proof is not None
            assert proof.tier is ir.Tier.UNPROVED
            assert (error.code, error.severity) == ("SK0810", Severity.ERROR)
            assert "NaN or Inf" in proof.detail
        return
    agreed(right)
    refused(wrong)


def test_what_is_not_reached_is_unproved_and_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No run takes the branch, which some launch may."""
    sketch = tmp_path / "rare.sketch"
    body = "if mode*mode % 100003 == 7:\n    softmax(x, y)"
    sketch.write_text(rows(body, "params: mode: i64 = 0;"))
    assert run(["check", str(sketch)]) == 1
    out = capsys.readouterr().out
    assert "error[SK0810]" in out
    (claim,) = (line for line in out.splitlines() if "tile-size " in line)
    assert "T: unproved (no run reached `" in claim
    assert "` true (line 13); results agree " in claim
    assert run(["check", str(sketch), "--allow-unproved"]) == 0
    out = capsys.readouterr().out
    assert "warning[SK0810]" in out
    assert "tile-size    T: unproved" in out


@pytest.mark.parametrize(
    ("declared", "body"),
    [
        (
            "params: mode: i64 = 0; require: mode == 0 or mode == 1;",
            "if mode != 0:\n    if mode == 1:\n        neg(x, y)\n    else:\n        softmax(x, y)",
        ),
        ("params: k: i64 = 1; require: k == 1;", "for s in range(k):\n    neg(x, x)"),
        ("require: N >= 1;", "if N < 1:\n    softmax(x, y)"),
    ],
)
def test_what_no_launch_reaches_is_not_asked_for(declared: str, body: str) -> None:
    detail = agreed(rows(body, declared))
    assert "not reached" not in detail


def test_operations_without_a_value_on_random_data_are_tried_on_other_data() -> None:
    text = """sketch ratio {
    symbols: M;
    tensors: X[M]: in i32; D[M]: in i32; Y[M]: out i32;
    constexpr: T = 4 in [4, 8];
    @llm_hint("parallel")
    for i in range(ceil(M, T)):
        x = alloc([T])
        d = alloc([T])
        one = alloc([1], i32, init=1)
        load(X[i*T:(i+1)*T] -> x)
        load(D[i*T:(i+1)*T] -> d)
        floordiv(x, d, x)
        store(x -> Y[i*T:(i+1)*T])
}
"""
    agreed(text)
    wrong = "reduce_sum(d, 0, one)\n        mul(x, one, x)\n        floordiv"
    refused(text.replace("floordiv", wrong))


# ---------------------------------------------------------------- promises about inputs


def placed(store: str, declared: str, loads: str = "load(TO[i*T:(i+1)*T] -> to)") -> str:
    return f"""sketch place {{
    symbols: N, M;
    tensors: X[N]: in f32; {declared};
    constexpr: T = 64 in [32, 64];
    @llm_hint("parallel")
    for i in range(ceil(N, T)):
        x = alloc([T])
        to = alloc([T])
        load(X[i*T:(i+1)*T] -> x)
        {loads}
        {store}
}}
"""


UNIQUE = placed("store(x -> Y[to], unique=True)", "TO[N]: in i64; Y[M]: inout f32")
COVERS = placed(
    "store(x -> Y[to], unique=True, covers=True)", "TO[N]: in i64; Y[N]: out f32"
).replace("N, M;", "N;")
SHIFTED = placed("store(x -> Y[to - 3], unique=True)", "TO[N]: in i64; Y[M]: inout f32")


@pytest.mark.parametrize("text", [UNIQUE, COVERS, SHIFTED], ids=["unique", "covers", "shifted"])
def test_a_promise_can_be_made_where_a_tile_size_is_tunable(text: str) -> None:
    assert "i " in agreed(text).partition("iterations of loops:")[2]


def test_a_promise_over_pairs_of_indices() -> None:
    text = """sketch place {
    symbols: N, P, Q;
    tensors: X[N]: in f32; R[N]: in i32; C[N]: in i64; Y[P, Q]: inout f32;
    constexpr: T = 64 in [32, 64];
    @llm_hint("parallel")
    for i in range(ceil(N, T)):
        x = alloc([T])
        r = alloc([T])
        c = alloc([T])
        load(X[i*T:(i+1)*T] -> x)
        load(R[i*T:(i+1)*T] -> r)
        load(C[i*T:(i+1)*T] -> c)
        store(x -> Y[r, c], unique=True)
}
"""
    agreed(text)
    sketch = elaborated(text)
    shapes = {"X": (12,), "R": (12,), "C": (12,), "Y": (3, 4)}
    found = random_inputs(sketch, shapes, np.random.default_rng(0))
    pairs = set(zip(found["R"].tolist(), found["C"].tolist(), strict=True))
    assert pairs == {(r, c) for r in range(3) for c in range(4)}


@pytest.mark.parametrize("covers", [False, True])
def test_a_promise_for_each_row(covers: bool) -> None:
    extent, role = ("N", "out") if covers else ("K", "inout")
    store = f"store(x -> Y[b, to], unique=True{', covers=True' * covers})"
    text = f"""sketch place {{
    symbols: B, N, K;
    tensors: X[B, N]: in f32; Z[K]: in f32; TO[B, N]: in i64; Y[B, {extent}]: {role} f32;
    constexpr: T = 64 in [32, 64];
    @llm_hint("parallel")
    for b in range(B):
        @llm_hint("parallel")
        for i in range(ceil(N, T)):
            x = alloc([T])
            to = alloc([T])
            load(X[b, i*T:(i+1)*T] -> x)
            load(TO[b, i*T:(i+1)*T] -> to)
            {store}
}}
"""
    agreed(text)
    sketch = elaborated(text)
    shapes = {"X": (5, 4), "Z": (4,), "TO": (5, 4), "Y": (5, 4)}
    found = random_inputs(sketch, shapes, np.random.default_rng(0))["TO"]
    assert all(sorted(row) == [0, 1, 2, 3] for row in found.tolist())


def test_a_tile_size_that_breaks_a_promise_is_refused() -> None:
    """Each block writes its first index twice where it has fewer lanes than it should."""
    wrong = UNIQUE.replace("TO[i*T:(i+1)*T]", "TO[(i*T)//3*3:(i*T)//3*3 + T]")
    wrong = wrong.replace("load(X[i*T:(i+1)*T]", "load(X[(i*T)//3*3:(i*T)//3*3 + T]")
    proof, found = verdict(wrong)
    assert proof is not None
    assert proof.tier is ir.Tier.REFUTED
    assert {item.code for item in found} <= {"SK0806", "SK0809"}


def test_promises_are_read_off_the_sketch() -> None:
    (promise,) = promises(elaborated(COVERS))
    assert (promise.tensors, promise.unique, promise.covers) == (("TO",), True, True)


@pytest.mark.parametrize("drawing", DRAWINGS)
def test_every_drawing_keeps_the_promise(drawing) -> None:
    sketch = elaborated(COVERS)
    shapes = {"X": (9,), "TO": (9,), "Y": (9,)}
    found = random_inputs(sketch, shapes, np.random.default_rng(0), drawing=drawing)
    assert sorted(found["TO"].tolist()) == list(range(9))


# ---------------------------------------------------------------- the parts


@pytest.mark.parametrize(
    "condition",
    [
        "N % 48 == 0 and N >= 1",
        "N == M*16",
        "M*M == N and M >= 3",
        "M >= 100 and N == M + 1",
        "N % 3 == 1 and M % 5 == 2 and N < M",
    ],
)
def test_settings_are_mended_until_a_launch_accepts_them(condition: str) -> None:
    sketch = elaborated(rows("relu(x, y)", f"require: {condition};"))
    settings = Settings(sketch, {})
    setting = settings.setting((7, 5))
    assert setting is not None
    assert settings.host_values(sketch, setting) is not None
    assert min(setting.symbols.values()) >= 1


def test_goals_of_a_sketch() -> None:
    sketch = elaborated(rows("if N > 4:\n    softmax(x, y)", "require: N >= 5;"))
    found = goals(sketch, ["T"])
    assert [(goal.name, goal.side, goal.trips, goal.tiles) for goal in found] == [
        ("i", None, 1, False),
        ("j", None, 2, True),
        ("", True, 2, False),
        ("", False, 2, False),
    ]
    assert [goal.side for goal in reachable(sketch, found)] == [None, None, True]


def test_the_parser_gives_what_the_claim_is_about() -> None:
    tree, _ = parse(Source("one.sketch", rows("relu(x, y)").replace("in [32, 64, 128]", "")))
    assert tree is not None
    assert tile_size_verdict(tree.sketches[0]) == (None, ())


def test_a_tile_size_of_one_value_has_nothing_to_vary() -> None:
    text = rows("softmax(x, y)").replace("64 in [32, 64, 128]", "64 in [64]")
    proof, _ = verdict(text)
    assert proof is None or proof.tier in (ir.Tier.PROVED, ir.Tier.REFUTED)


def test_where_windows_make_small_sizes_dear_runs_go_on() -> None:
    """An output needs 21 rows and columns of the input, and 441 loads an element."""
    assert "l_tile" in agreed(
        """\
sketch windows {
    symbols: K, P;
    let: K_OUT = (K-21)//21 + 1; P_OUT = (P-21)//21 + 1;
    tensors: X[K, P]: in f32; Y[K_OUT, P_OUT]: out f32;
    constexpr: T in [256, 512];

    @llm_hint("parallel", "grididx")
    for k in range(K_OUT):
        @llm_hint("parallel", "grididx")
        for l_tile in range(ceil(P_OUT, T)):
            total = alloc([T], init=0, llm_hint=["fastest", "accumulator"])
            for r in range(21):
                for s in range(21):
                    x = alloc([T], llm_hint=["fast", "input_cache"])
                    load(X[21*k+r, s+l_tile*T*21:min(s + (l_tile+1)*T*21, s + 21*P_OUT):21] -> x)
                    add(total, x, total)
            store(total -> Y[k, l_tile*T:(l_tile+1)*T])
}
"""
    )


#: The largest of four places in each of many channels.
LONG_AXIS = """sketch long_axis {
    symbols: P;
    let: P_OUT = P//4;
    tensors: X[300, P]: in f32; Y[300, P_OUT]: out f32;
    constexpr: T in [256, 512];

    @llm_hint("parallel", "grididx")
    for j in range(300):
        @llm_hint("parallel", "grididx")
        for l_tile in range(ceil(P_OUT, T)):
            largest = alloc([T], init=-inf, llm_hint=["fastest", "accumulator"])
            for s in range(4):
                x = alloc([T], llm_hint=["fast", "input_cache"])
                load(X[j, s+l_tile*T*4:min(s + (l_tile+1)*T*4, s + 4*P_OUT):4] -> x)
                max(largest, x, largest)
            store(largest -> Y[j, l_tile*T:(l_tile+1)*T])
}
"""


def test_what_work_is_short_for_gets_more_and_nothing_else_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few = selfcheck.Effort(settings=2, run_limit=3_000_000, limit=12_000_000, fixed=False)
    made: list[selfcheck.Effort] = []
    original = selfcheck.Execution.__init__

    def note(self: selfcheck.Execution, *arguments: object) -> None:
        made.append(arguments[4])  # type: ignore[arg-type]
        original(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(selfcheck.Execution, "__init__", note)
    enough = selfcheck.DETERMINED
    for name in ("QUICK", "PATIENT", "DETERMINED"):
        monkeypatch.setattr(selfcheck, name, few)
    proof, _ = verdict(LONG_AXIS)
    assert proof is not None
    assert proof.tier is ir.Tier.UNPROVED
    made.clear()
    monkeypatch.setattr(selfcheck, "DETERMINED", enough)
    assert "l_tile" in agreed(LONG_AXIS)
    assert made[-1] is enough
    # What no size reaches is not looked for again with more work.
    made.clear()
    never = LONG_AXIS.replace("symbols: P;", "symbols: P <= 800;").replace("300", "2")
    proof, _ = verdict(never.replace("[256, 512]", "[1024, 2048]"))
    assert proof is not None
    assert len(made) == 1


#: As many columns as a weight of fixed size has; groups of them are added up.
FIXED_COLUMNS = """sketch fixed_columns {
    symbols: M, N;
    tensors: X[M, N]: in f32; W[4096, N]: in f32; Y[M, 4096]: out f32; Z[M, 64]: out f32;
    constexpr: TM = 32 in [32, 64], TN = 32 in [32, 64], TK = 16 in [16, 32];

    @llm_hint("parallel", "grididx")
    for i_tile in range(ceil(M, TM)):
        @llm_hint("parallel", "grididx")
        for j_tile in range(ceil(4096, TN)):
            product = alloc([TM, TN], init=0)
            for r_tile in range(ceil(N, TK)):
                x = alloc([TM, TK])
                load(X[i_tile*TM:(i_tile+1)*TM, r_tile*TK:(r_tile+1)*TK] -> x)
                w = alloc([TN, TK])
                load(W[j_tile*TN:(j_tile+1)*TN, r_tile*TK:(r_tile+1)*TK] -> w)
                gemm(x, w, product, trans_b=True)
            store(product -> Y[i_tile*TM:(i_tile+1)*TM, j_tile*TN:(j_tile+1)*TN])
    @llm_hint("parallel", "grididx")
    for i in range(M):
        @llm_hint("parallel", "grididx")
        for j in range(64):
            y = alloc([64])
            load(Y[i, 64*j:64*j+64] -> y)
            total = alloc([1])
            reduce_sum(y, 0, total)
            store(total -> Z[i, j])
}
"""


def test_tiles_over_a_fixed_axis_grow_without_the_others() -> None:
    """Else either a run has thousands of tiles, or two tiles of rows have hundreds of rows."""
    assert "TM = 3, TN = 81, TK = 4" in agreed(FIXED_COLUMNS)
