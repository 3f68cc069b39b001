"""Examples as tasks for a GPU: several points of each are built, compiled for the chip without one,
run by Triton's interpreter in place of one, compared, and raced."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
from benchmark_scripts import benchmark

EXAMPLES, TASKS = map(benchmark, ("examples_gpu", "gpu_tasks"))
POINTS = 3
#: Sizes that leave lanes over.
SIZES = {"add": {"rows": 5, "columns": 257}, "scatter_add": {"targets": 7, "rows": 17}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tasks, built."""
    folder: Path = tmp_path_factory.mktemp("tasks")
    tasks = []
    for name, sizes in SIZES.items():
        one = EXAMPLES.given_of(name, POINTS, True)
        text = one.text
        for size, value in sizes.items():
            text = re.sub(rf"(?m)^{size} = .*$", f"{size} = {value}", text)
        tasks.append(attrs.evolve(one, text=text, beside=("eager", "copy")))
    TASKS.build_all(folder, tasks, 1)
    return folder


def built(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "tasks.json").read_text())
    return found


def test_points_differ_and_neighbours_come_last(folder: Path) -> None:
    assert [task["name"] for task in built(folder)] == list(SIZES)
    for task in built(folder):
        points = [one["point"] for one in task["points"]]
        assert len(points) == POINTS + 1
        assert len({json.dumps(point, sort_keys=True) for point in points}) == POINTS + 1
        assert task["chosen"].items() <= {**task["chosen"], **points[0]}.items()
        predicted = [one["predicted"] for one in task["points"][1:]]
        assert predicted == sorted(predicted)
        sources = [path.read_text() for path in (folder / task["name"] / "points").iterdir()]
        assert len(set(sources)) == POINTS


def measured(folder: Path, results: Path, *names: str) -> dict[str, Any]:
    """What the queue finds of tasks, by name."""
    run = subprocess.run(
        [sys.executable, str(folder / "tasks_queue.py"), str(folder), str(results), *names],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert "not measured: none" in run.stdout, run.stdout + run.stderr
    data = results / "data.gz"
    TASKS.pack(results, folder, data)
    found: dict[str, Any] = TASKS.load(data)
    return found


def test_they_are_measured_and_right(folder: Path, tmp_path: Path) -> None:
    found = measured(folder, tmp_path)
    for task in found.values():
        assert TASKS.is_right(task), task
        assert all(not one["wrong"] for one in task["race"].values())
        assert {"eager", "copy", "ours"} <= task["samples"].keys()
        assert TASKS.ratio(task, "ours", "tuned") > 0
    assert any(line.startswith("scatter_add") for line in EXAMPLES.lines(found))


def test_a_point_that_is_wrong_does_not_win(folder: Path, tmp_path: Path) -> None:
    copied = tmp_path / "tasks"
    shutil.copytree(folder, copied)
    task = next(one for one in built(folder) if one["name"] == "add")
    spoilt = "\nright = {0}\n\ndef {0}(*given, **more):\n    return right(*given, **more) + 1\n"
    with (copied / "add" / "points" / "1.py").open("a") as file:
        file.write(spoilt.format(task["entry"]))
    found = measured(copied, tmp_path / "results", "add")["add"]
    assert "off by" in found["race"]["1"]["wrong"]
    assert found["wrong"] == ""
    assert found["best"] != 1
