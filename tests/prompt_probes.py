"""What the language prompt says can be written: its words, and statements that must check."""

from __future__ import annotations

from sketchc.agents.prompts.language import language
from sketchc.base.diagnostics import Severity, Source
from sketchc.checker.api import CheckResult, check

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
    """The codes of all errors and warnings, but for advice (SK065x) and an unused param: probes use
    little of what they load and declare."""
    wanted = (Severity.ERROR, Severity.WARNING)
    found = {found.code for found in checked(text).diagnostics if found.severity in wanted}
    return {code for code in found if not code.startswith(("SK065", "SK0661"))}


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
        "`S2[M, 1]` of `S[M]`",
        "z = alloc([TM, 1])\nload(S2[i*TM:(i+1)*TM, 0:1] -> z)",
        "views: S2[M, 1] = S;",
    ),
    "axes of extent 1": (
        "A `[TM, 1]` tile goes with `S[i*TM:(i+1)*TM]`, too",
        "z = alloc([TM, 1])\nload(S[i*TM:(i+1)*TM] -> z)",
        "",
    ),
    "expressions of data": (
        "`where(2*x > 1, x, exp(-x), y)`",
        "z = alloc([T])\nload(X[i, 0:T] -> z)\nwhere(2*z > 1, z, exp(-z), z)",
        "",
    ),
    "chosen integers": (
        "`i - 1 if i > 0 else 0`",
        "load(X[i - 1 if i > 0 else 0, 0:N] -> y)",
        "",
    ),
    "numbers from params": (
        "numbers behind `dst` may be params",
        "leaky_relu(y, y, slope=alpha)\nclamp(y, y, low=alpha)",
        "",
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
        "a number (`2`, `0.5`, `1e-6`), `inf`, a symbol, a param, a float `let`, a loop "
        "variable or arithmetic of these",
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
    "rank 0": ("`L[]` has no axes: one element", "load(L[] -> s)", "tensors: L[]: in f32;"),
    "optional": (
        "`B[N]: in f32?` may be absent: touch it only under `if present(B):`",
        "if present(O):\n    load(O[0:N] -> b)\n    add(y, b, y)",
        "tensors: O[N]: in f32?;",
    ),
    "filled outputs are loaded": (
        "`Y[M]: out f32 = 0;` fills an output before the first launch. Any other `out` may be",
        "load(Z[i] -> s)\nmul(s, 0.5, s)\nstore(s -> Z[i])",
        "tensors: Z[M]: out f32 = 0;",
    ),
    "filled workspaces": (
        "`= 0` (or any number) fills it before the",
        "load(V[i] -> s)\nstore(s -> V[i])\nload(U[i] -> s)\nstore(s -> U[i])",
        "workspace: V[M]: f32 = -inf; U[M]: f32 = 3;",
    ),
    "computed extents": (
        "An extent is a constant, a symbol or an expression of them",
        "z = alloc([2*T, T//2])\nfill(0, z)\nw = alloc([N+1])\nfill(0, w)",
        "",
    ),
    "padding": (
        "`load(..., pad=0)` fills the lanes that lie outside the tensor with a number",
        "load(X[i, 1:N+1] -> y, pad=0)\nload(X[i, -1:N-1] -> y, pad=-1.5)\n"
        "load(X[i-1, 0:N] -> y, pad=-inf)",
        "",
    ),
    "masks": (
        "`where=c` on either leaves lanes out, by a condition on index tiles or a bool tile",
        "n = iota(N)\nc = alloc([N], bool)\ngt(y, 0, c)\nload(X[i, 0:N] -> b, where=n < 3)\n"
        "store(y -> Z[i, 0:N], where=n % 2 == 0 and not n == 4)\n"
        "store(y -> Z[i, 0:N], where=c)",
        "tensors: Z[M, N]: out f32 = 0;",
    ),
    "atomics": (
        "`atomic_add(y -> Y[...])`, `atomic_max`, `atomic_min` combine with what is there; the "
        "tensor has `= 0` (or is `inout`)",
        "atomic_add(y -> U[0:N])\natomic_max(y -> V[0:N])\natomic_min(y -> W0[0:N])",
        "tensors: U[N]: out f32 = 0; V[N]: out f32 = -inf; W0[N]: inout f32;",
    ),
    "fetch": (
        "`n = fetch(LENGTH[b])` names one element of a tensor: an integer can bound a loop",
        "n = fetch(I[i])\ng = fetch(S[i])\nmul(y, g, y)\nfor j in range(0, min(n, N), T):\n"
        "    x = alloc([T])\n    load(X[i, j:min(j+T, min(n, N))] -> x)",
        "tensors: I[M]: in i64;",
    ),
    "steps and bounds of loops": (
        "steps may be negative, bounds may use outer loop variables",
        "for j in range(N-1, -1, -1):\n    for k in range(j, i+1, 2):\n        load(B[j] -> s)",
        "",
    ),
    "branches": (
        "the condition is of symbols, params, loop variables, constants, fetched numbers or "
        "`present(B)`",
        "n = fetch(I[i])\nif N % 2 == 0 and i > 3 or alpha > 1.0:\n    mul(y, 2.0, y)\nelse:\n"
        "    mul(y, 3.0, y)\nif WIDE == 8 and n > 0 and not present(O):\n    mul(y, 2.0, y)\n"
        "else:\n    if present(O):\n        load(O[0:N] -> y)",
        "tensors: I[M]: in i64; O[N]: in f32?;",
    ),
    "bounded index tiles": (
        "`iota(T, lo, hi)` is `lo + iota(T)`, void from `hi` on",
        "z = alloc([T])\nload(B[iota(T, i, N)] -> z)\nreduce_max(z, 0, s)",
        "",
    ),
    "loaded indices": (
        "A loaded integer tile is an index tile, too: `2*idx + 1`",
        "idx = alloc([T])\nz = alloc([T])\nload(I[i*T:(i+1)*T] -> idx)\nload(B[2*idx + 1] -> z)",
        "tensors: I[M]: in i32;",
    ),
    "strided slices": (
        "`X[lo:hi:2]` takes steps; `X[N-1-j:N-1-j-T:-1]` runs backwards",
        "z = alloc([T])\nload(X[i, 0:N:2] -> y)\nload(X[i, N-1:-1:-1] -> y)\n"
        "for j in range(0, N, T):\n    load(X[i, N-1-j:N-1-j-T:-1] -> z)",
        "",
    ),
    "gathered rows": (
        "a gather of rows `TABLE[idx, 0:D]` fills `[T, D]`",
        "idx = alloc([T])\nz = alloc([T, N])\nload(I[i*T:(i+1)*T] -> idx)\nload(X[idx, 0:N] -> z)",
        "tensors: I[M]: in i64;",
    ),
    "lanes": (
        "Without any slice all index tiles broadcast to the tile's shape: `X[n[:, None], "
        "c[None, :], h, w]`",
        "n = i*TM + iota(TM)\nc = iota(T)\nz = alloc([TM, T])\n"
        "load(X[n[:, None], c[None, :]] -> z)\n"
        "load(X[n[:, None] + c[None, :], 0*c[None, :]] -> z, pad=0)",
        "",
    ),
    "promises": (
        "A store through loaded indices needs `unique=True` (your promise that no element is hit "
        "twice; else use an atomic), and an output with `= 0`, or `covers=True` (every element is "
        "hit)",
        "idx = alloc([1])\nload(I[i] -> idx)\nstore(s -> U[idx], unique=True)\n"
        "store(s -> V[idx], unique=True, covers=True)",
        "tensors: I[M]: in i64; U[M]: out f32 = 0; V[M]: out f32;",
    ),
    "loops in a nest": (
        "In a nest, a parallel loop below a sequential one is run sequentially",
        'for k in range(2):\n    @llm_hint("parallel")\n    for j in range(3):\n'
        "        z = alloc([1])\n        fill(0, z)",
        "",
    ),
    "quotients": ("write `1.0 / N`, or divide by N: `div(x, N, x)`", "div(y, N, y)", ""),
    "a quotient of floats": ("write `1.0 / N`", "mul(y, 1.0 / N, y)", ""),
}
