"""Small sketches, one per feature that the Triton emitter must carry through, with ragged sizes."""

from __future__ import annotations

from typing import Any

GRID = '@llm_hint("parallel", "grididx")'

#: name -> (sketch, symbol assignments, params)
SKETCHES: dict[str, tuple[str, list[dict[str, int]], dict[str, Any]]] = {}


def _add(name: str, text: str, *symbols: dict[str, int], **params: Any) -> None:
    SKETCHES[name] = (text.replace("GRID", GRID), list(symbols), params)


def _product(name: str, operands: str, loads: str, gemm: str, out: str, accumulator: str) -> None:
    _add(
        name,
        f"""sketch {name} {{
    symbols: M, N, K;
    tensors: {operands}; C[M, N]: out {out};
    constexpr: TM = 16, TN = 32, TK = 16;
    GRID
    for i in range(ceil(M, TM)):
        GRID
        for j in range(ceil(N, TN)):
            c = alloc([TM, TN], {accumulator}, init=0)
            for k in range(ceil(K, TK)):
                {loads}
                {gemm}
            store(c -> C[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
}}""",
        {"M": 17, "N": 33, "K": 19},
        {"M": 16, "N": 31, "K": 1},
    )


_PLAIN = """a = alloc([TM, TK])
                b = alloc([TK, TN])
                load(A[i*TM:(i+1)*TM, k*TK:(k+1)*TK] -> a)
                load(B[k*TK:(k+1)*TK, j*TN:(j+1)*TN] -> b)"""
_SWAPPED = """a = alloc([TK, TM])
                b = alloc([TN, TK])
                load(A[k*TK:(k+1)*TK, i*TM:(i+1)*TM] -> a)
                load(B[j*TN:(j+1)*TN, k*TK:(k+1)*TK] -> b)"""
for _dtype, _acc in (
    ("f32", "f32"),
    ("f16", "f32"),
    ("bf16", "f32"),
    ("f64", "f64"),
    ("i32", "i32"),
):
    _product(
        f"product_{_dtype}",
        f"A[M, K]: in {_dtype}; B[K, N]: in {_dtype}",
        _PLAIN,
        "gemm(a, b, c)",
        _dtype,
        _acc,
    )
    _product(
        f"swapped_{_dtype}",
        f"A[K, M]: in {_dtype}; B[N, K]: in {_dtype}",
        _SWAPPED,
        "gemm(a, b, c, trans_a=True, trans_b=True)",
        _dtype,
        _acc,
    )
_product(
    "product_half_accumulator",
    "A[M, K]: in f16; B[K, N]: in f16",
    _PLAIN,
    "gemm(a, b, c)",
    "f16",
    "f16",
)

_add(
    "shallow_product",
    """sketch shallow_product {
    symbols: M, N;
    tensors: A[M, 4]: in f32; B[4, N]: in f32; C[M, N]: out f32;
    constexpr: T = 16;
    GRID
    for i in range(ceil(M, T)):
        GRID
        for j in range(ceil(N, T)):
            a = alloc([T, 4])
            b = alloc([4, T])
            c = alloc([T, T], f32)
            load(A[i*T:(i+1)*T, 0:4] -> a)
            load(B[0:4, j*T:(j+1)*T] -> b)
            matmul(a, b, c)
            store(c -> C[i*T:(i+1)*T, j*T:(j+1)*T])
}""",
    {"M": 17, "N": 15},
)

_add(
    "few_rows",
    """sketch few_rows {
    symbols: N, K;
    tensors: A[8, K]: in f32; B[K, N]: in f32; C[8, N]: out f32;
    constexpr: TN = 64, TK = 32;
    GRID
    for j in range(ceil(N, TN)):
        c = alloc([8, TN], f32, init=0)
        for k in range(ceil(K, TK)):
            b = alloc([TK, TN])
            a = alloc([8, TK])
            load(B[k*TK:(k+1)*TK, j*TN:(j+1)*TN] -> b)
            load(A[0:8, k*TK:(k+1)*TK] -> a)
            neg(b, b)
            neg(a, a)
            gemm(a, b, c)
        store(c -> C[0:8, j*TN:(j+1)*TN])
}""",
    {"N": 67, "K": 70},
)

_add(
    "reductions",
    """sketch reductions {
    symbols: B, M, N;
    tensors: X[B, M, N]: in f32; S[B]: out f32; R[B, M]: out f32; C[B, N]: out f32;
        P[B, M]: out f32; L[B, M]: out f32; ANY[B, M]: out bool; ALL[B, M]: out bool;
        W[B, M, N]: out f32;
    constexpr: TM = 8, TN = 128;
    require: M <= 8;
    require: N <= 128;
    GRID
    for b in range(B):
        x = alloc([TM, TN])
        t = alloc([1, 1], f32)
        s = alloc([1], f32)
        r = alloc([TM], f32)
        k = alloc([TM, 1], f32)
        c = alloc([TN], f32)
        p = alloc([TM], f32)
        l = alloc([TM], f32)
        q = alloc([TM, TN], bool)
        any = alloc([TM], bool)
        all = alloc([TM], bool)
        w = alloc([TM, TN], f32)
        h = alloc([TM, TN], f32)
        load(X[b, 0:M, 0:N] -> x)
        reduce_sum(x, [0, 1], t)
        reduce_max(x, 1, r)
        reduce_min(x, 0, c)
        mul(x, 0.25, h)
        add(h, 1.0, h)
        reduce_prod(h, 1, p)
        reduce_sum(x, 1, l)
        gt(x, 2.0, q)
        reduce_any(q, 1, any)
        lt(x, 2.0, q)
        reduce_all(q, 1, all)
        reduce_sum(x, 1, k)
        sub(x, k, w)
        sub(w, t, w)
        reduce_sum(c, 0, s)
        store(s -> S[b:b+1])
        store(r -> R[b, 0:M])
        store(c -> C[b, 0:N])
        store(p -> P[b, 0:M])
        store(l -> L[b, 0:M])
        store(any -> ANY[b, 0:M])
        store(all -> ALL[b, 0:M])
        store(w -> W[b, 0:M, 0:N])
}""",
    {"B": 3, "M": 5, "N": 101},
    {"B": 1, "M": 8, "N": 128},
)

_add(
    "odd_tile",
    """sketch odd_tile {
    symbols: N;
    tensors: X[N]: in f16; Y[N]: out f16; S[1]: out f32;
    constexpr: T = 10;
    s = alloc([1], f32, init=0)
    for i in range(ceil(N, T)):
        x = alloc([T])
        p = alloc([1], f32)
        y = alloc([T], f16)
        load(X[i*T:(i+1)*T] -> x)
        reduce_sum(x, 0, p)
        add(s, p, s)
        add(x, 1.0, y)
        store(y -> Y[i*T:(i+1)*T])
    store(s -> S[0:1])
}""",
    {"N": 23},
    {"N": 10},
    {"N": 0},
)

_add(
    "phases",
    """sketch phases {
    symbols: M, N;
    params: scale: f32 = 0.5; shift: i64 = 3;
    let: blocks = ceil(N, 64); root = sqrt(scale);
    tensors: X[M, N]: in f32; Y[M, N]: out f32;
    workspace: PART[M, blocks]: f32;
    constexpr: T = 64;
    GRID
    for m in range(M):
        GRID
        for i in range(blocks):
            x = alloc([T])
            p = alloc([1], f32)
            load(X[m, i*T:(i+1)*T] -> x)
            reduce_sum(x, 0, p)
            store(p -> PART[m, i:i+1])
    GRID
    for m in range(M):
        total = alloc([1], f32, init=0)
        for i in range(blocks):
            p = alloc([1], f32)
            load(PART[m, i:i+1] -> p)
            add(total, p, total)
        for i in range(blocks):
            x = alloc([T])
            load(X[m, i*T:(i+1)*T] -> x)
            sub(x, total, x)
            mul(x, root, x)
            mul(x, scale / 4.0, x)
            add(x, shift, x)
            add(x, i + N, x)
            store(x -> Y[m, i*T:(i+1)*T])
}""",
    {"M": 3, "N": 130},
    {"M": 1, "N": 1},
    scale=0.3,
)

_add(
    "in_place",
    """sketch in_place {
    symbols: N;
    tensors: X[N]: inout f32; Y[N]: out f32 = 7;
    constexpr: T = 16;
    GRID
    for i in range(ceil(N, T)):
        x = alloc([T])
        y = alloc([T], f32)
        load(X[i*T:(i+1)*T] -> x)
        mul(x, 2.0, x)
        store(x -> X[i*T:(i+1)*T])
        load(X[i*T:(i+1)*T] -> y)
        add(y, 1.0, y)
        store(y -> X[i*T:(i+1)*T])
}""",
    {"N": 33},
    {"N": 0},
)

_add(
    "double_precision",
    """sketch double_precision {
    symbols: N;
    params: c: f64 = 0.1;
    tensors: X[N]: in f64; Y[N]: out f64;
    constexpr: T = 32;
    GRID
    for i in range(ceil(N, T)):
        x = alloc([T])
        load(X[i*T:(i+1)*T] -> x)
        mul(x, c, x)
        add(x, 0.7, x)
        div(x, N, x)
        store(x -> Y[i*T:(i+1)*T])
}""",
    {"N": 45},
    c=1.0 / 3.0,
)

_add(
    "triangle",
    """sketch triangle {
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[M, N]: out f32; OUT[N, M]: out f32;
    constexpr: TM = 8, TN = 16;
    GRID
    for i in range(ceil(M, TM)):
        GRID
        for j in range(ceil(N, TN)):
            x = alloc([TM, TN])
            y = alloc([TM, TN], f32)
            z = alloc([TN, TM], f32)
            load(X[i*TM:(i+1)*TM, j*TN:(j+1)*TN] -> x)
            row = i*TM + iota(TM)
            column = j*TN + iota(TN)
            where(row[:, None] >= column[None, :] and not row[:, None] == 3, x, -1.0, y)
            store(y -> Y[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
            transpose(x, z)
            store(z -> OUT[j*TN:(j+1)*TN, i*TM:(i+1)*TM])
}""",
    {"M": 11, "N": 35},
)

_add(
    "narrow_row",
    """sketch narrow_row {
    symbols: M, N;
    tensors: X[M|1, N]: in f32; Z[M, N]: in f32; Y[M, N]: out f32;
    constexpr: TM = 4, TN = 16;
    GRID
    for i in range(ceil(M, TM)):
        GRID
        for j in range(ceil(N, TN)):
            x = alloc([TM, TN])
            z = alloc([TM, TN])
            load(X[i*TM:(i+1)*TM, j*TN:(j+1)*TN] -> x)
            load(Z[i*TM:(i+1)*TM, j*TN:(j+1)*TN] -> z)
            add(x, z, z)
            store(z -> Y[i*TM:(i+1)*TM, j*TN:(j+1)*TN])
}""",
    {"M": 7, "N": 19},
)

_add(
    "scalar_tiles",
    """sketch scalar_tiles {
    symbols: M;
    tensors: X[M]: in f32; Y[M]: out f32; B[M]: out bool; NUMBER[M]: out i32;
    GRID
    for m in range(M):
        x = alloc([1])
        y = alloc([1], f32)
        b = alloc([1], bool)
        n = alloc([1], i32)
        load(X[m] -> x)
        abs(x, y)
        add(y, 1.0, y)
        pow(y, 1.5, y)
        tanh(y, y)
        gt(x, 0.5, b)
        where(b, y, x, y)
        cast(m + 5, n)
        store(y -> Y[m])
        store(b -> B[m])
        store(n -> NUMBER[m])
}""",
    {"M": 9},
)

_add(
    "masked_update",
    """sketch masked_update {
    symbols: M, N;
    tensors: X[M, N]: in f16; K[M, N]: in i32; Y[M]: out f32; L[M]: out i32; ANY[M]: out bool;
    constexpr: T = 32;
    GRID
    for m in range(M):
        lanes = alloc([T], f32, init=0)
        largest = alloc([T], i32, init=-1000)
        seen = alloc([T], bool, init=False)
        for j in range(ceil(N, T)):
            x = alloc([T])
            k = alloc([T])
            b = alloc([T], bool)
            load(X[m, j*T:(j+1)*T] -> x)
            load(K[m, j*T:(j+1)*T] -> k)
            fma(x, 2.0, 1.0, x)
            add(lanes, x, lanes)
            max(largest, k, largest)
            gt(k, 45, b)
            logical_or(seen, b, seen)
        y = alloc([1], f32)
        l = alloc([1], i32)
        any = alloc([1], bool)
        reduce_sum(lanes, 0, y)
        reduce_max(largest, 0, l)
        reduce_any(seen, 0, any)
        store(y -> Y[m])
        store(l -> L[m])
        store(any -> ANY[m])
}""",
    {"M": 3, "N": 75},
    {"M": 2, "N": 5},
    {"M": 2, "N": 0},
)
