"""Sizes that a compiler may take for constants: 1 and multiples of 16, or extents that are written.

Masks, offsets, strides, bounds of loops and conditions are made of such numbers; the compilers of
Triton see them at launch.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from every_target import run_everything
from triton_cases import Case, assert_close, lower, make_case

from sketchc.lowering.registry import TARGETS

#: Symbols and params that are 1 together and apart, and multiples of 16.
VALUES = [(1, 1, 1), (1, 5, 1), (5, 1, 2), (16, 16, 1), (16, 1, 16), (3, 16, 1)]


def rows_of(m: str, n: str, k: str) -> str:
    """Statements about row i of the tensors of `text`."""
    return f"""x = alloc([16])
        load(X[i, 0:{n}] -> x)
        total = alloc([1])
        reduce_sum(x, 0, total)
        store(total -> SUM[i])
        mul(x, {k}, x)
        store(x -> SCALED[i, 0:{n}])
        c = alloc([16])
        load(C[i, 0:{n}] -> c)
        store(c -> BROAD[i, 0:{n}])
        one = alloc([1])
        load(X[i, ({n} - 1)//{k}] -> one)
        store(one -> ONE[i])
        places = alloc([16], i64)
        load(I[0:{n}] -> places)
        pick = alloc([16])
        load(X[i, places] -> pick)
        if {k} > 1 and {n} > 1 or {m} == 1:
            store(pick -> PICK[i, 0:{n}])
        fold = alloc([16], init=0)
        for j in range(0, {n}, {k}):
            if j // {k} < {m}:
                add(fold, x, fold)
        store(fold -> FOLD[i, 0:{n}])"""


def text(name: str, rows: str, columns: str, step: str, declared: str) -> str:
    """Everything that an integer of the launch can take part in."""
    m, n, k = rows, columns, step
    return f"""sketch {name} {{
    {declared}
    tensors: X[{m}, {n}]: in f32; V[{n}]: in f32; C[{m}|1, {n}]: in f32; I[{n}]: in i64;
        LOW[{n}]: out f32 = 0; HIGH[{n}]: out f32 = 0; BAND[{n}]: out f32 = 0;
        SHIFT[{n}]: out f32 = 0; PICK[{m}, {n}]: out f32 = 0; STEPS[{n}]: out f32 = 0;
        SUM[{m}]: out f32; SCALED[{m}, {n}]: out f32; COUNT[{n}]: out i64; AT[{n}]: out f32 = 0;
        BROAD[{m}, {n}]: out f32; ONE[{m}]: out f32; FOLD[{m}, {n}]: out f32 = 0;
        LAST[{n}]: out f32 = 0;
    low = alloc([16])
    load(V[0:{n}] -> low, where=iota(16) >= 3)
    store(low -> LOW[0:{n}])
    high = alloc([16])
    load(V[0:{n}] -> high, where=iota(16) < {k})
    store(high -> HIGH[0:{n}])
    band = alloc([16])
    load(V[0:{n}] -> band, where=iota(16) >= 2 and iota(16) < 2*{k} + 3)
    store(band -> BAND[0:{n}])
    shift = alloc([16])
    load(V[0-{k}:16-{k}] -> shift, pad=-1.0)
    store(shift -> SHIFT[0:{n}])
    last = alloc([16])
    load(V[{n}-1:{n}+15] -> last)
    store(last -> LAST[0:{n}], where=iota(16) < {n})
    strided = alloc([16])
    load(V[0:{n}:{k}] -> strided)
    store(strided -> STEPS[0:{n}])
    count = alloc([16], i64)
    add(iota(16)*{k}, {n}, count)
    store(count -> COUNT[0:{n}])
    at = alloc([16])
    load(V[(iota(16, 0, {n})*{k}) % {n}] -> at)
    atomic_add(at -> AT[iota(16, 0, {n})])
    @llm_hint("parallel")
    for i in range({m}):
        {rows_of(m, n, k)}
}}
"""


DYNAMIC = text(
    "dynamic", "M", "N", "K", "symbols: M <= 16, N <= 16; params: K: i64 = 1;\n    require: K >= 1;"
)


def fixed(m: int, n: int, k: int) -> str:
    return text(f"fixed_{m}_{n}_{k}", str(m), str(n), str(k), "")


def cases(target: str) -> list[Case]:
    """One kernel for all values, and one with each of some written into it."""
    chosen = VALUES[:3] if target == "triton_ascend" else VALUES
    dynamic = lower(DYNAMIC, target)[1]
    made = []
    for m, n, k in chosen:
        rng = np.random.default_rng(m + n)
        given = {"I": rng.integers(0, n, n)}
        made.append(make_case(dynamic, {"M": m, "N": n}, {"K": k}, tensors=given))
    for m, n, k in chosen[:2]:
        rng = np.random.default_rng(m + n)
        given = {"I": rng.integers(0, n, n)}
        made.append(make_case(lower(fixed(m, n, k), target)[1], {}, {}, tensors=given))
    return made


@pytest.mark.sweep
@pytest.mark.parametrize("target", TARGETS)
def test_sizes_that_become_constants(target: str, tmp_path: Path) -> None:
    made = cases(target)
    wrong = []
    for case, found in zip(made, run_everything(target, made, tmp_path), strict=True):
        about = f"{case.kernel.name} {dict(case.symbols)} {dict(case.params)}"
        if isinstance(found, str):
            wrong.append(f"{about}: {found}")
            continue
        for name, expected in case.expected.items():
            try:
                assert_close(found[name], expected, terms=16)
            except AssertionError as error:
                wrong.append(f"{about}: {name}: {error}")
    assert not wrong, "\n\n".join(wrong)
