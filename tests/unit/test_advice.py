"""What diagnostics advise: the advice mends, says which side fails, and does not depend on how the
same thing is spelt."""

from __future__ import annotations

import re

import pytest

from sketchc.base.diagnostics import Diagnostic, Source
from sketchc.checker.api import check


def found(text: str, code: str) -> list[Diagnostic]:
    return [each for each in check(Source("a", text)).diagnostics if each.code == code]


# ---------------------------------------------------------------- SK0420

ROWS = """sketch rows {
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[M]: out f32;
    constexpr: T = 16, TN = 32;

    @llm_hint("parallel", "grididx")
    for i in range(ceil(M, T)):
        total = alloc([T], f32, init=0)
        numbers = alloc([T], f32)
        cast(i*T + iota(T), numbers)
        add(total, numbers, total)
        for j in range(0, N, TN):
            x = alloc([T, TN])
            part = alloc([T])
            load(X[i*T:(i+1)*T, j:j+TN] -> x)
            reduce_sum(x, 1, part)
            add(total, part, total)
        store(total -> Y[i*T:(i+1)*T])
}
"""


def test_the_index_tile_that_sk0420_advises_mends() -> None:
    (one,) = found(ROWS, "SK0420")
    lanes = re.search(r"`(iota\(.*?\))`", one.help)
    assert lanes is not None, one.help
    mended = ROWS.replace("i*T + iota(T)", lanes[1])
    assert not check(Source("a", mended)).diagnostics


# ---------------------------------------------------------------- SK0425

DIAGONALS = """sketch diagonals {
    symbols: N, H;
    tensors: X[N, H]: in f32; Y[N, H]: out f32;
    constexpr: T = 8;
    views: XF[N*H] = X;

    @llm_hint("parallel", "grididx")
    for i in range(0, N, T):
        for j in range(0, H, T):
            x = alloc([T, T])
            m = iota(T, i, N)[:, None]
            n = iota(T, j, H)[None, :]
            load(XF[INDEX] -> x)
            store(x -> Y[i:i+T, j:j+T])
}
"""


@pytest.mark.parametrize(
    ("index", "mark"),
    [
        ("m*H + n", None),
        ("m*H + n - 1", "not proved to be 0 or more"),
        ("m*H + n + 1", "not proved to be less than N*H"),
        ("2*(m*H + n) - N", "not proved to stay in 0 .. N*H - 1"),
    ],
)
def test_sk0425_says_which_side_is_not_proved(index: str, mark: str | None) -> None:
    diagnostics = found(DIAGONALS.replace("INDEX", index), "SK0425")
    assert [each.label for each in diagnostics] == ([] if mark is None else [mark])
    assert not any("pad=0" in each.help for each in diagnostics)


# ---------------------------------------------------------------- SK0652

COLUMNS = """sketch columns {
    symbols: M;
    tensors: X[M, C]: in f32; Y[M]: out f32;
    constexpr: T = 16;
    views: XF[C*M] = X;

    @llm_hint("parallel", "grididx")
    for i in range(0, M, T):
        p = iota(T, i, M)
        y = alloc([T], f32, init=0)
LOADS
        store(y -> Y[i:i+T])
}
"""
SPELT = [
    "X[i:i+T, {k}]",
    "XF[{C}*i+{k}:{C}*(i+T)+{k}:{C}]",
    "XF[{C}*p + {k}]",
    "XF[p*{C} + {k}]",
    "X[p, {k}]",
]


def columns(spelt: str, extent: int, taken: list[int]) -> int:
    """How many loads are said to be scattered, of those that take these columns."""
    lines = []
    for k in taken:
        access = spelt.replace("{k}", str(k)).replace("{C}", str(extent))
        lines += [f"x{k} = alloc([T])", f"load({access} -> x{k})", f"add(y, x{k}, y)"]
    text = COLUMNS.replace("LOADS", "\n".join(f"        {line}" for line in lines))
    return len(found(text.replace("C", str(extent)), "SK0652"))


@pytest.mark.parametrize("spelt", SPELT)
def test_sk0652_judges_a_distance_and_not_its_spelling(spelt: str) -> None:
    assert columns(spelt, 4, [0]) == 0  # four f32 share a line of memory
    assert columns(spelt, 8, [0]) == 1
    assert columns(spelt, 64, [5]) == 1


@pytest.mark.parametrize("spelt", SPELT)
def test_sk0652_sees_loads_that_share_their_lines(spelt: str) -> None:
    assert columns(spelt, 8, list(range(8))) == 0
    assert columns(spelt, 64, list(range(16, 24))) == 0
    assert columns(spelt, 64, [0, 9, 17, 33]) == 4


# ---------------------------------------------------------------- tuning points

POINTS = """sketch points {
    symbols: N;
    tensors: X[N]: in f32; Y[N]: out f32 = 0;
    constexpr: T = 64 in [16, 32, 64];

    @llm_hint("parallel", "grididx")
    for i in range(0, N, T):
        x = alloc([T])
        load(X[i:i+T] -> x)
        store(x -> Y[i//(64//T):i//(64//T)+T])
}
"""


def test_what_several_tuning_points_break_is_said_once() -> None:
    (one,) = found(POINTS, "SK0520")
    assert one.notes[-1] == "with T = 16 | T = 32"
    assert found(POINTS.replace("T = 64 in", "T = 16 in"), "SK0520")
