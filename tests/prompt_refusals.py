"""What the language prompt warns of: its words, programs, and the codes that must follow."""

from __future__ import annotations

from prompt_probes import STORED

#: What the prompt warns of: its words, the whole program, sections, and the codes that follow.
REFUSED: dict[str, tuple[str, str, str, set[str]]] = {
    "value of a call": (
        "`y = exp(x)`: operations give no value. Write `exp(x, y)` (SK0116)",
        STORED + "z = exp(y)",
        "",
        {"SK0116"},
    ),
    "across lanes in an expression": (
        "`cast` and what works across lanes do not",
        STORED + "add(y, 1 + reduce_sum(y, 0), y)",
        "",
        {"SK0206"},
    ),
    "fill is no init": (
        "`acc` filled by `fill` and added to in a loop: it needs `init=` (SK0421)",
        STORED + "acc = alloc([T], f32)\nfill(0, acc)\nfor j in range(ceil(N, T)):\n"
        "    x = alloc([T])\n    load(X[i, j*T:(j+1)*T] -> x)\n    add(acc, x, acc)\n"
        "reduce_sum(acc, 0, s)",
        "",
        {"SK0421"},
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
        "Any other `out` may be loaded only after an earlier phase wrote it",
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
    "no negative index": (
        "Nothing wraps around: no negative index",
        STORED + "load(X[-1, 0:N] -> y)",
        "",
        {"SK0501"},
    ),
    "absent tensors": (
        "touch it only under `if present(B):`",
        STORED + "load(O[0:N] -> y)",
        "tensors: O[N]: in f32?;",
        {"SK0216"},
    ),
    "atomics on nothing": (
        "the tensor has `= 0` (or is `inout`)",
        STORED + "atomic_add(y -> U[0:N])",
        "tensors: U[N]: out f32;",
        {"SK0220"},
    ),
    "branches on lanes": (
        "never of lanes (for those there is `where`)",
        STORED + "n = iota(N)\nif n > 0:\n    mul(y, 2.0, y)",
        "",
        {"SK0324"},
    ),
    "branches on tiles": (
        "never of lanes",
        STORED + "if y > 0:\n    mul(y, 2.0, y)",
        "",
        {"SK0324"},
    ),
    "patterns of lanes": (
        "leave lanes out that are not beyond one range for each axis, say `pad=` (SK0425)",
        STORED + "n = i*TM + iota(TM)\nc = iota(T)\nz = alloc([TM, T])\n"
        "load(X[n[:, None] + c[None, :], 0*c[None, :]] -> z)",
        "",
        {"SK0425"},
    ),
    "patterns of masks": (
        "or the `where=` of a load",
        STORED + "n = iota(N)\nload(X[i, n] -> y, where=n % 2 == 0)",
        "",
        {"SK0425"},
    ),
    "float lanes as indices": (
        "`X[y]` with a float tile (SK0317)",
        STORED + "load(B[y] -> y)",
        "",
        {"SK0317"},
    ),
    "subscripts of tiles": (
        "`x[j]` of a tile (SK0303)",
        STORED + "add(y[0], 1, y)",
        "",
        {"SK0303"},
    ),
    "reduced padding": (
        "`reduce_sum`, `reduce_max` over lanes that `pad=` made valid: leave `pad=` out, void "
        "lanes do not count (SK0428)",
        STORED + "load(X[i, 1:N+1] -> y, pad=1)\nreduce_sum(y, 0, s)",
        "",
        {"SK0428"},
    ),
    "scattered stores": (
        "A store through loaded indices needs `unique=True`",
        STORED + "idx = alloc([1])\nload(I[i] -> idx)\nstore(s -> U[idx])",
        "tensors: I[M]: in i64; U[M]: out f32 = 0;",
        {"SK0523"},
    ),
    "scattered stores that cover": (
        "and an output with `= 0`, or `covers=True`",
        STORED + "idx = alloc([1])\nload(I[i] -> idx)\nstore(s -> U[idx], unique=True)",
        "tensors: I[M]: in i64; U[M]: out f32;",
        {"SK0513"},
    ),
    "elements and tile counts": (
        "never mix the two",
        STORED + '@llm_hint("parallel")\nfor j in range(0, N, T):\n    x = alloc([T])\n'
        "    load(X[i, j*T:(j+1)*T] -> x)\n    store(x -> Z[i, j*T:(j+1)*T])",
        "tensors: Z[M, N]: out f32;",
        {"SK0510"},
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
        "Each symbol must follow from the shape of an input",
        STORED,
        "symbols: K;\n    tensors: Z[K*K]: in f32;",
        {"SK0205", "SK0611"},
    ),
    "lists of axes": (
        "`axis` is a number, of a reduction also a list",
        STORED + "cumsum(y, [0], b)",
        "",
        {"SK0211"},
    ),
}
