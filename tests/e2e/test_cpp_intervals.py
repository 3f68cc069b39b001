"""Loops over lanes that are split around the interval of lanes inside of a tensor compute what the
guard on each lane would: where the interval is empty, all of the loop, or longer than it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cpp_cases import Array, assert_equal, check, example, inputs, lower, reference
from native_kernel import NativeKernel
from toolchains import ready, require

from sketchc.lowering.plan import Plan

require("cpp")

#: stride, padding, dilation: none outside, some at both ends, whole rows.
WINDOWS = [(1, 0, 1), (1, 1, 1), (2, 1, 1), (3, 2, 2), (2, 7, 3), (1, 40, 1), (5, 33, 1)]
WIDTHS = (1, 2, 7, 31, 32, 33, 61)


@pytest.fixture(scope="module")
def depthwise(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, NativeKernel]:
    plan, kernel = lower(example("depthwise_conv2d"), {"T": 32})
    assert "lane < first_inside" in kernel.source
    return plan, NativeKernel(ready(kernel, tmp_path_factory.mktemp("depthwise")))


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("special", [False, True])
def test_padded_rows(
    window: tuple[int, int, int], special: bool, depthwise: tuple[Plan, NativeKernel]
) -> None:
    """`special`: the padding meets an infinity and becomes NaN."""
    plan, native = depthwise
    params = dict(zip(("stride", "padding", "dilation"), window, strict=True))
    for width in WIDTHS:
        symbols = {"N": 1, "C": 2, "H": 3, "W": width, "KH": 2, "KW": 3}
        if width + 2 * window[1] < 2 * window[2] + 1 or 3 + 2 * window[1] < window[2] + 1:
            continue  # no window fits
        given = inputs(plan.sketch, symbols, params)
        if special:
            given["WEIGHT"][0] = np.inf
        wanted = reference(plan.sketch, given, symbols, params)
        found: dict[str, Array] = {name: array.copy() for name, array in given.items()}
        assert native(found, symbols, params) == 0
        assert_equal(plan.sketch, found, wanted, 64.0)


def test_loops_that_combine_lanes_stay_whole() -> None:
    """Sums over lanes keep their order."""
    text = """sketch sums {
    symbols: M, N;
    params: shift: i64 = 1;
    tensors: X[M, N]: in f32; Y[M]: out f32;
    require: shift >= 0;
    constexpr: T = 64;
    @llm_hint("parallel", "grididx")
    for i in range(M):
        total = alloc([1], f32, init=0)
        for j in range(ceil(N, T)):
            x = alloc([T])
            load(X[i, j*T-shift:(j+1)*T-shift] -> x, pad=0)
            part = alloc([1])
            reduce_sum(x, 0, part)
            add(total, part, total)
        store(total -> Y[i:i+1])
}"""
    _, kernel = lower(text)
    assert "reduction(+" in kernel.source
    assert "first_inside" not in kernel.source


@pytest.mark.parametrize(
    "inside",
    [
        "iota(T)[None, :] < iota(R)[:, None]",
        "iota(R)[:, None] <= iota(T)[None, :]",
        "iota(R)[:, None] <= iota(T)[None, :] and iota(T)[None, :] < iota(R)[:, None] + 3",
    ],
)
def test_intervals_that_move_with_the_row(inside: str, tmp_path: Path) -> None:
    """Where several rows are added in one pass, an interval that depends on the row is none of the
    loop over lanes around them."""
    text = f"""sketch band_sums {{
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[N]: out f32;
    constexpr: R = 32, T = 64;
    @llm_hint("parallel", "grididx")
    for j in range(ceil(N, T)):
        total = alloc([T], f32, init=0)
        for i in range(ceil(M, R)):
            x = alloc([R, T])
            load(X[i*R:(i+1)*R, j*T:(j+1)*T] -> x, where={inside}, pad=0)
            part = alloc([T])
            reduce_sum(x, 0, part)
            add(total, part, total)
        store(total -> Y[j*T:(j+1)*T])
}}"""
    sizes = [{"M": m, "N": n} for m in (1, 7, 31, 33, 70) for n in (1, 63, 65)]
    check(text, tmp_path, sizes)
