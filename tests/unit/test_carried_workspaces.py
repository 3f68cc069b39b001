"""What an iteration of the host's loop loads of a workspace, an earlier one has written, or the
sketch is refused with a way out."""

from __future__ import annotations

import pytest

from sketchc.base.diagnostics import Source
from sketchc.checker.api import check


def carried(guard: str, loop: str = "range(S)", first: str = "f32") -> str:
    return f"""sketch carried {{
    symbols: S, D;
    params: k: i64 = 0;
    tensors: X[S, D]: in f32; Y[S, D]: out f32 = 0;
    workspace: LAST[D]: {first};
    constexpr: T = 16;
    for s in {loop}:
        @llm_hint("parallel", "grididx")
        for d in range(0, D, T):
            x = alloc([T])
            load(X[s, d:d+T] -> x)
            {guard}
                h = alloc([T])
                load(LAST[d:d+T] -> h)
                add(x, h, x)
            store(x -> LAST[d:d+T])
            store(x -> Y[s, d:d+T])
}}
"""


@pytest.mark.parametrize(
    ("guard", "loop"),
    [
        ("if s > 0:", "range(S)"),
        ("if s >= 1:", "range(S)"),
        ("if s != 0:", "range(S)"),
        ("if s > 2:", "range(S)"),
        ("if s > 3:", "range(3, S, 2)"),
        ("if s < S - 1:", "range(S - 1, -1, -1)"),
    ],
)
def test_what_an_earlier_iteration_has_written_is_there(guard: str, loop: str) -> None:
    (checked,) = check(Source("test", carried(guard, loop))).sketches
    (found,) = [p for p in checked.proofs if (p.claim, p.subject) == ("initialised", "LAST")]
    assert found.tier.value == "proved"


@pytest.mark.parametrize(
    ("guard", "loop"),
    [
        ("if s >= 0:", "range(S)"),
        ("if s < 1:", "range(S)"),
        ("if k > 0:", "range(S)"),
        ("if s > 0:", "range(2, S)"),
        ("if s > 0:", "range(S - 1, -1, -1)"),
        ("if d < D:", "range(S)"),
    ],
)
def test_what_nothing_has_written_is_refused(guard: str, loop: str) -> None:
    (found,) = [d for d in check(Source("test", carried(guard, loop))).diagnostics if d.help]
    assert found.code == "SK0530"
    assert "only under `if s " in found.help
    assert "give `LAST` an initial value (`= 0`)" in found.help
    assert check(Source("test", carried(guard, loop, "f32 = 0"))).ok
