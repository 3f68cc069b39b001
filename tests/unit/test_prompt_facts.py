"""Every fact that the language prompt states, tried: the words stand in the prompt, and the checker
does what they say."""

from __future__ import annotations

import re

import pytest

from sketchc.agents.prompts.language import language
from sketchc.checker.api import CheckResult, check
from sketchc.diagnostics import Severity
from sketchc.selfcheck import self_check
from sketchc.source import Source

PROMPT = " ".join(language().split())

#: Sections that the probes need.
TENSORS = (
    "X[M, N]: in f32; S[M]: in f32; B[N]: in f32; F[C, H, W]: in f32; Y[M, N]: out f32; "
    "P[M]: out f32"
)
#: A program that loads all inputs and stores all outputs; probes are added to it.
STORED = """
y = alloc([N], f32)
b = alloc([N])
f = alloc([1])
s = alloc([1])
load(X[i, 0:N] -> y)
load(B[0:N] -> b)
load(S[i] -> s)
load(F[0, 0, 0] -> f)
store(y -> Y[i, 0:N])
store(s -> P[i])
"""


def probe(body: str, sections: str = "", tensors: str = TENSORS) -> str:
    """A sketch over M rows of at most 512 elements whose program is `body`."""
    lines = "\n".join(f"        {line}" for line in body.strip("\n").split("\n"))
    return f"""sketch probe {{
    symbols: M, N <= 512, C, H, W;
    params: alpha: f32 = 2.0;
    tensors: {tensors};
    constexpr: T in [16, 32], TM in [4, 8], WIDE = 8;
    require: C >= 1 and H >= 1 and W >= 1;
    {sections}

    @llm_hint("parallel", "grididx")
    for i in range(M):
{lines}
}}
"""


def checked(text: str) -> CheckResult:
    return check(Source("probe.sketch", text))


def codes(text: str) -> set[str]:
    """The codes of all errors and warnings."""
    wanted = (Severity.ERROR, Severity.WARNING)
    return {found.code for found in checked(text).diagnostics if found.severity in wanted}


#: What the prompt says can be written: words of the prompt, statements added to `STORED`, sections.
ALLOWED: dict[str, tuple[str, str, str]] = {
    "symbol bounds": (
        "allows tiles as wide as the symbol",
        "z = alloc([N])\nload(B[0:N] -> z)",
        "",
    ),
    "let": (
        "`let: OH = H - KH + 1; scale = 1/sqrt(D);`",
        "mul(y, q, y)",
        "let: q = 1/sqrt(N + 1);",
    ),
    "view splits": (
        "`XS[M, N//2, 2]` of `X[M, N]`",
        "z = alloc([16])\nfor j in range(ceil(N//2, 16)):\n    load(XS[i, j*16:(j+1)*16, 1] -> z)",
        "views: XS[M, N//2, 2] = X; require: N % 2 == 0;",
    ),
    "view adds an axis": (
        "`[TM, 1]` load from a view `S2[M, 1]` with `S2[i*TM:(i+1)*TM, 0:1]`",
        "z = alloc([TM, 1])\nload(S2[i*TM:(i+1)*TM, 0:1] -> z)",
        "views: S2[M, 1] = S;",
    ),
    "view joins": (
        "`XR[B*C, H*W]` of `X[B, C, H, W]`",
        "z = alloc([T])\nfor c in range(C*H):\n    load(FR[c, 0:min(T, W)] -> z)",
        "views: FR[C*H, W] = F;",
    ),
    "alloc": (
        '`x = alloc([T1, T2], f32, init=0, llm_hint=["fast"])` makes a tile. Type, `init=` and '
        "hints are optional",
        'z = alloc([T, TM], f32, init=0, llm_hint=["fast"])\nw = alloc([WIDE])\nfill(0, w)',
        "",
    ),
    "a scalar is a tile": ("a scalar is `alloc([1])`", "z = alloc([1], f32)\nfill(1.5, z)", ""),
    "scalar operands": (
        "a number (`2`, `0.5`, `1e-6`), `inf`, a symbol, a param, a loop variable or arithmetic of "
        "these",
        "add(y, 2, y)\nmax(y, -inf, y)\nmul(y, N, y)\nmul(y, alpha, y)\nadd(i * 2 + 1, y, y)\n"
        "sub(1.0, y, y)\nfma(y, alpha * 0.5, -alpha, y)",
        "",
    ),
    "integer names": ("`first = i*T` names an integer", "first = i*T\nadd(y, first, y)", ""),
    "ranges": (
        "`for i in range(stop)`, `range(start, stop)`, `range(start, stop, step)`",
        "for a in range(2):\n    for c in range(1, N):\n        for d in range(0, N, T):\n"
        "            mul(y, 2.0, y)",
        "",
    ),
    "integer functions": (
        "`min(a, b)`, `max(a, b)`, `ceil(a, b)`",
        "for j in range(ceil(N, T)):\n    add(y, min(j, 3) + max(j, 4) - j // 2 * (j % 3), y)",
        "",
    ),
    "iota masks": (
        "`where(m[:, None] >= n[None, :], x, -inf, x)`",
        "m = i*TM + iota(TM)\nn = iota(T)\nz = alloc([TM, T], f32)\nfill(1, z)\n"
        "where(m[:, None] >= n[None, :] and not n[None, :] == 3, z, -inf, z)\n"
        "w = alloc([T], f32)\ncast(n, w)",
        "",
    ),
    "whole axis": ("`X[i, :]` is a whole axis", "load(X[i, :] -> y)", ""),
    "one element": ("Scalars only (`S[c]`) fill `[1]`", "load(S[i] -> s)\nstore(s -> P[i])", ""),
    "broadcast": (
        "`[N]` or `[1]` against `[M, N]`",
        "z = alloc([TM, N], f32)\nw = alloc([TM, 1], f32)\nfill(1, z)\nfill(2, w)\n"
        "add(z, b, z)\nadd(z, s, z)\nadd(z, w, z)",
        "",
    ),
    "in place": ("The destination may be a source", "add(y, y, y)\nexp(y, y)", ""),
    "identities": (
        "the identity is right (0, 1, `-inf`, `inf`)",
        "a = alloc([1], f32, init=1)\nc = alloc([1], init=-inf)\nd = alloc([1], init=inf)",
        "",
    ),
    "small accumulators": (
        "scalars and axes of extent 1 do not count",
        "acc = alloc([1], f32, init=0)\nadd(acc, s, acc)\nadd(acc, 2.0, acc)\nadd(acc, f, acc)",
        "",
    ),
    "reduced axes": (
        "A reduction's destination drops the axis or keeps it with extent 1; reducing `[N]` gives "
        "`[1]`",
        "z = alloc([TM, T], f32)\nfill(1, z)\nk = alloc([TM, 1], f32)\nd = alloc([TM], f32)\n"
        "reduce_sum(z, 1, k)\nreduce_sum(z, -1, d)\nreduce_max(y, 0, s)\ne = alloc([1, 1], f32)\n"
        "reduce_sum(z, [0, 1], e)",
        "",
    ),
    "matmul": (
        "`matmul` overwrites",
        "a = alloc([TM, T], f32)\nc = alloc([TM, TM], f32)\nfill(1, a)\n"
        "matmul(a, a, c, trans_b=True)",
        "",
    ),
    "conversions": (
        "Float to float and to wider integers converts by itself",
        "h = alloc([N], f16)\ncopy(y, h)\nn = alloc([1], i32)\nfill(3, n)\nw = alloc([1], i64)\n"
        "copy(n, w)",
        "",
    ),
    "statements between": (
        "Statements between two parallel loops run again for every inner iteration",
        '@llm_hint("parallel", "grididx")\nfor j in range(3):\n    z = alloc([1])\n    fill(0, z)',
        "",
    ),
    "names side by side": (
        "Loops side by side may use the same names",
        "for j in range(2):\n    z = alloc([1])\n    fill(0, z)\n"
        "for j in range(2):\n    z = alloc([1])\n    fill(0, z)",
        "",
    ),
    "init_zero": (
        '"init_zero" alone means `init=0`',
        'z = alloc([1], f32, llm_hint=["init_zero"])\nadd(z, s, z)',
        "",
    ),
    "stencil": (
        "`X[h, j*T+k:min((j+1)*T, OW)+k]`",
        "for j in range(ceil(OW, T)):\n    z = alloc([T], f32, init=0)\n    for k in range(3):\n"
        "        w = alloc([T])\n        load(F[0, 0, j*T+k:min((j+1)*T, OW)+k] -> w)\n"
        "        add(z, w, z)",
        "let: OW = W - 3 + 1; require: W >= 2;",
    ),
    "scan": (
        "an `init=` tile that is updated and stored at every step (`store(sum -> Y[k, "
        "j*T:(j+1)*T])`)",
        "sum = alloc([T], f32, init=0)\nfor k in range(C):\n    w = alloc([T])\n"
        "    load(F[k, 0, 0:min(T, W)] -> w)\n    add(sum, w, sum)\n"
        "    store(sum -> Z[i, k, 0:min(T, W)])",
        "tensors: Z[M, C, W]: out f32 = 0;",
    ),
    "index of a maximum": (
        "`reduce_max(x, 0, m)`, `eq(x, m, c)`, `where(c, iota(N), N, n)` into an i64 tile, "
        "`reduce_min(n, 0, best)`",
        "m = alloc([1])\nc = alloc([N], bool)\nn = alloc([N], i64)\nbest = alloc([1], i64)\n"
        "reduce_max(y, 0, m)\neq(y, m, c)\nwhere(c, iota(N), N, n)\nreduce_min(n, 0, best)",
        "",
    ),
    "quotients": ("write `1.0 / N`, or divide by N: `div(x, N, x)`", "div(y, N, y)", ""),
    "a quotient of floats": ("write `1.0 / N`", "mul(y, 1.0 / N, y)", ""),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_the_prompt_offers_checks(name: str) -> None:
    words, added, sections = ALLOWED[name]
    assert words in PROMPT
    assert codes(probe(STORED + added, sections)) == set()


#: What the prompt warns of: its words, the whole program, sections, and the codes that follow.
REFUSED: dict[str, tuple[str, str, str, set[str]]] = {
    "value of a call": (
        "`y = exp(x)` or `add(x, y * 2, z)`: operations give no value. Write `exp(x, y)` "
        "(SK0116, SK0206)",
        STORED + "z = exp(y)\nadd(y, y * 2, y)",
        "",
        {"SK0116"},
    ),
    "infix on tiles": (
        "expressions on tiles do not exist",
        STORED + "add(y, y * 2, y)",
        "",
        {"SK0206"},
    ),
    "fill is no init": (
        "`acc` filled by `fill` and added to in a loop: it needs `init=` (SK0402)",
        STORED + "acc = alloc([T], f32)\nfill(0, acc)\nfor j in range(ceil(N, T)):\n"
        "    x = alloc([T])\n    load(X[i, j*T:(j+1)*T] -> x)\n    add(acc, x, acc)\n"
        "reduce_sum(acc, 0, s)",
        "",
        {"SK0402"},
    ),
    "tile counts and elements": (
        "`for i in range(ceil(M, T))` with `X[i:i+T]`: overlaps; write `i*T:(i+1)*T` (SK0520, "
        "SK0510)",
        STORED + '@llm_hint("parallel")\nfor j in range(ceil(N, T)):\n    x = alloc([T])\n'
        "    load(X[i, j:j+T] -> x)\n    store(x -> Z[i, j:j+T])",
        "tensors: Z[M, N]: out f32;",
        {"SK0510", "SK0520"},
    ),
    "reduction in place": (
        "`reduce_sum(x, 0, x)`: another destination (SK0313)",
        STORED + "reduce_sum(s, 0, s)",
        "",
        {"SK0313"},
    ),
    "rank of a reduction": (
        "with `s` of the wrong rank: `[TM]` or `[TM, 1]` for `[TM, N]` (SK0311)",
        STORED + "z = alloc([TM, T], f32)\nfill(1, z)\nreduce_sum(z, 1, s)",
        "",
        {"SK0311"},
    ),
    "broadcast of a column": (
        "`sub(x, m, x)` with `m` `[TM]` against `[TM, N]`: keep the axis, `[TM, 1]` (SK0305)",
        STORED + "z = alloc([TM, T], f32)\nm = alloc([TM], f32)\nfill(1, z)\nfill(1, m)\n"
        "sub(z, m, z)",
        "",
        {"SK0305"},
    ),
    "gemm without init": (
        "`gemm` into a tile without `init=0` (SK0403)",
        STORED + "a = alloc([TM, TM], f32)\nfill(1, a)\nc = alloc([TM, TM], f32)\ngemm(a, a, c)",
        "",
        {"SK0403"},
    ),
    "narrow accumulator": (
        "an f16 accumulator (SK0602)",
        STORED + 'a = alloc([TM], f16, init=0, llm_hint=["accumulator"])',
        "",
        {"SK0602"},
    ),
    "unbounded tile": (
        "`alloc([N])` with unbounded N: say `N <= 4096`, at least the caller's size (SK0601)",
        STORED + "z = alloc([W])\nload(F[0, 0, 0:W] -> z)",
        "",
        {"SK0601"},
    ),
    "tile size as data": (
        "`mul(x, T, y)` with a tile size T: not data (SK0208)",
        STORED + "mul(y, T, y)",
        "",
        {"SK0208"},
    ),
    "quotient of integers": (
        "`1 / N` outside `let` (SK0301)",
        STORED + "mul(y, 1 / N, y)",
        "",
        {"SK0301"},
    ),
    "loaded before written": (
        "A workspace or an output loaded before a phase has written it (SK0207)",
        STORED + "load(V[i, 0:N] -> y)",
        "workspace: V[M, N]: f32;",
        {"SK0207"},
    ),
    "output loaded": (
        "An `out` may be loaded only after an earlier phase wrote it",
        STORED.replace("store(y ->", "load(Y[i, 0:N] -> y)\nstore(y ->"),
        "",
        {"SK0207"},
    ),
    "no tile without axes": ("`[]` does not exist", STORED + "z = alloc([])", "", {"SK0306"}),
    "integers are fixed": (
        "it cannot be assigned again",
        STORED + "a = i*2\na = i*3",
        "",
        {"SK0204"},
    ),
    "triangular loops": (
        "How often an inner loop runs does not depend on outer loop variables",
        STORED + "for j in range(i):\n    mul(y, 2.0, y)",
        "",
        {"SK0915"},
    ),
    "index tiles in subscripts": (
        "Index tiles stand in operands only, never in subscripts",
        STORED + "n = iota(N)\nload(X[i, n] -> y)",
        "",
        {"SK0910"},
    ),
    "no axis appears": (
        "No tile axis of extent 1 appears by itself",
        STORED + "z = alloc([TM, 1])\nload(S[i*TM:(i+1)*TM] -> z)",
        "",
        {"SK0304"},
    ),
    "no step": ("No step, no negative index", STORED + "load(X[i, 0:N:2] -> y)", "", {"SK0911"}),
    "no negative index": (
        "no negative index, no index tile",
        STORED + "load(X[-1, 0:N] -> y)",
        "",
        {"SK0501"},
    ),
    "scalars stay inside": (
        "A scalar subscript must stay inside",
        STORED + "load(S[i + 1] -> s)",
        "",
        {"SK0501"},
    ),
    "long slice": (
        "A slice is never longer than the tile's axis",
        STORED + "z = alloc([T])\nload(X[i, 0:T+1] -> z)",
        "",
        {"SK0503"},
    ),
    "zero trips": (
        "a tile written only inside a loop is undefined behind it",
        STORED + "z = alloc([1], f32)\nfor j in range(N):\n    fill(0, z)\ncopy(z, s)",
        "",
        {"SK0402"},
    ),
    "offset slices": (
        "all that is written into one must come from the same slices (not from `fill`, nor from an "
        "offset slice;",
        STORED + "acc = alloc([T], f32, init=0)\nx = alloc([T])\nload(X[i, 0:T] -> x)\n"
        "add(acc, x, acc)\nload(X[i, 1:T+1] -> x)\nadd(acc, x, acc)",
        "",
        {"SK0420"},
    ),
    "fill into an accumulator": (
        "not from `fill`",
        STORED + "acc = alloc([T], f32, init=0)\nx = alloc([T])\nload(X[i, 0:T] -> x)\n"
        "add(acc, x, acc)\nz = alloc([T])\nfill(1, z)\nadd(acc, z, acc)",
        "",
        {"SK0420"},
    ),
    "reductions overwrite": (
        "Reductions overwrite",
        STORED + "total = alloc([1], f32, init=0)\nfor j in range(ceil(N, T)):\n"
        "    x = alloc([T])\n    load(X[i, j*T:(j+1)*T] -> x)\n    reduce_sum(x, 0, total)",
        "",
        {"SK0607"},
    ),
    "transpose in place": (
        "**Across lanes** (reductions, products, transpose) the destination is another tile",
        STORED + "z = alloc([T, T], f32)\nfill(1, z)\ntranspose(z, z)",
        "",
        {"SK0313"},
    ),
    "products of matrices": (
        "Operands are 2-D tiles",
        STORED + "a = alloc([2, 16, 16], f32)\nfill(0, a)\nc = alloc([2, 16, 16], f32, init=0)\n"
        "gemm(a, a, c)",
        "",
        {"SK0309"},
    ),
    "casts": (
        "Anything else needs `cast(x, y)`",
        STORED + "n = alloc([1], i32)\nfill(1, n)\nadd(n, 1, s)",
        "",
        {"SK0307"},
    ),
    "shared stores": (
        "no two of them store to the same element",
        STORED.replace("P[i]", "P[min(i // 2, M - 1)]"),
        "",
        {"SK0510", "SK0520"},
    ),
    "coverage": (
        "Stores reach every element of every output",
        STORED + "store(y -> Z[i, 0:min(N, 3)])",
        "tensors: Z[M, N]: out f32;",
        {"SK0510"},
    ),
    "one space of names": (
        "tensors, tiles, symbols and loop variables share one space",
        STORED + "X = alloc([1])\ni = alloc([1])",
        "",
        {"SK0202"},
    ),
    "whole extents": (
        "Each symbol must be the whole extent of some axis of an input",
        STORED,
        "symbols: K;\n    tensors: Z[K*2]: in f32;",
        {"SK0205", "SK0611"},
    ),
    "attributes are constants": (
        "Keywords behind `dst` are compile-time constants",
        STORED + "leaky_relu(y, y, slope=alpha)",
        "",
        {"SK0214"},
    ),
}


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
    assert "`total` made at top level and again in a later phase" in PROMPT
    text = probe(STORED + "total = alloc([1])\nfill(0, total)").replace(
        '    @llm_hint("parallel"',
        '    total = alloc([1], f32)\n    fill(0, total)\n    @llm_hint("parallel"',
    )
    assert codes(text) == {"SK0202", "SK0212"}


def test_initial_values_make_partial_stores_and_padding_possible() -> None:
    assert "`Y[M]: out f32 = 0;` fills an output before the first launch" in PROMPT
    assert "`P[H+2, W+2]: f32 = 0` that a first phase fills at an offset" in PROMPT
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
