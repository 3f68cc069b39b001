"""Floor division and remainder of floats: exact on every target, as in NumPy, and so are the signs
of zeros (PyTorch gives a remainder of zero the sign of the dividend)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from every_target import run_everything
from triton_cases import Array, Case, dtype_of, lower, make_case

from sketchc.base.types import DType
from sketchc.lowering.registry import TARGETS

#: So many are divided one by one, too.
ONES = 20
TYPES = ("f32", "f16", "bf16", "f64")


def text(dtype: str) -> str:
    """Tiles by tiles, tiles by a literal, and single elements."""
    return f"""sketch division_{dtype} {{
    symbols: N, K;
    tensors: A[N]: in {dtype}; B[N]: in {dtype}; F[K]: in {dtype}; G[K]: in {dtype};
        REST[N]: out {dtype}; WHOLE[N]: out {dtype};
        HALF[N]: out {dtype}; ONE[K]: out {dtype};
    @llm_hint("parallel")
    for i in range(ceil(N, 64)):
        a = alloc([64])
        b = alloc([64])
        load(A[i*64:(i+1)*64] -> a)
        load(B[i*64:(i+1)*64] -> b)
        rest = alloc([64], {dtype})
        mod(a, b, rest)
        store(rest -> REST[i*64:(i+1)*64])
        whole = alloc([64], {dtype})
        floordiv(a, b, whole)
        store(whole -> WHOLE[i*64:(i+1)*64])
        half = alloc([64], {dtype})
        mod(a, 0.5, half)
        store(half -> HALF[i*64:(i+1)*64])
    @llm_hint("parallel")
    for i in range(K):
        x = alloc([1])
        y = alloc([1])
        load(F[i] -> x)
        load(G[i] -> y)
        one = alloc([1], {dtype})
        mod(x, y, one)
        store(one -> ONE[i])
}}
"""


def operands(dtype: str) -> tuple[Array, Array]:
    """Quotients of all magnitudes, exact ones, ends of the type, subnormals, infinities, NaN."""
    rng = np.random.default_rng(1)
    kind = dtype_of(DType(dtype))
    exponents = {"f16": (-20, 14), "f64": (-300, 300)}.get(dtype, (-40, 37))
    made = [rng.uniform(-1, 1, 150) * 2.0 ** rng.uniform(*exponents, 150) for _ in range(2)]
    near = rng.uniform(-8, 8, (2, 60))
    corners = [3e38, -3e38, 0.5, -0.5, 0.0, -0.0, 1.0, -1.0, 0.1, 7.0, 6e4, 1e-45, -1e-40]
    if dtype == "bf16":
        corners = corners[:-2]  # Triton's interpreter reads its subnormal numbers as zero
    corners += [np.inf, -np.inf, np.nan]
    pairs = np.array(np.meshgrid(corners, corners)).reshape(2, -1)
    with np.errstate(over="ignore"):
        a, b = (
            np.concatenate([p, m, n]).astype(kind)
            for m, n, p in zip(made, near, pairs, strict=True)
        )
    return a, b


def wrong(case: Case, found: dict[str, Array], a: Array, b: Array) -> list[str]:
    """Remainders are exact. A quotient beyond 2**p is one of p + 1 bits, two roundings of them."""
    wide = (a.astype(np.float64), b.astype(np.float64))
    with np.errstate(all="ignore"):
        rest = np.mod(*wide).astype(a.dtype)
        expected = {
            "REST": rest,
            "ONE": rest[:ONES],
            "HALF": np.mod(wide[0], 0.5).astype(a.dtype),
            "WHOLE": np.floor_divide(*wide).astype(a.dtype),
        }
    bad = []
    for name, want in expected.items():
        for origin, got in (("interpreter", case.expected[name]), ("target", found[name])):
            got, exact = got.astype(np.float64), want.astype(np.float64)
            with np.errstate(invalid="ignore"):
                same = (got == exact) & (np.signbit(got) == np.signbit(exact))
                same |= np.isnan(got) & np.isnan(exact)
                if name == "WHOLE" and origin == "target" and a.dtype.itemsize == 4:
                    same |= (np.abs(exact) > 2**23) & (
                        np.abs(got - exact) <= 2**-22 * np.abs(exact)
                    )
            for place in np.flatnonzero(~same)[:5]:
                bad.append(
                    f"{name} ({origin}) of {a[place]}, {b[place]}: {got[place]}, not {exact[place]}"
                )
    return bad


@pytest.mark.sweep
@pytest.mark.parametrize("target", TARGETS)
def test_remainders_are_exact(target: str, tmp_path: Path) -> None:
    cases, given = [], []
    for dtype in TYPES[: 3 if target == "triton_ascend" else 4]:
        a, b = operands(dtype)
        given.append((a, b))
        kernel = lower(text(dtype), target)[1]
        tensors = {"A": a, "B": b, "F": a[:ONES], "G": b[:ONES]}
        cases.append(make_case(kernel, {"N": a.size, "K": ONES}, tensors=tensors))
    results = run_everything(target, cases, tmp_path)
    for case, found, (a, b) in zip(cases, results, given, strict=True):
        assert isinstance(found, dict), found
        assert not (bad := wrong(case, found, a, b)), "\n".join(bad)
