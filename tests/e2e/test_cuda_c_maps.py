"""CUDA-C: products of operands that the copy engine brings (TMA), in every form in which a tile
lies in a tensor, equal the interpreter; where more than the tile would come, threads copy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cpp_cases import assert_equal, inputs, reference
from test_cuda_c import TOOLCHAIN, lowered

_K = "k*64:(k+1)*64"
_HEAD = """sketch product {{
    symbols: M, N, K;
    tensors: {tensors};{views}

    @llm_hint("parallel", "grididx.x")
    for i in range({tiles}):
        @llm_hint("parallel", "grididx.y")
        for j in range(ceil(N, 64)):
            c = alloc([64, 64], f32, init=0)
"""
_LOOP = """            for k in range({turns}):
                a = alloc([64, {depth}])
                b = alloc([{of_b}])
                load({a} -> a)
                load({b} -> b)
                gemm(a, b, c, trans_b={turned})
            store(c -> {c})
}}
"""
_TOLD = {
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


def product(**other: str) -> str:
    """A product of which something is other than usual."""
    return (_HEAD + _LOOP).format(**{**_TOLD, **other})


#: What the copy engine brings.
BROUGHT = {
    "of a batch": product(
        tensors="A[3, M, K]: in f16; B[3, K, N]: in f16; C[3, M, N]: out f16",
        tiles="3*ceil(M, 64)",
        a=f"A[i%3, i//3*64:(i//3+1)*64, {_K}]",
        b=f"B[i%3, {_K}, j*64:(j+1)*64]",
        c="C[i%3, i//3*64:(i//3+1)*64, j*64:(j+1)*64]",
    ),
    "with axes between": product(
        tensors="A[2, M, 3, K]: in f16; B[2, N, 3, K]: in f16; C[2, 3, M, N]: out f16",
        tiles="6*ceil(M, 64)",
        turned="True",
        a=f"A[i%2, i//6*64:(i//6+1)*64, i//2%3, {_K}]",
        b=f"B[i%2, j*64:(j+1)*64, i//2%3, {_K}]",
        c="C[i%2, i//2%3, i//6*64:(i//6+1)*64, j*64:(j+1)*64]",
    ),
    "of rows and columns in the middle": product(
        tensors="A[M+9, K]: in f16; B[K, N+40]: in f16; C[M, N]: out f16",
        a=f"A[i*64+5:min((i+1)*64, M)+5, {_K}]",
        b=f"B[{_K}, j*64+16:min((j+1)*64, N)+16]",
    ),
    "that ends where the tensor does": product(
        tensors="A[M, K+16]: in f16; B[K+8, N]: in f16; C[M, N]: out f16",
        a="A[i*64:(i+1)*64, k*64+16:min((k+1)*64, K)+16]",
        b="B[k*64+8:min((k+1)*64, K)+8, j*64:(j+1)*64]",
    ),
    "in longer turns": product(
        turns="ceil(K, 192)",
        depth="192",
        of_b="192, 64",
        a="A[i*64:(i+1)*64, k*192:(k+1)*192]",
        b="B[k*192:(k+1)*192, j*64:(j+1)*64]",
    ),
    "in turns that begin elsewhere": product(turns="1, ceil(K, 64), 2"),
    "of a view": product(
        tensors="A[M, 2*K]: in f16; B[K, N]: in f16; C[2*M, N]: out f16",
        views=" views: V[2*M, K] = A;",
        tiles="ceil(2*M, 64)",
        a=f"V[i*64:(i+1)*64, {_K}]",
    ),
}
#: What threads copy: elements of the tensor that are none of the tile would come, too.
COPIED = {
    "of some of the depth": product(
        tensors="A[M, K+16]: in f16; B[K+16, N]: in f16; C[M, N]: out f16",
        a="A[i*64:(i+1)*64, k*64:min((k+1)*64, K)]",
        b="B[k*64:min((k+1)*64, K), j*64:(j+1)*64]",
    ),
    "in shorter turns": product(
        turns="ceil(K, 32)",
        depth="32",
        of_b="32, 64",
        a="A[i*64:(i+1)*64, k*32:(k+1)*32]",
        b="B[k*32:(k+1)*32, j*64:(j+1)*64]",
    ),
    "of what the launch writes": product(
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


def test_both_ways_in_one_kernel(tmp_path: Path) -> None:
    source = lowered(CHAIN, {}).source
    assert "multiply_mapped<sketch::by_groups<" in source
    assert "multiply_along<sketch::by_groups<" in source
    check(CHAIN, True, tmp_path)


def check(text: str, mapped: bool, folder: Path) -> None:
    kernel = lowered(text, {})
    assert ("multiply_mapped<" in kernel.source) is mapped
    artefact = TOOLCHAIN.compile(kernel, folder)
    assert artefact.details["warnings"] == ""
    with TOOLCHAIN.open(artefact) as session:
        for seed, (m, n, k) in enumerate([(64, 64, 128), (65, 72, 200), (63, 65, 67), (8, 8, 8)]):
            symbols = {"M": m, "N": n, "K": k}
            tensors = inputs(kernel.sketch, symbols, {}, seed)
            expected = reference(kernel.sketch, tensors, symbols, {})
            found = session.run(tensors, symbols, {})
            assert_equal(kernel.sketch, found, expected, 16.0)


@pytest.mark.parametrize("name", list(BROUGHT))
def test_tiles_that_the_copy_engine_brings(name: str, tmp_path: Path) -> None:
    check(BROUGHT[name], True, tmp_path)


@pytest.mark.parametrize("name", list(COPIED))
def test_tiles_that_threads_copy(name: str, tmp_path: Path) -> None:
    check(COPIED[name], False, tmp_path)


def test_nothing_beyond_a_tile_is_multiplied(tmp_path: Path) -> None:
    """Not even by zero."""
    kernel, symbols = lowered(COPIED["of some of the depth"], {}), {"M": 64, "N": 64, "K": 72}
    tensors = inputs(kernel.sketch, symbols, {}, 0)
    for tensor in ("A", "B"):
        deep = tensors[tensor] if tensor == "B" else tensors[tensor].T
        deep[symbols["K"] :] = np.nan
    expected = reference(kernel.sketch, tensors, symbols, {})
    with TOOLCHAIN.open(TOOLCHAIN.compile(kernel, tmp_path)) as session:
        found = session.run(tensors, symbols, {})
    assert np.isfinite(found["C"].astype(np.float32)).all()
    assert_equal(kernel.sketch, found, expected, 16.0)
