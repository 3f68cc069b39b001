"""Scans, extrema, sorting, layout and random numbers on the C++ target equal the interpreter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cpp_cases import assert_equal, check, inputs, lower, reference
from native_kernel import NativeKernel
from toolchains import require

from sketchc.ops.table import OPS, Category, Shape
from sketchc.runtime.toolchains.cpp.toolchain import TOOLCHAIN

require("cpp")

GRID = '@llm_hint("parallel", "grididx")'
SIZES = [{"M": m, "N": n} for m, n in ((1, 1), (3, 7), (5, 8), (4, 0), (0, 3), (2, 16), (7, 13))]
CALLS = {
    "cumsum", "cumprod", "argmax", "argmin", "topk", "sort", "permute", "reshape", "concat",
    "rand", "randn",
}  # fmt: skip


def test_every_lane_operation_is_called_here():
    categories = (Category.SCAN, Category.INDEX, Category.SORTING, Category.RANDOM)
    rows = {
        name
        for name, row in OPS.items()
        if row.category in categories or row.shape is Shape.REARRANGED
    }
    assert rows == CALLS


def extremes(dtype: str) -> tuple[str, str]:
    """Initial values of what topk fills: below all lanes, and above them."""
    if dtype in ("i32", "i64"):
        return "-2147483647", "2147483647"
    lowest = {"u8": "0", "u32": "0", "i8": "-128", "i16": "-32768"}.get(dtype, "-inf")
    highest = {"u8": "255", "u32": "4294967295", "i8": "127", "i16": "32767"}.get(dtype, "nan")
    return lowest, highest


def shape(axis: int, rows: str, columns: str) -> str:
    """What runs along axis 1, or 0, the other way round."""
    return f"{rows}, {columns}" if axis else f"{columns}, {rows}"


def tensors(axis: int, dtype: str, wide: str) -> str:
    """What `along` reads and writes."""
    full, single, five = (shape(axis, "M", columns) for columns in ("N", "1", "5"))
    return f"""X[{full}]: in {dtype};
             S[{full}]: out {wide}; R[{full}]: out {wide}; P[{full}]: out {wide};
             E[{full}]: out {wide};
             A[M]: out i64; B[{single}]: out i64;
             V[{full}]: out {dtype}; VI[{full}]: out i64;
             D[{full}]: out {dtype}; DI[{full}]: out i32;
             H[{five}]: out {dtype}; HI[{five}]: out i64;
             L[{five}]: out {dtype}; LI[{five}]: out i64;"""


def along(axis: int, dtype: str, wide: str) -> str:
    """Scans, extrema, sorting and topk along one axis of [T, 16] (or [16, T]) tiles; ties abound,
    for the source is rounded to a few values (`k`)."""
    extents, one, best = (shape(axis, "T", columns) for columns in ("16", "1", "5"))
    place, one_place, best_place = (
        shape(axis, "i*T:(i+1)*T", columns) for columns in ("0:N", "0:1", "0:5")
    )
    lanes = "iota(16)" if axis else "iota(16)[:, None]"
    lowest, highest = extremes(dtype)
    integer = lowest != "-inf"
    tie = "mod(x, 3, k)" if integer else "mul(x, 0.25, k)\n        round(k, k)"
    return f"""sketch along {{
    symbols: M, N <= 16;
    tensors: {tensors(axis, dtype, wide)}
    constexpr: T = 2;
    {GRID}
    for i in range(cdiv(M, T)):
        x = alloc([{extents}])
        k = alloc([{extents}], {dtype})
        load(X[{place}] -> x)
        s = alloc([{extents}], {wide})
        cumsum(x, {axis}, s)
        store(s -> S[{place}])
        cumsum(x, {axis}, s, reverse=True)
        store(s -> R[{place}])
        cumprod(x, {axis}, s)
        store(s -> P[{place}])
        cumsum(x, {axis}, s, exclusive=True)
        store(s -> E[{place}])
        {tie}
        a = alloc([T], i64)
        b = alloc([{one}], i64)
        argmax(k, {axis}, a)
        argmin(k, {axis}, b)
        store(a -> A[i*T:(i+1)*T])
        store(b -> B[{one_place}])
        v = alloc([{extents}], {dtype})
        w = alloc([{extents}], i64)
        n = alloc([{extents}], i32)
        sort(k, {lanes}, {axis}, v, w)
        store(v -> V[{place}])
        store(w -> VI[{place}])
        sort(k, {lanes}, {axis}, v, w, descending=True)
        cast(w, n)
        store(v -> D[{place}])
        store(n -> DI[{place}])
        h = alloc([{best}], {dtype}, init={lowest})
        hi = alloc([{best}], i64, init=-1)
        l = alloc([{best}], {dtype}, init={highest})
        li = alloc([{best}], i64, init=-1)
        topk(k, {lanes}, {axis}, h, hi)
        topk(k, {lanes}, {axis}, l, li, largest=False)
        topk(x, 16 + {lanes}, {axis}, h, hi)
        store(h -> H[{best_place}])
        store(hi -> HI[{best_place}])
        store(l -> L[{best_place}])
        store(li -> LI[{best_place}])
}}"""


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("dtype", "wide"),
    [
        ("f32", "f32"), ("f64", "f64"), ("f16", "f32"), ("bf16", "bf16"), ("i64", "i64"),
        ("i32", "i32"), ("i8", "i32"), ("u8", "i32"), ("u32", "u32"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("axis", [0, 1])
def test_operations_along_an_axis(dtype: str, wide: str, axis: int, tmp_path: Path) -> None:
    check(along(axis, dtype, wide), tmp_path, SIZES)


def test_nan_wins_extrema_and_is_the_largest_in_orders(tmp_path: Path) -> None:
    _, kernel = lower(along(1, "f32", "f32"))
    native = NativeKernel(TOOLCHAIN.compile(kernel, tmp_path))
    symbols = {"M": 5, "N": 11}
    tensors = inputs(kernel.sketch, symbols, {})
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 4.0, 4.0], np.float32)
    tensors["X"] = np.random.default_rng(1).choice(special, (5, 11))
    tensors["X"][0], tensors["X"][1] = np.nan, -np.inf
    expected = reference(kernel.sketch, tensors, symbols, {})
    assert native(tensors, symbols, {}) == 0
    assert_equal(kernel.sketch, tensors, expected, 64.0)


@pytest.mark.parametrize("dtype", ["f32", "i64"])
def test_wide_tiles(dtype: str, tmp_path: Path) -> None:
    """Scans of columns go in blocks of neighbours, extrema of rows many lanes at a time."""
    text = f"""sketch wide {{
    symbols: M <= 16, N;
    tensors: X[M, N]: in {dtype}; S[M, N]: out {dtype}; P[M, N]: out {dtype};
             A[M, B]: out i64;
    let: B = cdiv(N, 100);
    constexpr: T = 100;
    {GRID}
    for j in range(cdiv(N, T)):
        x = alloc([16, T])
        load(X[0:M, j*T:(j+1)*T] -> x)
        s = alloc([16, T], {dtype})
        cumsum(x, 0, s)
        store(s -> S[0:M, j*T:(j+1)*T])
        cumprod(x, 0, s, reverse=True)
        store(s -> P[0:M, j*T:(j+1)*T])
        a = alloc([16], i64)
        argmin(x, 1, a)
        store(a -> A[0:M, j])
}}"""
    sizes = [{"M": m, "N": n} for m, n in ((1, 1), (5, 99), (16, 100), (3, 133), (0, 40), (7, 264))]
    check(text, tmp_path, sizes)


LAYOUT = f"""sketch layout {{
    symbols: M, N <= 16;
    tensors: X[M, N, 6]: in f32; P[6, M, N]: out f32; R[M, N, 2, 3]: out f32;
             Q[M, N, 6]: out f32; C[M, N+2, 6]: out f32;
    constexpr: T = 2;
    {GRID}
    for i in range(cdiv(M, T)):
        x = alloc([T, 16, 6])
        load(X[i*T:(i+1)*T, 0:N, 0:6] -> x)
        p = alloc([6, T, 16], f32)
        permute(x, [2, 0, 1], p)
        store(p -> P[0:6, i*T:(i+1)*T, 0:N])
        r = alloc([T, 16, 2, 3], f32)
        reshape(x, r)
        add(r, 1.0, r)
        store(r -> R[i*T:(i+1)*T, 0:N, 0:2, 0:3])
        q = alloc([T, 16, 6], f32)
        reshape(r, q)
        store(q -> Q[i*T:(i+1)*T, 0:N, 0:6])
        z = alloc([T, 2, 6], f32)
        fill(7, z)
        c = alloc([T, 18, 6], f32)
        concat(z, x, 1, c)
        neg(c, c)
        store(c -> C[i*T:(i+1)*T, 0:N+2, 0:6])
}}"""


def test_layout(tmp_path: Path) -> None:
    check(LAYOUT, tmp_path, SIZES)


RANDOM = f"""sketch noise {{
    symbols: M, N <= 16;
    params: seed: i64;
    tensors: X[M, N]: in f32; Y[M, N]: out f32; Z[M, N]: out f32; H[M, N]: out f16;
             W[M, N]: out f64;
    constexpr: T = 2;
    {GRID}
    for i in range(cdiv(M, T)):
        offset = (i*T + iota(T))[:, None] * N + iota(16)[None, :]
        u = alloc([T, 16], f32)
        rand(seed, offset, u)
        store(u -> Y[i*T:(i+1)*T, 0:N])
        rand(seed, offset, u)
        cast(u, u)
        h = alloc([T, 16], f16)
        cast(u, h)
        store(h -> H[i*T:(i+1)*T, 0:N])
        n = alloc([T, 16], f32)
        randn(seed + 1, offset - 5, n)
        store(n -> Z[i*T:(i+1)*T, 0:N])
        w = alloc([T, 16], f64)
        randn(seed, offset, w)
        store(w -> W[i*T:(i+1)*T, 0:N])
}}"""


@pytest.mark.parametrize("seed", [0, -1, 2**40 + 3])
def test_random_numbers(seed: int, tmp_path: Path) -> None:
    check(RANDOM, tmp_path, SIZES, params={"seed": seed}, ulps=4.0)
