"""What runs reach of a sketch's loops and tiles, and the sizes that are found to reach the rest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from sketchc.base.diagnostics import Source
from sketchc.base.types import DType
from sketchc.checker.testing.crossings import AGAIN, SECOND, TAIL, Mark, behind
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.lowering.plan import Plan
from sketchc.parsing.parser import parse
from sketchc.runtime.cases.binding import Binding, bind
from sketchc.runtime.cases.reach import Freedom
from sketchc.runtime.cases.reaching import Clock, Marks, Reaching, marks_of, numbers_in, smaller
from sketchc.runtime.cases.shapes import Limits, ShapeCase, effort
from sketchc.runtime.cases.sizes import refusal
from sketchc.runtime.tasks.description import TaskDescription, TensorSpec

HEAD = """sketch rows {{
    symbols: M, D;
    {more}
    tensors: X[M, D]: in f32; Y[M]: out f32;
    constexpr: T = 64 in [16, 64];
    require: D >= 2{require};
"""
LOOP = """
    @llm_hint("parallel", "grididx")
    for i in range(M):
        total = alloc([1], init=0)
        for j in range({trips}):
            x = alloc([T])
            part = alloc([1])
            {load}
            reduce_sum(x, 0, part)
            add(total, part, total)
        store(total -> Y[i])
}}
"""
WHOLE = "load(X[i, j*T:(j+1)*T] -> x)"
HALF = "load(X[i, iota(T, j*T, H)] -> x)"
VIEW = "load(V[i, 0, j*T:(j+1)*T] -> x)"


def plan_of(trips: str, load: str, more: str = "", require: str = "", target: str = "cpp") -> Plan:
    text = HEAD.format(more=more, require=require) + LOOP.format(trips=trips, load=load)
    tree, found = parse(Source("rows.sketch", text))
    assert tree is not None, found
    return build_plan(tree.sketches[0], target).plan


def bound(plan: Plan, rows: int, columns: int) -> Binding:
    spec = TensorSpec("", DType.F32, (rows, columns))
    out = TensorSpec("", DType.F32, (rows,))
    task = TaskDescription(Path("task.py"), (spec,), (), (), {}, (out,), "tensor", names=("x",))
    return bind(plan.sketch, task)


#: Written by the built-in Coder: its text says nothing.
KERNEL = Kernel("cpp", "cpu", "rows", "rows", "c++", "", None)  # type: ignore[arg-type]


def reaching(plan: Plan, rows: int, columns: int, most: int = 1 << 21) -> Reaching:
    freedom = Freedom(frozenset({"M", "D"}), {})
    limits = Limits(most, 1 << 15)
    return Reaching(plan, bound(plan, rows, columns), freedom, marks_of(plan, KERNEL), limits)


def taken(found: Reaching) -> list[Mapping[str, int]]:
    """All cases that are looked for, each of which is right."""
    sizes = []
    while (one := found.take()) is not None:
        sizes.append(one.symbols)
        found.ran(ShapeCase("", one.symbols), "normal")
    return sizes


@pytest.mark.parametrize(
    ("length", "width", "expected"),
    [(0, 4, []), (4, 4, []), (5, 4, []), (6, 4, [SECOND, TAIL]), (8, 4, [SECOND]), (1, 1, []),
     (2, 1, [SECOND]), (4097, 4096, []), (8193, 4096, [SECOND])],
)  # fmt: skip
def test_a_second_tile_holds_enough_to_show(length: int, width: int, expected: list[str]) -> None:
    """One element behind 4096 is rarely the largest."""
    assert list(behind(length, width)) == expected


def test_marks_tell_loops_and_axes_apart() -> None:
    """A loop that is cut to one iteration has an axis that goes on."""
    for trips, again in (("ceil(D, T)", True), ("1", False)):
        marks = marks_of(plan_of(trips, WHOLE), KERNEL).at({"M": 2, "D": 220}, {})
        whats = {mark.what for mark in marks if "M" not in mark.where}
        assert whats == ({SECOND, TAIL, AGAIN} if again else {SECOND, TAIL}), trips
    assert not marks_of(plan_of("1", WHOLE), KERNEL).at({"M": 1, "D": 64}, {})


@pytest.mark.parametrize(
    ("load", "trips", "more", "smallest"),
    [
        (WHOLE, "ceil(D, T)", "", 96),
        (WHOLE, "1", "", 96),
        (HALF, "ceil(H, T)", "let: H = D//2;", 192),
        (HALF, "min(1, ceil(H, T))", "let: H = D//2;", 192),
        (VIEW, "ceil(D//2, T)", "views: V[M, 2, D//2] = X;", 192),
    ],
)
def test_sizes_follow_what_a_tile_runs_along(
    load: str, trips: str, more: str, smallest: int
) -> None:
    """A symbol, a `let` and a view's extent, also where the loop is cut; the task's own sizes have
    one tile only."""
    plan = plan_of(trips, load, more, " and D % 2 == 0" if more.startswith("views") else "")
    found = reaching(plan, 8, 32)
    sizes = taken(found)
    assert not found.missing
    assert any(one["D"] >= smallest for one in sizes)
    assert any(SECOND in mark.what for mark in found.reached)


def test_requires_are_honoured() -> None:
    plan = plan_of("ceil(D, T)", WHOLE, require=" and D % 48 == 0")
    found = reaching(plan, 8, 48)
    sizes = taken(found)
    assert sizes
    assert not any(refusal(plan.sketch, one, {}) for one in sizes)
    assert not found.missing


def test_what_is_too_large_is_named_with_sizes_that_would_do() -> None:
    plan = plan_of("ceil(D, T)", WHOLE)
    found = reaching(plan, 8, 4096, most=64)
    found.require({"M": 8, "D": 4096}, {})
    assert all(one["D"] < 64 for one in taken(found))
    assert any("a second tile of axis 2 of X" in gap and "D=4096" in gap for gap in found.gaps(""))


def test_rows_of_one_value_and_sizes_of_one_count_for_little() -> None:
    """The loss of one class is 0 whatever a loop forgets."""
    plan = plan_of("ceil(D, T)", WHOLE)
    found = reaching(plan, 8, 4096)
    found.require({"M": 8, "D": 4096}, {})
    found.ran(ShapeCase("", {"M": 1, "D": 200}), "normal")
    found.ran(ShapeCase("", {"M": 3, "D": 200}), "structured")
    assert not found.reached
    found.ran(ShapeCase("", {"M": 3, "D": 200}), "normal")
    assert not found.missing & found.required - found.reached


def test_a_loop_without_an_access_is_one_too() -> None:
    load = WHOLE + "\n            for k in range(D//8):\n                add(x, 1, x)"
    marks = marks_of(plan_of("ceil(D, T)", load), KERNEL)
    few, many = (marks.at({"M": 1, "D": size}, {}) for size in (8, 16))
    assert [mark.text for mark in many - few] == [f"{AGAIN} of the loop `for k in range(D//8)`"]


def test_equal_marks_at_other_tile_sizes_are_equal() -> None:
    """So that another build, in smaller tiles, reaches what this one does not."""
    large = marks_of(plan_of("ceil(D, T)", WHOLE), KERNEL)
    text = HEAD.format(more="", require="") + LOOP.format(trips="ceil(D, T)", load=WHOLE)
    tree, _ = parse(Source("rows.sketch", text))
    assert tree is not None
    small = marks_of(build_plan(tree.sketches[0], "cpp", None, {"T": 16}).plan, KERNEL)
    assert small.at({"M": 3, "D": 40}, {}) == large.at({"M": 3, "D": 160}, {})
    assert not large.at({"M": 3, "D": 40}, {}) >= small.at({"M": 3, "D": 40}, {})


def test_a_core_that_runs_several_programs_is_a_loop() -> None:
    plan = plan_of("ceil(D, T)", WHOLE, target="triton_ascend")
    marks = marks_of(plan, KERNEL)
    cores = plan.cores(plan.phases[0])
    few, many = marks.at({"M": cores, "D": 2}, {}), marks.at({"M": cores + 1, "D": 2}, {})
    assert [mark.what for mark in many - few] == [AGAIN]


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("python", "BLOCK = 1024\nx = 3 * BLOCK + 100\ny = 'a 512'\n", (1024, 100)),
        ("python", "def f(:", ()),
        ("c++", 'int T = 256; // 77\nconst char *s = "99"; float x = 1.5; int y = 40;', (256, 40)),
    ],
)
def test_numbers_of_a_text(language: str, text: str, expected: tuple[int, ...]) -> None:
    assert set(numbers_in(text, language)) == set(expected)


def test_a_text_in_smaller_tiles() -> None:
    """What a name, a default or a keyword stands for; other numbers mean something else."""
    text = (
        "BLOCK = 1024  # of 1024\nROWS: int = 64\n"
        "def f(x, n, size=256, *, wide=48):\n    y = x * 128 + 'é512'\n"
        "    return g(y, T=BLOCK, K=128)\n"
    )
    found, changes = smaller(text)
    assert changes == {1024: 128, 64: 16, 256: 32, 128: 16}
    expected = text.replace("= 1024", "= 128").replace("= 64", "= 16").replace("=256", "=32")
    assert found == expected.replace("K=128", "K=16")
    assert smaller("def f(:") == ("def f(:", {})
    marks = Marks(plan_of("ceil(D, T)", WHOLE), {1024: 128})
    assert Mark("D behind the 1024 of its text", SECOND) in marks.at({"M": 2, "D": 200}, {})


def test_effort_follows_loops_and_costs_nothing_to_ask() -> None:
    plan = plan_of("ceil(D, T)", WHOLE)
    small, large = (effort(plan, {"M": 4, "D": size}, {}) for size in (64, 1 << 20))
    assert large > 1000 * small
    assert effort(plan, {"M": 8, "D": 64}, {}) > 1.5 * small


def test_a_clock_believes_what_it_has_seen() -> None:
    clock = Clock(10.0)
    clock.ran(1.0, 100)
    clock.ran(2.0, 1000)
    assert clock.allows(1000)
    assert not clock.allows(100_000)
