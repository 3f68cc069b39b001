"""Sketches of matrix products by which CUDA-C is tested: operands that lie in all ways, and tiles
of them in every form in which a tile lies in a tensor."""

from __future__ import annotations

_PRODUCT = """sketch product {{
    symbols: M, N, K;
    tensors: A[{a}]: in {dtype}; B[{b}]: in {dtype}; BIAS[N]: in f32; C[M, N]: out {to};

    @llm_hint("parallel", "grididx.x")
    for i in range(ceil(M, {rows})):
        @llm_hint("parallel", "grididx.y")
        for j in range(ceil(N, {columns})):
            c = alloc([{rows}, {columns}], f32, init={init})
            @llm_hint("async", "tensor_core")
            for k in range(ceil(K, 64)):
                a = alloc([{of_a}])
                b = alloc([{of_b}])
                load(A[{from_a}] -> a)
                load(B[{from_b}] -> b)
                gemm(a, b, c, trans_a={turned_a}, trans_b={turned_b}, precision="{precision}")
            bias = alloc([{columns}])
            load(BIAS[j*{columns}:(j+1)*{columns}] -> bias)
            add(c, bias, c)
            relu(c, c)
            store(c -> C[i*{rows}:(i+1)*{rows}, j*{columns}:(j+1)*{columns}])
}}
"""


def product(
    rows: int, columns: int, turned: tuple[bool, bool] = (False, False), **other: str
) -> str:
    """A product with a bias; `turned` operands lie along the rows and the columns."""
    i, j = f"i*{rows}:(i+1)*{rows}", f"j*{columns}:(j+1)*{columns}"
    k = "k*64:(k+1)*64"
    left, right = turned
    told = {
        "rows": rows,
        "columns": columns,
        "dtype": "f16",
        "to": "f32",
        "init": "0",
        "a": "K, M" if left else "M, K",
        "b": "N, K" if right else "K, N",
        "of_a": f"64, {rows}" if left else f"{rows}, 64",
        "of_b": f"{columns}, 64" if right else f"64, {columns}",
        "from_a": f"{k}, {i}" if left else f"{i}, {k}",
        "from_b": f"{j}, {k}" if right else f"{k}, {j}",
        "turned_a": left,
        "turned_b": right,
        "precision": "ieee",
    }
    return _PRODUCT.format(**{**told, **other})


_K = "k*64:(k+1)*64"
_TILED_HEAD = """sketch product {{
    symbols: M, N, K;
    tensors: {tensors};{views}

    @llm_hint("parallel", "grididx.x")
    for i in range({tiles}):
        @llm_hint("parallel", "grididx.y")
        for j in range(ceil(N, 64)):
            c = alloc([64, 64], f32, init=0)
"""
_TILED_LOOP = """            for k in range({turns}):
                a = alloc([64, {depth}])
                b = alloc([{of_b}])
                load({a} -> a)
                load({b} -> b)
                gemm(a, b, c, trans_b={turned})
            store(c -> {c})
}}
"""
_TILED = {
    "tensors": "A[M, K]: in f16; B[K, N]: in f16; C[M, N]: out f16",
    "views": "",
    "tiles": "ceil(M, 64)",
    "turns": "ceil(K, 64)",
    "depth": "64",
    "of_b": "64, 64",
    "turned": "False",
    "a": f"A[i*64:(i+1)*64, {_K}]",
    "b": f"B[{_K}, j*64:(j+1)*64]",
    "c": "C[i*64:(i+1)*64, j*64:(j+1)*64]",
}


def tiled(**other: str) -> str:
    """A product of which something is other than usual."""
    return (_TILED_HEAD + _TILED_LOOP).format(**{**_TILED, **other})


#: What the copy engine brings.
BROUGHT = {
    "of a batch": tiled(
        tensors="A[3, M, K]: in f16; B[3, K, N]: in f16; C[3, M, N]: out f16",
        tiles="3*ceil(M, 64)",
        a=f"A[i%3, i//3*64:(i//3+1)*64, {_K}]",
        b=f"B[i%3, {_K}, j*64:(j+1)*64]",
        c="C[i%3, i//3*64:(i//3+1)*64, j*64:(j+1)*64]",
    ),
    "with axes between": tiled(
        tensors="A[2, M, 3, K]: in f16; B[2, N, 3, K]: in f16; C[2, 3, M, N]: out f16",
        tiles="6*ceil(M, 64)",
        turned="True",
        a=f"A[i%2, i//6*64:(i//6+1)*64, i//2%3, {_K}]",
        b=f"B[i%2, j*64:(j+1)*64, i//2%3, {_K}]",
        c="C[i%2, i//2%3, i//6*64:(i//6+1)*64, j*64:(j+1)*64]",
    ),
    "of rows and columns in the middle": tiled(
        tensors="A[M+9, K]: in f16; B[K, N+40]: in f16; C[M, N]: out f16",
        a=f"A[i*64+5:min((i+1)*64, M)+5, {_K}]",
        b=f"B[{_K}, j*64+16:min((j+1)*64, N)+16]",
    ),
    "that ends where the tensor does": tiled(
        tensors="A[M, K+16]: in f16; B[K+8, N]: in f16; C[M, N]: out f16",
        a="A[i*64:(i+1)*64, k*64+16:min((k+1)*64, K)+16]",
        b="B[k*64+8:min((k+1)*64, K)+8, j*64:(j+1)*64]",
    ),
    "in longer turns": tiled(
        turns="ceil(K, 192)",
        depth="192",
        of_b="192, 64",
        a="A[i*64:(i+1)*64, k*192:(k+1)*192]",
        b="B[k*192:(k+1)*192, j*64:(j+1)*64]",
    ),
    "in turns that begin elsewhere": tiled(turns="1, ceil(K, 64), 2"),
    "of a view": tiled(
        tensors="A[M, 2*K]: in f16; B[K, N]: in f16; C[2*M, N]: out f16",
        views=" views: V[2*M, K] = A;",
        tiles="ceil(2*M, 64)",
        a=f"V[i*64:(i+1)*64, {_K}]",
    ),
}
#: What threads copy: elements of the tensor that are none of the tile would come, too.
COPIED = {
    "of some of the depth": tiled(
        tensors="A[M, K+16]: in f16; B[K+16, N]: in f16; C[M, N]: out f16",
        a="A[i*64:(i+1)*64, k*64:min((k+1)*64, K)]",
        b="B[k*64:min((k+1)*64, K), j*64:(j+1)*64]",
    ),
    "in shorter turns": tiled(
        turns="ceil(K, 32)",
        depth="32",
        of_b="32, 64",
        a="A[i*64:(i+1)*64, k*32:(k+1)*32]",
        b="B[k*32:(k+1)*32, j*64:(j+1)*64]",
    ),
    "of what the launch writes": tiled(
        tensors="A[M, 64]: in f16; D[K]: in f16; C[M, N]: inout f16",
        turns="1",
        a="A[i*64:(i+1)*64, 0:64]",
        b="C[i*64:(i+1)*64, j*64:(j+1)*64]",
    ),
}


#: The left operand of the second product is a tile of the first one's sums.
CHAIN = """sketch chain {
    symbols: M, N, K;
    tensors: A[M, K]: in f16; B[K, 64]: in f16; E[64, N]: in f16; C[M, N]: out f16;

    @llm_hint("parallel", "grididx.x")
    for i in range(ceil(M, 64)):
        c = alloc([64, 64], f32, init=0)
        for k in range(ceil(K, 64)):
            a = alloc([64, 64])
            b = alloc([64, 64])
            load(A[i*64:(i+1)*64, k*64:(k+1)*64] -> a)
            load(B[k*64:(k+1)*64, 0:64] -> b)
            gemm(a, b, c)
        p = alloc([64, 64], f16)
        cast(c, p)
        for j in range(ceil(N, 64)):
            d = alloc([64, 64], f32, init=0)
            e = alloc([64, 64])
            load(E[0:64, j*64:(j+1)*64] -> e)
            gemm(p, e, d)
            store(d -> C[i*64:(i+1)*64, j*64:(j+1)*64])
}
"""
