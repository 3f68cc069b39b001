"""What is counted of a suite, where its tasks come from, and what its folder keeps."""

from __future__ import annotations

import itertools
import math
import re
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sketchc.agents.suites import benchmark
from sketchc.agents.suites.benchmark import Operator
from sketchc.agents.suites.bounded import MEMORY, TIMEOUT, Bounds, run_bounded
from sketchc.agents.suites.level1 import rows
from sketchc.agents.suites.metrics import TaskResult, fast_share, pass_at, totals
from sketchc.agents.suites.page import page_of
from sketchc.agents.suites.rows import numbers
from sketchc.agents.suites.run import Results, SuiteFolder, SuiteOptions
from sketchc.agents.suites.samples import Sample
from sketchc.agents.suites.sources import (
    akg_suite,
    folder_suite,
    kernelbench_suite,
    level1,
    paper_suite,
    selected,
    write_task,
)
from sketchc.base.diagnostics import UsageError
from sketchc.base.json_form import from_plain
from sketchc.cli.suite_tables import show_results
from sketchc.runtime.report.page import render

#: (samples, right ones) of some tasks.
COUNTS = st.lists(
    st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))), min_size=1
)


def sample(task: str, outcome: str, number: int = 1, **others: object) -> Sample:
    return Sample(task, number, "", outcome, **others)  # type: ignore[arg-type]


def task(name: str, *outcomes: str, category: str = "a", **others: object) -> TaskResult:
    found = [sample(name, one, number, **others) for number, one in enumerate(outcomes, 1)]
    return TaskResult(name, category, tuple(found))


# ---------------------------------------------------------------- metrics


def test_pass_at_k_by_hand() -> None:
    # 1 - C(2, 2) / C(4, 2) = 5/6; none right; all right.
    assert pass_at(2, [(4, 2), (4, 0), (4, 4)]) == pytest.approx((5 / 6 + 0 + 1) / 3)
    assert pass_at(1, [(4, 1)]) == pytest.approx(0.25)
    assert pass_at(4, [(4, 1)]) == 1.0
    assert pass_at(3, []) == 0.0


def test_pass_at_k_needs_k_samples() -> None:
    with pytest.raises(ValueError, match="needs 3 samples"):
        pass_at(3, [(4, 1), (2, 2)])


@given(st.integers(1, 6).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))))
def test_pass_at_k_is_the_share_of_choices_that_hold_a_right_one(count: tuple[int, int]) -> None:
    samples, right = count
    for k in range(1, samples + 1):
        chosen = list(itertools.combinations(range(samples), k))
        hits = sum(any(one < right for one in choice) for choice in chosen)
        assert pass_at(k, [count]) == pytest.approx(hits / len(chosen))


@given(COUNTS)
def test_pass_at_k_grows_with_k_and_begins_with_the_share(counts: list[tuple[int, int]]) -> None:
    most = min(samples for samples, _ in counts)
    found = [pass_at(k, counts) for k in range(1, most + 1)]
    assert found == sorted(found)
    assert found[0] == pytest.approx(
        sum(right / samples for samples, right in counts) / len(counts)
    )
    assert all(0.0 <= share <= 1.0 for share in found)


def test_fast_p_counts_what_reaches_p_of_all_tasks() -> None:
    gains: Sequence[float | None] = (0.8, 1.0, None, 2.5, 0.79)
    assert [fast_share(gains, p) for p in (0.8, 1.0, 2.0)] == [0.6, 0.4, 0.2]
    assert fast_share((), 1.0) == 0.0


def test_incomplete_is_no_pass_and_is_counted_by_itself() -> None:
    (row, whole) = totals(
        [task("x", "passed"), task("y", "incomplete"), task("z", "failed", "incomplete")]
    )
    assert (row.passed, row.incomplete, row.failed) == (1, 2, 0)
    assert row.pass_at == {1: pytest.approx(1 / 3)}
    assert whole.category == "all"


def test_totals_by_hand() -> None:
    fast = task(
        "x",
        "passed",
        speedup=4.0,
        sol_score=0.8,
        static=True,
        own=True,
        shapes=10,
        shapes_passed=10,
    )
    slow = task("y", "passed", speedup=0.25, sol_score=0.0, static=True, shapes=6, shapes_passed=6)
    brittle = task("z", "rejected", static=True, own=True, shapes=4, shapes_passed=1)
    wrong = task("w", "rejected", category="b", shapes=9, shapes_passed=8)
    a, b, whole = totals([fast, slow, brittle, wrong])
    assert (a.tasks, a.passed, a.failed, a.own_sizes) == (3, 2, 1, 1)
    assert a.shape_share == pytest.approx(17 / 20)  # w fails its static case: it is not in
    assert a.geometric_mean == pytest.approx(1.0)
    assert a.fast == {
        0.8: pytest.approx(1 / 3),
        1.0: pytest.approx(1 / 3),
        2.0: pytest.approx(1 / 3),
    }
    assert b.shape_share is None
    assert b.geometric_mean is None
    assert (a.sol_score, b.sol_score) == (pytest.approx(0.4), None)
    assert (whole.tasks, whole.measured) == (4, 2)


def test_the_fastest_right_sample_speaks_for_a_task() -> None:
    samples = (
        sample("x", "passed", 1, speedup=1.5),
        sample("x", "rejected", 2, speedup=9.0),
        sample("x", "passed", 3, speedup=2.0),
    )
    assert TaskResult("x", "a", samples).best.number == 3
    assert TaskResult("x", "a", samples[1:2]).speedup is None


# ---------------------------------------------------------------- sources


def test_level1_has_the_operators_of_the_paper() -> None:
    assert sorted(row.number for row in rows()) == list(range(1, 101))
    assert len({row.name for row in rows()}) == 100
    assert list(Counter(row.category for row in rows()).values()) == [18, 14, 22, 34, 12]
    assert all(numbers(row.small).keys() == numbers(row.full).keys() for row in rows())


#: Operators of each category, in the order of the table: those with several sizes, and all.
PAPER = {
    "elementwise": (70, 71),
    "reduction": (45, 47),
    "norm": (27, 27),
    "tensor manipulation": (26, 26),
    "matmul": (11, 22),
    "indexing": (7, 7),
    "sorting": (5, 7),
    "fused": (7, 7),
    "attention": (11, 11),
}


@pytest.mark.parametrize("name", ["dynamic", "static"])
def test_the_papers_benchmark_has_its_operators(name: str) -> None:
    tasks = paper_suite(name).tasks
    column = ("dynamic", "static").index(name)
    counted = {category: counts[column] for category, counts in PAPER.items()}
    assert Counter(task.category for task in tasks) == counted
    assert len({task.name for task in tasks}) == len(tasks)


@pytest.mark.sweep
@pytest.mark.parametrize("operator", benchmark.rows(dynamic=False), ids=lambda one: one.name)
def test_a_row_of_the_papers_benchmark_runs_at_all_its_sizes(operator: Operator) -> None:
    torch = pytest.importorskip("torch")
    scope: dict[str, Any] = {}
    exec(operator.source(dynamic=True), scope)
    groups = scope["get_input_groups"]() if "get_input_groups" in scope else []
    lists = [scope["get_inputs"](), *groups]
    assert len(lists) == len(operator.sizes)
    for inputs, sizes in zip(lists, operator.sizes, strict=True):
        assert set(sizes.values()) <= {extent for one in inputs for extent in one.shape} | {
            *scope["get_init_inputs"]()
        }
        model = scope["Model"](*scope["get_init_inputs"]()).eval()
        with torch.no_grad():
            found = model(*inputs)
        outputs = found if isinstance(found, tuple) else (found,)
        assert all(output.numel() for output in outputs)


def test_a_row_becomes_a_task_file_in_plain_words() -> None:
    (row,) = (row for row in rows() if row.name == "group_norm")
    text = row.source()
    compile(text, "group_norm.py", "exec")
    assert "def __init__(self, C, G):" in text
    assert "return [C, G]" in text
    assert "x = torch.rand(B, C, H, W)" in text


def test_folders_are_categories(tmp_path: Path) -> None:
    for name in ("one.py", "deep/two.py", "deep/_helper.py", "deep/notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    found = {one.name: one.category for one in folder_suite(tmp_path).tasks}
    assert found == {"one": "tasks", "deep/two": "deep"}


def test_a_checkout_of_kernelbench_is_read_in_the_order_of_its_numbers(tmp_path: Path) -> None:
    for name in ("level1/10_b", "level1/2_a", "level2/1_c", "level3/1_d"):
        path = tmp_path / "KernelBench" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    found = [(one.name, one.category) for one in kernelbench_suite(tmp_path).tasks]
    assert found == [
        *(("level1/2_a", "MatMul"), ("level1/10_b", "MatMul")),
        *(("level2/1_c", "level2"), ("level3/1_d", "level3")),
    ]


def test_a_checkout_may_lack_parts(tmp_path: Path) -> None:
    for name in ("level3/7_d", "static_shape/sum"):
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    assert [one.name for one in kernelbench_suite(tmp_path).tasks] == ["level3/7_d"]
    assert [one.name for one in akg_suite(tmp_path).tasks] == ["static/sum"]


def test_what_cannot_be_a_reference_is_left_out_by_name(tmp_path: Path) -> None:
    for name in ("dynamic_shape/a/sum", "static_shape/a/elemwise_zeros_1", "static_shape/a/sum"):
        path = tmp_path / "akg_agents/benchmark/akg_kernels_bench" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    found = {one.name: one.excluded for one in akg_suite(tmp_path).tasks}
    assert list(found) == ["dynamic/sum", "static/elemwise_zeros_1", "static/sum"]
    assert "npu" in found.pop("static/elemwise_zeros_1")
    assert not any(found.values())


def test_a_task_file_of_our_own_is_written_once(tmp_path: Path) -> None:
    (one,) = selected(level1(), "^relu$").tasks
    path = write_task(one, tmp_path)
    before = path.stat().st_mtime_ns
    assert write_task(one, tmp_path) == path
    assert path.stat().st_mtime_ns == before
    assert path.read_text() == one.text


def test_what_cannot_be_a_suite_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no task files"):
        folder_suite(tmp_path)
    with pytest.raises(UsageError, match="is no checkout"):
        kernelbench_suite(tmp_path)
    with pytest.raises(UsageError, match="no regular expression"):
        selected(level1(), "(")
    with pytest.raises(UsageError, match="leaves no task"):
        selected(level1(), "nothing_like_it")


# ---------------------------------------------------------------- the folder

OPTIONS = SuiteOptions("s", "cpp", seed=3, passed_on=("--workflow", "builtin"))


def test_the_table_names_what_passed_at_smaller_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    known = (("own", "passed", True), ("small", "passed", False), ("wrong", "rejected", False))
    tasks = tuple(task(name, word, static=True, own=own) for name, word, own in known)
    show_results(Results(OPTIONS, tasks))
    assert "passed at sizes scaled down from their own: small\n" in capsys.readouterr().out
    show_results(Results(OPTIONS, tasks[:1]))
    assert "scaled" not in capsys.readouterr().out


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    folder = SuiteFolder(tmp_path)
    tasks = (task("x", "passed", "failed", speedup=1.5), task("y", "timeout", reason="it hung"))
    results = Results(OPTIONS, tasks, ("z",), (("w", "it is broken"),))
    folder.settle(OPTIONS)
    folder.write(results)
    assert folder.results() == results
    assert folder.options() == OPTIONS
    assert from_plain(Results, results.to_json()) == results


def test_a_line_that_a_kill_cut_off_is_no_result(tmp_path: Path) -> None:
    folder = SuiteFolder(tmp_path)
    first, second = sample("x", "passed"), sample("y", "failed", reason="line\nline")
    folder.add(first)
    with (tmp_path / "results.jsonl").open("a") as file:
        file.write('{"task": "torn", "numb')
    folder.add(second)
    assert folder.samples() == {("x", 1): first, ("y", 1): second}


def test_a_folder_of_another_run_is_refused(tmp_path: Path) -> None:
    folder = SuiteFolder(tmp_path / "out")
    with folder.lock():
        folder.settle(OPTIONS)
        folder.settle(OPTIONS)
        with pytest.raises(UsageError, match="holds a run with target = 'cpp', not 'triton_cuda'"):
            folder.settle(SuiteOptions("s", "triton_cuda"))
        with (
            pytest.raises(UsageError, match="another process is working on the suite"),
            folder.lock(),
        ):
            pass
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(UsageError, match=r"holds other files \(notes.txt"):
        SuiteFolder(tmp_path).lock()
    assert not (tmp_path / "lock").exists()


def test_the_page_draws_shares_and_speedups() -> None:
    hostile = task("<b>x</b>", "failed", category="b", reason="<script>alert(1)</script>")
    tasks = (task("x", "passed", speedup=1.5), task("y", "incomplete"), hostile)
    text = render(page_of(Results(OPTIONS, tasks, ("z",), (("w", "it is broken"),))))
    drawings = re.findall(r"<svg viewBox.*?</svg>", text)
    assert [ElementTree.fromstring(one).tag for one in drawings] == ["svg", "svg"]
    assert "a: 1 of 2; b: 0 of 1" in text
    assert "x: 1.50" in drawings[1]
    assert "1 of 3 passed" in text
    assert "<b>x" not in text
    assert "<script>alert" not in text
    assert "it is broken" in text


# ---------------------------------------------------------------- bounds

DOES = "suite_jobs:perform"


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes find the functions of the tests."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[1]))


def bounded(what: str, seconds: float = 60.0, memory: int = 1 << 40) -> tuple[int, str, str]:
    ended = run_bounded(DOES, [what], Bounds(seconds, memory), threading.Event())
    assert math.isfinite(ended.seconds)
    return ended.status, ended.cut, ended.printed.strip()


@pytest.mark.usefixtures("jobs")
def test_a_process_that_ends_says_how() -> None:
    assert bounded("print") == (0, "", "printed")
    assert bounded("refuse") == (2, "", "")
    assert bounded("killed")[:2] == (-9, "")
    assert bounded("slow")[:2] == (3, "")


@pytest.mark.usefixtures("jobs")
def test_a_process_that_hangs_or_grows_is_ended_with_its_children() -> None:
    assert bounded("hang", seconds=3.0)[1] == TIMEOUT
    assert bounded("grow", memory=400 << 20)[1] == MEMORY
