"""Counter-examples for tiles read before they are assigned name the host's loops too (R12, R8)."""

from __future__ import annotations

from sketchc.base.diagnostics import Source
from sketchc.checker.api import check


def note(text: str) -> str:
    """The counter-example of the one error, which is that a tile is not assigned."""
    (found,) = check(Source("test", text)).diagnostics
    assert found.code == "SK0402"
    return found.notes[-1]


def reading(outside: str, loop: str, more: str = "") -> str:
    return f"""sketch reading {{
    symbols: N;
    tensors: X[N]: in f32; Y[N]: inout f32; LIMIT[]: in i64;
    most = fetch(LIMIT[])
    {outside}
        @llm_hint("parallel", "grididx")
        for i in range(0, N, 4):
            {more}
            x = alloc([4])
            y = alloc([4])
            load(X[i:i+4] -> x)
            for {loop}:
                copy(x, y)
            store(y -> Y[i:i+4])
}}
"""


def test_a_loop_of_the_host_is_part_of_the_iteration() -> None:
    told = note(reading("for step in range(6, 1, -2):", "j in range(step, N)"))
    assert told.startswith("for N = 1, iteration step = 6, i = 0 reads `y`")


def test_a_branch_of_the_host_is_known() -> None:
    told = note(reading("if N > 7:", "j in range(i, 4)"))
    assert told.startswith("for N = 8, iteration i = 4 reads `y`")


def test_loops_may_start_at_what_the_host_counts_or_fetches() -> None:
    told = note(reading("for step in range(1, 3):", "j in range(step, i, 2)"))
    assert told.startswith("for N = 1, iteration step = 1, i = 0 reads `y`")
    told = note(reading("for step in range(most, 3, 2):", "j in range(step, i, 2)"))
    assert "the sketch reads `y`" in told
    told = note(reading("if most > 2:", "j in range(m, i)", "m = fetch(LIMIT[])"))
    assert "i = 0 reads `y`" in told
