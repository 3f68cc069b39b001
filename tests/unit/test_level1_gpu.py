"""What `benchmarks/level1_gpu.py` makes of measured tasks: means over those that are right, fast_1
over all; and the file that they are packed into."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from test_cost_model import benchmark

LEVEL1 = benchmark("level1_gpu")


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
        LEVEL1.pack(results, tmp_path, data)
    assert first.read_bytes() == second.read_bytes()
    assert list(LEVEL1.load(first)) == ["a"]  # what was not measured is not there
    assert LEVEL1.speedup(LEVEL1.load(first)["a"]) == pytest.approx(2.0)
    (results / "b.json").write_text(json.dumps({"wrong": "takes more than 25 s"}))
    LEVEL1.pack(results, tmp_path, first)
    assert list(LEVEL1.load(first)) == ["a", "b"]
    assert str(tmp_path) not in json.dumps(LEVEL1.load(first))


def test_a_task_that_ends_the_process_while_it_is_written_keeps_no_other_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = benchmark("level1_queue")

    def work(_: Path, results: Path, tasks: list[dict[str, str]]) -> None:
        if tasks[0]["name"] == "a":
            (results / "a.now").write_text('{"first": {"eag')
            os._exit(1)
        for one in tasks:
            (results / f"{one['name']}.json").write_text('{"wrong": ""}')

    monkeypatch.setattr(queue, "work", work)
    assert queue.watch(tmp_path, tmp_path, [{"name": "a"}, {"name": "b"}], 60.0) == []
    assert json.loads((tmp_path / "a.json").read_text()) == {"wrong": "ended the process"}
    assert json.loads((tmp_path / "b.json").read_text()) == {"wrong": ""}
