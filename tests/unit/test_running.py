"""Cases that a task refuses give way to others, and a verdict says what nothing stood in for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from sketchc.agents.workflows import WORKFLOWS
from sketchc.base.diagnostics import Source
from sketchc.base.types import DType
from sketchc.cli.gen_report import STATUS
from sketchc.cli.verify_files import Outcome, VerifyRequest
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.passes.pipeline import build_plan
from sketchc.parsing.parser import parse
from sketchc.runtime.bench.text import Entry, against, total_text
from sketchc.runtime.cases.binding import bind
from sketchc.runtime.cases.reach import Freedom
from sketchc.runtime.cases.shapes import NATIVE, ShapeCase
from sketchc.runtime.report.files import Result, page_of
from sketchc.runtime.tasks.description import TaskDescription, TensorSpec
from sketchc.runtime.toolchains.base import toolchain
from sketchc.runtime.verify.case_runner import CaseRunner
from sketchc.runtime.verify.running import KINDS, Runner, smallest_tiles
from sketchc.runtime.verify.text import summary
from sketchc.runtime.verify.verdict import CaseResult, Verdict, to_json
from sketchc.runtime.verify.verify import Candidate

COPY = """sketch copies {
    symbols: M, N;
    tensors: X[M, N]: in f32; Y[M, N]: out f32;
    constexpr: T = 32 in [8, 32], K: i64 = 3;

    @llm_hint("parallel", "grididx")
    for i in range(M):
        for j in range(ceil(N, T)):
            x = alloc([T])
            load(X[i, j*T:(j+1)*T] -> x)
            store(x -> Y[i, j*T:(j+1)*T])
}
"""

Takes = Callable[[Mapping[str, int]], bool]


@attrs.define
class Task(CaseRunner):
    """A case runner whose task takes some sizes only; every case that it takes is right."""

    takes: Takes = lambda symbols: True
    asked: list[dict[str, int]] = attrs.field(factory=list)

    def run(self, case: ShapeCase, kind: str, seed: int, runs: int) -> CaseResult:
        self.asked.append(dict(case.symbols))
        refused = not self.takes(case.symbols)
        reason = "the task refuses these sizes: no" if refused else ""
        return CaseResult(case, kind, seed, "skipped" if refused else "", reason, seconds=0.1)


def case_runner(takes: Takes, free: str = "MN") -> Any:
    tree, found = parse(Source("copies.sketch", COPY))
    assert tree is not None, found
    plan = build_plan(tree.sketches[0], "cpp").plan
    spec = TensorSpec("", DType.F32, (64, 96))
    task = TaskDescription(Path("task.py"), (spec,), (), (), {}, (spec,), "tensor", names=("x",))
    kernel = Kernel("cpp", "cpu", "copies", "copies", "c++", "", plan.sketch)
    candidate = Candidate(plan, kernel, toolchain("cpp"))
    binding = bind(plan.sketch, task)
    reference = SimpleNamespace(is_sketch=False, slow=False)
    return Task(candidate, binding, Freedom(frozenset(free), {}), reference, 1.0, takes=takes)  # type: ignore[arg-type]


def cases(*sizes: tuple[int, int]) -> list[tuple[ShapeCase, str]]:
    return [
        (ShapeCase(f"ragged {n}", {"M": m, "N": k}), KINDS[n % len(KINDS)])
        for n, (m, k) in enumerate(sizes)
    ]


@pytest.mark.parametrize(
    "takes",
    [
        lambda s: s["M"] * s["N"] > 1,
        lambda s: s["N"] >= 7,
        lambda s: s["M"] % 2 == 0,
        lambda s: s["M"] >= s["N"] // 2,
    ],
)
def test_as_many_cases_run_as_were_planned(takes: Takes) -> None:
    ran = case_runner(takes)
    runner = Runner(ran, 5)
    planned = cases((1, 1), (1, 5), (33, 1), (3, 40), (5, 7))
    runner.planned(planned, NATIVE)
    right = [result for result in runner.results if result.passed]
    assert len(right) == len(planned)
    assert len({tuple(r.shape.symbols.values()) for r in right}) == len(planned)
    assert [r.kind for r in right] == [kind for _, kind in planned]


def test_all_kinds_run_at_the_only_sizes_that_a_task_takes() -> None:
    """Shown by trying: others are refused, which is said."""
    ran = case_runner(lambda s: s == {"M": 64, "N": 96})
    runner = Runner(ran, 5)
    own = ShapeCase("own sizes", {"M": 64, "N": 96}, own=True)
    runner.planned([*cases((1, 1), (3, 40), (5, 7)), (own, "task")], NATIVE)
    assert runner.dropped
    runner.all_kinds(own, 10.0)
    right = [result for result in runner.results if result.passed]
    assert {result.kind for result in right} == {"task", *KINDS}
    assert any("takes few sizes" in note for note in ran.notes)
    assert not ran.gaps


def test_static_shapes_meet_all_kinds_within_the_time_there_is() -> None:
    ran = case_runner(lambda s: True, free="")
    runner = Runner(ran, 5)
    own = ShapeCase("own sizes", {"M": 64, "N": 96}, own=True)
    runner.planned([(own, "task"), (own, "structured")], NATIVE)
    runner.all_kinds(own, 0.0)
    assert ["normal inputs" in ran.gaps[0], len(ran.gaps)] == [True, 4]


def test_everything_is_reached_or_named(tmp_path: Path) -> None:
    """A task that takes no more than one tile leaves the rest unreached; with no time, too."""
    for takes, budget, reached in (
        (lambda s: True, 60.0, True),
        (lambda s: s["N"] <= 32, 60.0, False),
        (lambda s: True, 0.0, False),
    ):
        ran = case_runner(takes)
        runner = Runner(ran, 5)
        runner.planned(cases((3, 5), (4, 31)), NATIVE)
        marks = runner.reach(tmp_path, budget)
        assert any("a second tile of axis 2 of X" in mark for mark in marks) is reached
        assert any("axis 2 of X in tiles of T" in gap for gap in ran.gaps) is not reached


def test_the_smallest_tiles_are_those_of_the_sketchs_own_lists() -> None:
    candidate = case_runner(lambda s: True).candidate
    assert smallest_tiles(candidate) == {"T": 8}
    tree, _ = parse(Source("copies.sketch", COPY))
    assert tree is not None
    small = build_plan(tree.sketches[0], "cpp", None, {"T": 8}).plan
    assert smallest_tiles(attrs.evolve(candidate, plan=small)) == {}


# ---------------------------------------------------------------- what a verdict is


def verdict(*failures: str, unreached: tuple[str, ...] = ()) -> Verdict:
    found = tuple(
        CaseResult(ShapeCase("one", {"M": n}), "normal", 1, failure, failure)
        for n, failure in enumerate(failures)
    )
    return Verdict("s", "cpp", "cpu", "t", "here", 1, found, unreached=unreached)


@pytest.mark.parametrize(
    ("found", "word", "status"),
    [
        (verdict("", ""), "passed", 0),
        (verdict("", "numerical"), "failed", 1),
        (verdict("", unreached=("a tile",)), "incomplete", 2),
        (verdict("numerical", unreached=("a tile",)), "failed", 1),
        (verdict("skipped"), "incomplete", 2),
        (verdict(), "incomplete", 2),
    ],
)
def test_a_verdict_is_one_of_three_words(found: Verdict, word: str, status: int) -> None:
    outcome = Outcome(VerifyRequest("x.sketch", "cpp"), found)
    assert (found.word, outcome.status) == (word, status)
    data = to_json(found)
    assert (data["verdict"], data["passed"]) == (word, word == "passed")
    assert summary(found).startswith(word)
    if word == "incomplete":
        assert found.gaps
        assert all(gap in summary(found) for gap in found.gaps)


def test_a_page_says_that_a_verdict_is_incomplete() -> None:
    right, open_ = verdict(""), verdict("", unreached=("a tile of X",))
    for found, word in (([right], "passed"), ([right, open_], "incomplete")):
        page = page_of([Result(to_json(one)) for one in found])
        assert page.word == word
    assert any("a tile of X" in note for note in page.verdicts[1].notes)
    assert "1 of 2 kernels are right, 1 incomplete" in page.conclusion
    wrong = page_of([Result(to_json(one)) for one in (verdict("numerical"), open_)])
    assert wrong.word == "failed"


@pytest.mark.parametrize("name", WORKFLOWS)
def test_nobody_is_asked_to_mend_what_is_incomplete(name: str) -> None:
    if "verifier" in WORKFLOWS[name].agents:
        assert WORKFLOWS[name].follow("verifier", "incomplete") == "end:incomplete"
    ends = {f"end:{end}" for end in STATUS}
    assert ends <= {target for flow in WORKFLOWS.values() for _, _, target in flow.edges}
    assert STATUS["incomplete"] == 1


def test_shares_count_what_is_incomplete_and_name_it() -> None:
    """It is in the denominator, and never fast."""
    entries = [Entry("a", "t", failure="incomplete"), Entry("b", "t", failure="numerical")]
    (total,) = against(entries, ("eager",))
    assert (total.kernels, total.incomplete, total.fast[0.0]) == (2, 1, 0.0)
    assert "of 2 kernels (1 incomplete)" in total_text(total)
