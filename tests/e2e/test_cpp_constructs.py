"""What C++ must keep for accesses, branches, atomics and host steps beyond the feature sketches."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from cpp_cases import Array, check, lower
from toolchains import require

from sketchc.runtime.toolchains.cpp.toolchain import TOOLCHAIN

require("cpp")

GRID = '@llm_hint("parallel", "grididx")'


def run(
    text: str,
    folder: Path,
    tensors: dict[str, Array],
    symbols: dict[str, int],
    params: dict[str, Any] | None = None,
) -> dict[str, Array]:
    """What a sketch's kernel makes of its tensors; each ends at a page that nobody may touch."""
    _, kernel = lower(text)
    artefact = TOOLCHAIN.compile(kernel, folder)
    assert artefact.details["warnings"] == ""
    return TOOLCHAIN.run(artefact, tensors, symbols, params or {})


def module(text: str, folder: Path, name: str) -> ModuleType:
    """The importable module of a sketch."""
    _, kernel = lower(text)
    path = TOOLCHAIN.build_module(kernel, folder)
    spec = importlib.util.spec_from_file_location(f"{name}_module", path)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


# ---------------------------------------------------------------- order in memory


def test_a_store_to_other_lanes_waits_for_the_whole_load(tmp_path: Path) -> None:
    """A copy within one tensor, to overlapping places, in both directions."""
    text = f"""sketch shift {{
    symbols: M;
    tensors: Z[M, 70]: inout f32; W[M, 70]: inout f32;
    {GRID}
    for i in range(M):
        a = alloc([64])
        b = alloc([64])
        load(Z[i, 0:64] -> a)
        store(a -> Z[i, 3:67])
        load(W[i, 3:67] -> b)
        store(b -> W[i, 0:64])
}}"""
    check(text, tmp_path, [{"M": 1}, {"M": 5}])


def test_a_gather_waits_for_the_store_before_it(tmp_path: Path) -> None:
    """A load through indices sees what the program stored, and stores nothing before it has read:
    each row is reversed in place, twice."""
    text = f"""sketch turn {{
    symbols: M, N <= 64;
    tensors: Z[M, N]: inout f32; Y[M, N]: out f32;
    constexpr: T = 64;
    {GRID}
    for i in range(M):
        a = alloc([T])
        b = alloc([T])
        n = iota(T, 0, N)
        load(Z[i, N-1-n] -> a)
        store(a -> Z[i, 0:N])
        load(Z[i, N-1-n] -> b)
        add(b, 1, b)
        store(b -> Y[i, 0:N])
}}"""
    check(text, tmp_path, [{"M": 1, "N": 1}, {"M": 5, "N": 37}, {"M": 2, "N": 64}])


def test_bindings_are_snapshots(tmp_path: Path) -> None:
    """An index tile bound from a tile keeps its values when the tile is written again, in place or
    as a new version, also in a loop."""
    text = f"""sketch snapshot {{
    symbols: N;
    tensors: X[N]: in f32; I[N]: in i64; A[N]: out f32; B[N]: out f32;
    constexpr: T = 16;
    {GRID}
    for j in range(cdiv(N, T)):
        place = alloc([T], i64, init=0)
        other = alloc([T], i64)
        x = alloc([T])
        y = alloc([T])
        add(place, j*T + iota(T, j*T, N) - j*T, place)
        add(j*T + iota(T, j*T, N), 0, other)
        m = (place - place) + N - 1 - iota(T, j*T, N)
        q = other - 0
        before = place * 1
        for k in range(3):
            add(place, 1, place)
        mul(other, 100, other)
        load(X[m] -> x)
        store(x -> A[j*T:(j+1)*T])
        load(X[(before + q) % N] -> y)
        store(y -> B[j*T:(j+1)*T])
}}"""
    text = text.replace(" I[N]: in i64;", "")
    check(text, tmp_path, [{"N": 1}, {"N": 37}])


def test_tiles_written_in_a_branch_and_read_after_it(tmp_path: Path) -> None:
    """Where only one side writes a tile, the other keeps what it had."""
    text = f"""sketch sides {{
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[M, N]: out f32; Z[M, N]: out f32;
    constexpr: T = 16;
    {GRID}
    for i in range(M):
        for j in range(cdiv(N, T)):
            x = alloc([T])
            y = alloc([T])
            load(X[i, j*T:(j+1)*T] -> x)
            exp(x, y)
            if i % 3 == 1:
                neg(x, x)
                if j > 0:
                    add(y, x, y)
            else:
                if i % 3 == 2:
                    mul(y, 0.5, y)
            store(x -> Y[i, j*T:(j+1)*T])
            store(y -> Z[i, j*T:(j+1)*T])
}}"""
    check(text, tmp_path, [{"M": 1, "N": 1}, {"M": 7, "N": 37}, {"M": 3, "N": 0}])


# ---------------------------------------------------------------- indices out of range


FAR = np.array([3, -1, 0, 2**40, 5, -(2**62), 1, 2**31, 4, 6], np.int64)


def test_loaded_indices_out_of_range_are_masked(tmp_path: Path) -> None:
    """R13: lanes whose loaded index lies outside neither read nor write; the others do."""
    text = f"""sketch far {{
    symbols: K, N;
    tensors: X[N]: in f32; I[K]: in i64; Y[K]: out f32; PADDED[K]: out f32; S[N]: out f32 = -1;
        COUNT[N]: out i32 = 0; FETCHED[K]: out f32;
    constexpr: T = 4;
    {GRID}
    for k in range(cdiv(K, T)):
        i = alloc([T])
        x = alloc([T])
        y = alloc([T])
        one = alloc([T], i32)
        load(I[k*T:(k+1)*T] -> i)
        load(X[i] -> x)
        store(x -> Y[k*T:(k+1)*T])
        load(X[i] -> y, pad=7)
        store(y -> PADDED[k*T:(k+1)*T])
        store(y -> S[i], unique=True)
        fill(1, one)
        atomic_add(one -> COUNT[i])

    {GRID}
    for k in range(K):
        at = fetch(I[k])
        value = fetch(X[at])
        f = alloc([1], f32)
        fill(0, f)
        add(f, value, f)
        store(f -> FETCHED[k:k+1])
}}"""
    x = np.random.default_rng(3).standard_normal(6).astype(np.float32)
    found = run(text, tmp_path, {"X": x, "I": FAR}, {"K": FAR.size, "N": x.size})
    inside = (FAR >= 0) & (x.size > FAR)
    np.testing.assert_array_equal(found["Y"][inside], x[FAR[inside]])
    np.testing.assert_array_equal(found["PADDED"], np.where(inside, x[FAR % x.size], 7))
    np.testing.assert_array_equal(found["FETCHED"], np.where(inside, x[FAR % x.size], 0))
    scattered = np.full(x.size, -1, np.float32)
    scattered[FAR[inside]] = x[FAR[inside]]
    np.testing.assert_array_equal(found["S"], scattered)
    counts = np.bincount(FAR[inside], minlength=x.size)
    np.testing.assert_array_equal(found["COUNT"], counts)


# ---------------------------------------------------------------- atomics


@pytest.mark.parametrize("dtype", ["i32", "i64", "f32", "f64", "f16", "bf16"])
def test_no_atomic_update_is_lost(dtype: str, tmp_path: Path) -> None:
    """Many threads on few elements; every value is exact in its type, in any order."""
    text = f"""sketch crowd {{
    symbols: N;
    tensors: X[N]: in {dtype}; I[N]: in i32; SUM[3]: out {dtype} = 0; TOP[3]: out {dtype} = 0;
        LOW[3]: out {dtype} = 100;
    constexpr: T = 64;
    {GRID}
    for i in range(cdiv(N, T)):
        x = alloc([T])
        j = alloc([T])
        load(X[i*T:(i+1)*T] -> x)
        load(I[i*T:(i+1)*T] -> j)
        atomic_add(x -> SUM[j])
        atomic_max(x -> TOP[j])
        atomic_min(x -> LOW[j])
}}"""
    rng = np.random.default_rng(5)
    size = 50_000
    kind = np.dtype(ml_dtypes.bfloat16) if dtype == "bf16" else None
    kind = kind or np.dtype(f"{'float' if dtype[0] == 'f' else 'int'}{dtype[1:]}")
    x = np.zeros(size)
    chosen = rng.choice(size, 200, replace=False)
    x[chosen] = rng.integers(0, 2, 200)
    x[chosen[:9]] = 5
    j = rng.integers(0, 3, size).astype(np.int32)
    found = run(text, tmp_path, {"X": x.astype(kind), "I": j}, {"N": size})
    for place in range(3):
        mine = x[j == place]
        assert float(found["SUM"][place]) == mine.sum()
        assert float(found["TOP"][place]) == mine.max()
        assert float(found["LOW"][place]) == mine.min()


def test_atomic_extrema_keep_nan(tmp_path: Path) -> None:
    text = f"""sketch extrema {{
    symbols: N;
    tensors: X[N]: in f32; I[N]: in i64; TOP[2]: out f32 = -inf; LOW[2]: out f32 = inf;
    {GRID}
    for i in range(cdiv(N, 8)):
        x = alloc([8])
        j = alloc([8])
        load(X[i*8:(i+1)*8] -> x)
        load(I[i*8:(i+1)*8] -> j)
        atomic_max(x -> TOP[j])
        atomic_min(x -> LOW[j])
}}"""
    x = np.random.default_rng(1).standard_normal(61).astype(np.float32)
    j = (np.arange(61) % 2).astype(np.int64)
    x[8] = np.nan
    found = run(text, tmp_path, {"X": x, "I": j}, {"N": 61})
    for name, wanted in (("TOP", x[1::2].max()), ("LOW", x[1::2].min())):
        assert np.isnan(found[name][0])
        assert found[name][1] == wanted


# ---------------------------------------------------------------- loops and host steps


@pytest.mark.parametrize("step", [1, 2, 20])
def test_steps_known_only_at_launch(step: int, tmp_path: Path) -> None:
    """Loops whose step is a param, upwards on the host and downwards in a kernel."""
    text = f"""sketch stepping {{
    symbols: N;
    params: start: i64 = 0; stop: i64 = 9; step: i64 = 1;
    require: step >= 1;
    tensors: COUNT[N]: inout i64; ORDER[N]: inout i64;
    for s in range(start, stop, step):
        {GRID}
        for i in range(N):
            c = alloc([1])
            o = alloc([1])
            sum = alloc([1], i64, init=0)
            load(COUNT[i:i+1] -> c)
            add(c, 1, c)
            store(c -> COUNT[i:i+1])
            load(ORDER[i:i+1] -> o)
            for k in range(stop, start, -step):
                mul(sum, 3, sum)
                add(sum, k + s, sum)
            mul(o, 5, o)
            add(o, sum, o)
            store(o -> ORDER[i:i+1])
}}"""
    params = {"start": -2, "stop": 9, "step": step}
    check(text, tmp_path, [{"N": 1}, {"N": 3}], params)


# ---------------------------------------------------------------- the module


def test_the_module_takes_none_for_an_optional_tensor(tmp_path: Path) -> None:
    text = f"""sketch maybe {{
    symbols: N;
    tensors: X[N]: in f32; A[N]: in f32?; S[]: in f32; B[N]: in i8?; Y[N]: out f32; T[]: out f32;
    {GRID}
    for i in range(cdiv(N, 16)):
        x = alloc([16])
        load(X[i*16:(i+1)*16] -> x)
        if present(A):
            a = alloc([16])
            load(A[i*16:(i+1)*16] -> a)
            add(x, a, x)
        if present(B):
            b = alloc([16])
            f = alloc([16], f32)
            load(B[i*16:(i+1)*16] -> b)
            cast(b, f)
            mul(x, f, x)
        store(x -> Y[i*16:(i+1)*16])
    s = alloc([1])
    load(S[] -> s)
    mul(s, 2, s)
    store(s -> T[])
}}"""
    maybe = module(text, tmp_path, "maybe").maybe
    x, a = torch.randn(2, 37)
    s, b = torch.tensor(1.5), torch.randint(-5, 5, (37,), dtype=torch.int8)
    y, t = maybe(x, a, s, b)
    assert torch.equal(y, (x + a) * b)
    assert t.shape == ()
    assert t == 3.0
    assert torch.equal(maybe(x, None, s, b)[0], x * b)
    assert torch.equal(maybe(x, a, s)[0], x + a)
    assert torch.equal(maybe(x, None, s)[0], x)
    with pytest.raises(ValueError, match="A has extent 36"):
        maybe(x, a[1:], s)
