"""Choices between integers in proofs, and the shorter forms of stores and comparisons."""

from __future__ import annotations

import numpy as np
import pytest

from sketchc.base.diagnostics import Severity, Source
from sketchc.checker.api import check
from sketchc.interpreter.api import interpret


def sketch(body: str, more: str = "") -> Source:
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    return Source(
        "short.sketch",
        f"""sketch short {{
    symbols: M, N;
    params: p: f32 = 0.5, k: i64 = 2;
    tensors: X[M, N]: in f32; I[N]: in i32; Y[M]: out f32 = 0; Z[M, N]: out i64 = 0; {more}
    constexpr: T = 4 in [4, 8];
    require: N >= 1;

    @llm_hint("parallel")
    for i in range(M):
        x = alloc([T])
        y = alloc([T], f32)
        one = alloc([1], f32)
        square = alloc([1, T, 1], f32)
        load(X[i, 0:T] -> x)
        load(X[i, 0:T] -> square)
{lines}
}}
""",
    )


def codes(body: str, more: str = "") -> set[str]:
    found = check(sketch(body, more)).diagnostics
    return {one.code for one in found if one.severity is Severity.ERROR}


# ---------------------------------------------------------------- a if c else b


@pytest.mark.parametrize(
    ("row", "inside"),
    [
        ("i - 1 if i > 0 else 0", True),
        ("0 if i == 0 else i - 1", True),
        ("i + 1 if i + 1 < M else 0", True),
        ("i if k > 0 else M - 1 - i", True),
        ("i + 1 if i < M - 1 else i if i > 2 else 0", True),
        ("min(i - 1 if i > 0 else 0, M - 1)", True),
        ("(i if i > 0 else 1) - 1", True),
        ("i - 1 if i >= 0 else 0", False),
        ("i + 1 if i + 1 <= M else 0", False),
        ("i - 1 if k > 0 else 0", False),
        ("i - 1 if i != 0 else -1", False),
        ("i + 1 if i < M - 1 and k > 0 else i + 1", False),
    ],
)
def test_proofs_look_at_both_cases(row: str, inside: bool) -> None:
    found = codes(f"load(X[{row}, 0:T] -> y)")
    assert (found == set()) == inside, found


def test_a_choice_is_what_python_says() -> None:
    body = "n = iota(T, 0, N)\nstore((n if n < i else 10*n) if i % 2 == 0 else -n -> Z[i, n])"
    (checked,) = check(sketch(body)).sketches
    rng = np.random.default_rng(1)
    inputs = {"X": rng.random((5, 3)).astype("f4"), "I": np.zeros(3, "i4")}
    found = interpret(checked.sketch, inputs, {"M": 5, "N": 3}).outputs["Z"]
    wanted = [[(n if n < i else 10 * n) if i % 2 == 0 else -n for n in range(3)] for i in range(5)]
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("m = p if i > 0 else 1", "SK0302"),
        ("m = 1 if i else 2", "SK0308"),
        ("m = 1 if x > 0 else 2\nstore(m -> Z[i, 0:T])", ""),
        ("m = x if i > 0 else y", "SK0206"),
        ("m = iota(T) if i > 0 else iota(3)", "SK0305"),
    ],
)
def test_what_may_be_chosen(body: str, code: str) -> None:
    assert codes(body) == ({code} if code else set())


# ---------------------------------------------------------------- stores without a tile


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("store(1 -> Z[i, 0:T])", ""),
        ("store(1.5 -> Z[i, 0:T])", "SK0307"),
        ("store(k -> Z[i, 0:T])", ""),
        ("store(p -> Y[i])", ""),
        ("store(1 -> Z[i, k:k+T])", ""),
        ("store(1 -> Z[i, 0:min(T, N)])", ""),
        ("store(1 -> Z[i, 0:i])", "SK0306"),
        ("store(iota(T) -> Z[i, 0:T])", ""),
        ("store(iota(3) -> Z[i, 0:T])", ""),
        ("store(iota(T) -> Y[0:T])", "SK0307"),
        ("store(nothing -> Y[i])", "SK0201"),
        ("store(X -> Y[i])", "SK0206"),
        ("store(sqrt(i) -> Y[i])", "SK0302"),
        ("store(square -> W[i, 0:T])", ""),
        ("store(square -> W[i:i+1, 0:T])", "SK0304"),
        ("store(square -> W[i, 0])", "SK0304"),
    ],
)
def test_what_may_be_stored(body: str, code: str) -> None:
    """(A slice of the wrong length is another matter: `iota(3)` fits one that is shorter.)"""
    found = codes(body, "W[M, N]: out f32 = 0;") - {"SK0503", "SK0504", "SK0520", "SK0522"}
    assert found == ({code} if code else set())


# ---------------------------------------------------------------- comparisons of data


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("where(x > 0, x, y, x)", "SK0401"),
        ("where(x > 0, x, p, y)", ""),
        ("where(x > p and not x == 1.0, x, 0, y)", ""),
        ("where(x == -inf, 0.0, x, x)", ""),
        ("above = x >= 0\nwhere(above, x, -1, y)", ""),
        ("where(x[:, None] > x[None, :], 1, 0, pairs)", ""),
        ("where(x > i, x, 0, y)", ""),
        ("where(x > iota(T), x, 0, y)", ""),
        ("where(x > iota(3), x, 0, y)", "SK0305"),
        ("where(x*2 > 0, x, 0, y)", ""),
        ("if x > 0:\n    fill(0, y)", "SK0324"),
        ("for n in range(x > 0):\n    fill(0, y)", "SK0302"),
        ("where(x > T, x, 0, y)", "SK0208"),
    ],
)
def test_what_may_be_compared(body: str, code: str) -> None:
    assert codes("pairs = alloc([T, T], f32)\n" + body) == ({code} if code else set())


def test_no_fix_names_a_tile_that_the_sketch_does_not() -> None:
    """The loads of `square` go by way of a tile without a name; they are told of, not copied."""
    again = "load(X[i, 0:T] -> square)\nstore(square -> W[i, 0:T])"
    for found in check(sketch(again, "W[M, N]: out f32 = 0;")).diagnostics:
        for fix in found.fixes:
            assert not any("_flat" in edit.replacement for edit in fix.edits), found
