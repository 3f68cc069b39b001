"""What `benchmarks/level1_gpu.py` and `examples_gpu.py` make of measured tasks: means over those
that are right, fast_1 over all, what tuning gained; the file that they are packed into; and the
queue that measures them, whatever their kernels do."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmark_scripts import benchmark

LEVEL1, EXAMPLES = benchmark("level1_gpu"), benchmark("examples_gpu")
TASKS, QUEUE = benchmark("gpu_tasks"), benchmark("tasks_queue")
COMPILE = benchmark("tasks_compile")


def task(name: str, category: str, eager: list[float], ours: list[float], **more: Any) -> Any:
    samples = {"eager": eager, "ours": ours}
    return {"name": name, "category": category, "chosen": {"T": 256}, "samples": samples, **more}


def test_means_are_of_what_is_right_and_shares_of_all() -> None:
    tasks = [
        task("a", "MatMul", [4.0, 8.0, 4.0], [1.0, 1.0, 1.0]),
        task("b", "MatMul", [1.0], [1.0]),
        task("c", "MatMul", [9.0], [1.0], wrong="off by 1 of the largest element"),
        {"name": "d", "category": "Elementwise", "chosen": {}, "failure": "has no form"},
    ]
    found = list(LEVEL1.lines({one["name"]: one for one in tasks}))
    rows = {line.split()[0]: line for line in found if line.strip()}
    assert rows["MatMul"].split()[1:] == ["3", "2", "2.00", "1.05", "33%"]
    assert "tuned" not in rows
    assert rows["all"].split()[1:] == ["4", "2", "2.00", "1.35", "25%"]
    assert "off by 1" in rows["c"]
    assert "has no form" in rows["d"]


def test_the_same_results_are_packed_into_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        record = {"name": name, "category": "MatMul", "chosen": {}}
        (tmp_path / f"{name}.task.json").write_text(json.dumps(record))
    results = tmp_path / "results"
    results.mkdir()
    samples = {"samples": {"eager": [2.0], "ours": [1.0]}}
    (results / "a.json").write_text(json.dumps(samples))
    first, second = tmp_path / "first.gz", tmp_path / "second.gz"
    for data in (first, second):
        TASKS.pack(results, tmp_path, data)
    assert first.read_bytes() == second.read_bytes()
    assert list(TASKS.load(first)) == ["a"]  # what was not measured is not there
    assert TASKS.speedup(TASKS.load(first)["a"]) == pytest.approx(2.0)
    (results / "b.json").write_text(json.dumps({"wrong": "takes more than 25 s"}))
    TASKS.pack(results, tmp_path, first)
    assert list(TASKS.load(first)) == ["a", "b"]
    assert str(tmp_path) not in json.dumps(TASKS.load(first))


def test_a_task_that_ends_the_process_while_it_is_written_keeps_no_other_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(_: Path, results: Path, tasks: list[dict[str, str]]) -> None:
        if tasks[0]["name"] == "a":
            (results / "a.now").write_text('{"first": {"eag')
            os._exit(1)
        for one in tasks:
            (results / f"{one['name']}.json").write_text('{"wrong": ""}')

    monkeypatch.setattr(QUEUE, "work", work)
    assert QUEUE.watch(tmp_path, tmp_path, [{"name": "a"}, {"name": "b"}], 60.0) == []
    assert json.loads((tmp_path / "a.json").read_text()) == {"wrong": "ended the process"}
    assert json.loads((tmp_path / "b.json").read_text()) == {"wrong": ""}


def test_what_won_counts_beside_what_the_plan_chose() -> None:
    points = {"points": [{"point": {"T": 256}}, {"point": {"T": 512}}], "beside": ["eager", "copy"]}
    won = task("a", "MatMul", [4.0, 4.0], [2.0, 2.0], best=1, **points)
    won["samples"] |= {"tuned": [1.0, 1.0], "copy": [0.5, 0.5], "compile": [0.97, 0.97]}
    own = task("b", "MatMul", [3.0], [1.0], best=0, **points)
    tasks = {"a": won, "b": own, "c": task("c", "MatMul", [9.0], [1.0])}
    assert list(LEVEL1.tuned_tasks(tasks)) == ["a", "b"]
    total = LEVEL1.totals(LEVEL1.tuned_tasks(tasks), "tuned")[-1]
    assert total.mean == pytest.approx(12**0.5)
    assert LEVEL1.distance(LEVEL1.tuned_tasks(tasks)) == pytest.approx(2**0.5)
    assert EXAMPLES.holds_bandwidth(won) is True
    assert EXAMPLES.holds_bandwidth({**won, "beside": ["eager"]}) is None
    won["samples"]["compile"] = [0.9, 0.9]
    assert EXAMPLES.holds_bandwidth(won) is False
    assert "T=512" in next(line for line in LEVEL1.lines(tasks) if line.startswith("a "))


@pytest.mark.parametrize("number", [0, 1, 5, 30, 99, 100])
def test_tasks_are_drawn_from_each_category_by_its_share(number: int) -> None:
    from sketchc.agents.suites.level1 import rows

    categories = {row.name: row.category for row in rows()}
    drawn = LEVEL1.stratified(categories, number, 7)
    assert len(set(drawn)) == len(drawn) == number
    for category in set(categories.values()):
        share = number * list(categories.values()).count(category) / len(categories)
        assert abs(sum(categories[name] == category for name in drawn) - share) < 1
    assert drawn == LEVEL1.stratified(categories, number, 7)
    if 0 < number < 100:
        assert drawn != LEVEL1.stratified(categories, number, 8)


def test_a_point_that_ends_the_process_is_left_out_and_its_task_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(_: Path, results: Path, tasks: list[dict[str, str]]) -> None:
        known = results / "a.lost"
        lost = json.loads(known.read_text()) if known.exists() else {}
        for point in ("2", "3"):
            if point not in lost:
                (results / "a.now").write_text(json.dumps({"trying": point}))
                os._exit(1)
        (results / "a.json").write_text(json.dumps({"lost": lost}))

    monkeypatch.setattr(QUEUE, "work", work)
    assert QUEUE.watch(tmp_path, tmp_path, [{"name": "a"}], 60.0) == []
    lost = json.loads((tmp_path / "a.json").read_text())["lost"]
    assert lost == {"2": "ended the process", "3": "ended the process"}


def test_a_kernel_that_never_ends_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(_: Path, results: Path, tasks: list[dict[str, str]]) -> None:
        (results / "a.now").write_text("{}")
        time.sleep(600)

    monkeypatch.setattr(QUEUE, "work", work)
    monkeypatch.setattr(QUEUE, "LONGEST", 0.5)
    assert QUEUE.watch(tmp_path, tmp_path, [{"name": "a"}], 60.0) == []
    assert "takes more than" in json.loads((tmp_path / "a.json").read_text())["wrong"]


def test_the_fastest_point_wins_the_race(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {str(n): 1.0 + abs(n - 6) / 10 for n in range(12)} | {"12": 9.0}
    heats: list[list[str]] = []

    def interleaved(calls: dict[str, Any], *_: float) -> tuple[dict[str, list[float]], int]:
        heats.append(list(calls))
        return {name: [times[name]] * 3 for name in calls}, 1

    monkeypatch.setattr(QUEUE, "interleaved", interleaved)
    samples, best = QUEUE.race(dict.fromkeys(times), times)
    assert best == "6"
    assert [len(heat) for heat in heats] == [12, 6, 3]
    assert not samples["12"]  # its first call has taken far longer than the best one's
    assert len(samples["6"]) == 9


def test_outputs_are_compared_by_their_largest_element() -> None:
    wanted = torch.tensor([1.0, -4.0, float("inf"), float("nan")])
    found = torch.tensor([1.0, -3.0, float("inf"), float("nan")])
    assert QUEUE.error_of(found, wanted) == pytest.approx(0.25)
    assert QUEUE.error_of(wanted, wanted) == 0.0
    assert QUEUE.error_of(torch.tensor([float("nan")] * 4), wanted) > 1e9
    whole = torch.arange(4)
    assert QUEUE.error_of(whole, whole.flip(0)) == 1.0
    assert QUEUE.error_of(torch.tensor([0, 1, 2, 9]), whole) == 0.25


def ends_well(_: Path) -> None:
    pass


def never_ends(_: Path) -> None:
    time.sleep(600)


def ends_well_the_second_time(place: Path) -> None:
    if not (place / "tried").exists():
        (place / "tried").touch()
        os.kill(os.getpid(), signal.SIGKILL)


def raises(_: Path) -> None:
    raise ValueError("cannot be compiled")


def test_what_does_not_compile_is_named_and_holds_nothing_up(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def job(task: str, what: str, function: Any, most: float = 30.0) -> Any:
        return COMPILE.Job(task, what, function, (tmp_path,), most)

    jobs = [
        job("a", "compile", never_ends, 1.0),
        job("a", "0", ends_well_the_second_time),
        job("b", "0", raises),
        job("b", "1", ends_well),
        job("c", "0", ends_well),
        job("c", "1", never_ends, 1.0),
    ]
    begun = time.monotonic()
    COMPILE.compile_all(tmp_path, tmp_path, jobs)
    assert time.monotonic() - begun < 30
    missing = {p.stem: json.loads(p.read_text()) for p in tmp_path.glob("*.compiled")}
    assert missing == {"a": ["compile"], "b": ["0"], "c": ["1"]}
    assert (tmp_path / COMPILE.MODELS_DONE).exists()
    told = capfd.readouterr()
    assert "c 1: not compiled, status None" in told.out
    assert "cannot be compiled" in told.err


def test_nothing_is_begun_after_the_time_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(COMPILE, "ALL_COMPILED", -1.0)
    COMPILE.compile_all(tmp_path, tmp_path, [COMPILE.Job("a", "0", never_ends, (tmp_path,), 600.0)])
    assert json.loads((tmp_path / "a.compiled").read_text()) == ["0"]
