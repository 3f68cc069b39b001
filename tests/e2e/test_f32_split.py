"""precision="f32_split": products of f32 keep the bound of docs/VERIFICATION.md on every target,
against f64, on inputs that are hard for operands in parts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import attrs
import numpy as np
import pytest
from every_target import disagreements
from toolchains import require
from triton_cases import Array, Case, lower, make_case, run_cases

from sketchc.lowering.registry import built_in_targets
from sketchc.runtime.toolchains.triton_cuda.toolchain import TOOLCHAIN as TRITON_CUDA

PRODUCT = """sketch product {
    symbols: M, N, K;
    tensors: A[M, K]: in f32; B[K, N]: in f32; C[M, N]: out f32;

    @llm_hint("parallel", "grididx")
    for i in range(ceil(M, 32)):
        @llm_hint("parallel", "grididx")
        for j in range(ceil(N, 32)):
            c = alloc([32, 32], init=0)
            for k in range(ceil(K, 32)):
                a = alloc([32, 32])
                b = alloc([32, 32])
                load(A[i*32:(i+1)*32, k*32:(k+1)*32] -> a)
                load(B[k*32:(k+1)*32, j*32:(j+1)*32] -> b)
                gemm(a, b, c, precision="f32_split")
            store(c -> C[i*32:(i+1)*32, j*32:(j+1)*32])
}
"""
SIZES = [(1, 1, 1), (31, 33, 32), (32, 31, 97), (33, 32, 257)]
LARGEST = float(np.finfo(np.float32).max)


def operands(rows: int, columns: int, depth: int) -> Iterator[tuple[Array, Array]]:
    """Both operands of products that are hard in one way each."""
    rng = np.random.default_rng(rows * columns * depth)
    left, right = (rows, depth), (depth, columns)

    def powers(low: float, high: float, shape: tuple[int, int]) -> Array:
        return np.asarray(2.0 ** rng.uniform(low, high, shape) * rng.choice([-1.0, 1.0], shape))

    a, b = rng.standard_normal(left), rng.standard_normal(right)
    yield a, b
    yield np.abs(a), np.abs(b)
    for bits in (7, 8, 9, 11, 12, 16):  # much is left beside so many leading bits
        one = 1.0 + 2.0**-bits - 2.0**-23
        yield np.full(left, one), np.full(right, one)
    yield powers(-60, 60, left), powers(-60, 60, right)
    scales = powers(-100, 100, (1, depth))
    yield a * scales, b / scales.T
    half = depth // 2
    opposite, near = a.copy(), b.copy()
    opposite[:, half : 2 * half] = -opposite[:, :half]
    near[half : 2 * half] = near[:half] * (1.0 + 2.0**-20)
    yield opposite, near
    yield powers(-149, -100, left), powers(0, 60, right)  # denormal numbers, too
    yield np.sign(a) * LARGEST, powers(-40, -20, right)


def special(rows: int, columns: int, depth: int) -> tuple[Array, Array]:
    """Rows with infinities and NaN, times zeros and numbers that bf16 holds, so that nothing is
    left beside their leading bits."""
    rng = np.random.default_rng(depth)
    a, b = rng.standard_normal((rows, depth)), rng.standard_normal((depth, columns))
    b = np.where(np.abs(b) < 0.3, 0.0, np.sign(b) * 2.0 ** np.round(b))
    for row in range(0, rows, 4):
        a[row, row * 7 % depth] = np.inf if row % 8 else -np.inf
        a[row, row * 5 % depth] = (np.inf, np.nan, 1.0)[row % 3]
    return a, b


def beyond(case: Case, found: dict[str, Array]) -> str:
    """What of a product is beyond the bound; infinity and NaN are where f64 has them."""
    a, b = (case.tensors[name].astype(np.float64) for name in "AB")
    got = found["C"].astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        exact = a @ b
        size = np.abs(a) @ np.abs(b)
        small = np.abs(a).sum(1)[:, None] + np.abs(b).sum(0) + 2.0**-16 * a.shape[1]
        allowed = (a.shape[1] + 20) * 2.0**-24 * size + 2.0**-133 * small
        error = np.abs(got - exact) / allowed
    finite = np.isfinite(exact)
    if not np.array_equal(got[~finite], exact[~finite], equal_nan=True):
        return "infinity or NaN is elsewhere"
    worst = error[finite].max(initial=0.0)
    return "" if worst <= 1.0 else f"an error is {worst:.3g} of its bound"


def runs() -> list[tuple[dict[str, int], dict[str, Array]]]:
    """Sizes and inputs of all cases."""
    found = []
    for rows, columns, depth in SIZES:
        pairs = [*operands(rows, columns, depth), special(rows, columns, depth)]
        for a, b in pairs:
            tensors = {"A": a.astype(np.float32), "B": b.astype(np.float32)}
            found.append(({"M": rows, "N": columns, "K": depth}, tensors))
    return found


@pytest.mark.parametrize("target", [target.name for target in built_in_targets()])
def test_products_keep_their_bound(target: str, tmp_path: Path) -> None:
    assert not disagreements(target, {"product": (PRODUCT, runs())}, tmp_path, beyond)


#: What each part of the product in Triton is for: without it, a result is beyond the bound.
FAULTS = {
    "the middle of the left operand": ("tl.dot(a_middle, b_leading, result)", "result"),
    "the middle of the right operand": ("tl.dot(a_leading, b_middle, result)", "result"),
    "both middles": ("tl.dot(a_middle, b_middle, result)", "result"),
    "the last of the left operand": ("tl.dot(a_last, b_leading)", "tl.dot(a_last, b_last)"),
    "the last of the right operand": ("tl.dot(a_leading, b_last, result)", "result"),
    "the largest numbers": (
        "leading = (bits & 0xFFFF0000)",
        "leading = ((bits + 0x8000) & 0xFFFF0000)",
    ),
    "infinities": ("tl.where(result == result, result, 0.0)", "result"),
}


@pytest.mark.parametrize("name", list(FAULTS))
def test_each_part_counts(name: str, tmp_path: Path) -> None:
    require("triton_cuda")
    kernel = lower(PRODUCT, "triton_cuda")[1]
    old, new = FAULTS[name]
    assert kernel.source.count(old) == 1
    broken = attrs.evolve(kernel, source=kernel.source.replace(old, new))
    few = [(sizes, tensors) for sizes, tensors in runs() if sizes["K"] == SIZES[1][2]]
    cases = [make_case(broken, sizes, tensors=tensors) for sizes, tensors in few]
    interpreted = TRITON_CUDA.status().interpreted
    outcomes = run_cases(cases, tmp_path, interpret=interpreted)
    wrong = [
        found if isinstance(found, str) else beyond(case, found)
        for case, found in zip(cases, outcomes, strict=True)
    ]
    assert any(wrong)
