"""`sketchc suite` as a user meets it: list, run, go on after a kill, compare, and the page."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from processes import started
from shared_work import shared
from toolchains import require

from sketchc.cli.main import run
from sketchc.runtime.process.memory import below

SCALED = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return {}


def get_inputs():
    return [torch.rand(20, 30)]
"""
TASKS = {
    "simple/doubled": SCALED.format("2.0 * x"),
    "simple/curvature": SCALED.format("torch.polygamma(2, x)"),
    "broken": SCALED.format("x.nothing_like_it()"),
}


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working folder, no settings and no store from outside."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    monkeypatch.setenv("SKETCHC_STORE", str(tmp_path / "store.sqlite"))
    for name in ("SKETCHC_LLM", "SKETCHC_LLM_MODEL", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def write_tasks(folder: Path, tasks: Mapping[str, str]) -> Path:
    for name, text in tasks.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the suite above, to its end: one task passes, one has no design, one is broken."""
    require("cpp")

    def make() -> Path:
        place = tmp_path_factory.mktemp("suite")
        tasks = write_tasks(place / "tasks", TASKS)
        command = ["suite", "run", "--tasks", str(tasks), "-t", "cpp", "-o", str(place / "out")]
        assert run([*command, "--keep", str(place / "kept"), "--no-store", "--seed", "7"]) == 1
        return place

    return shared("finished-suite", make)


def results_of(folder: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return data


def test_list_shows_rows_and_writes_task_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["suite", "list"]) == 0
    assert capsys.readouterr().out.startswith("level1: ")
    assert run(["suite", "list", "level1", "--only", "Elementwise", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["tasks"]
    assert len(listed) == 14
    assert {task["category"] for task in listed} == {"Elementwise"}
    assert run(["suite", "list", "level1", "--only", "^conv1d", "-o", "made"]) == 0
    written = capsys.readouterr().out.split()
    assert len(written) == 5
    assert all("nn.Conv" in (tmp_path / path).read_text() for path in written)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "-t", "cpp"], "say which tasks"),
        (["list", "level9"], "unknown suite 'level9'"),
        (["run", "level1", "--tasks", ".", "-t", "cpp"], "say one of SUITE"),
        (["run", "--tasks", ".", "--sizes", "full", "-t", "cpp"], "--sizes goes with level1"),
        (["run", "level1", "-t", "cpp", "--bench", "-j", "2"], "--bench goes with --jobs 1"),
        (["run", "level1", "-t", "cpp", "--workflow", "none"], "unknown workflow"),
        (["run", "level1", "-t", "none"], "none"),
        (["compare", "here", "there"], "here holds no results"),
    ],
)
def test_misuse_is_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["suite", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.strip().split("\n")) == 1


def test_every_task_has_a_result_with_its_reason(finished: Path) -> None:
    data = results_of(finished / "out")
    found = {task["name"]: task["samples"][0] for task in data["tasks"]}
    assert found["simple/doubled"]["outcome"] == "passed"
    assert found["simple/doubled"]["static"]
    assert found["simple/doubled"]["own"]
    assert found["simple/doubled"]["shapes"] == found["simple/doubled"]["shapes_passed"] > 4
    assert found["simple/curvature"]["outcome"] == "failed"
    assert "polygamma" in found["simple/curvature"]["reason"]
    assert found["broken"]["outcome"] == "broken"
    assert "nothing_like_it" in found["broken"]["reason"]
    assert all(one["peak"] > 50 << 20 for one in found.values())
    totals = {row["category"]: row for row in data["totals"]}
    assert totals["all"]["pass_at"] == {"1": pytest.approx(1 / 3)}
    assert (totals["simple"]["passed"], totals["simple"]["failed"]) == (1, 1)


def test_what_passes_leaves_its_sketch(finished: Path) -> None:
    kept = [path.relative_to(finished / "kept") for path in (finished / "kept").rglob("*.sketch")]
    assert kept == [Path("simple/doubled.sketch")]
    assert (finished / "out/kernels/simple/doubled/1/verdict.json").exists()


def test_the_same_command_makes_nothing_again(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    shutil.copytree(finished / "out", out)
    before = (out / "results.jsonl").read_text()
    command = ["suite", "run", "--tasks", str(finished / "tasks"), "-t", "cpp", "-o", str(out)]
    assert run([*command, "--no-store", "--seed", "7"]) == 1
    shown = capsys.readouterr().out
    assert re.search(r"simple/curvature +failed +.*polygamma", shown)
    added = (out / "results.jsonl").read_text().removeprefix(before)
    # Nothing was found out about the broken task: it alone is tried again.
    assert [json.loads(line)["task"] for line in added.splitlines()] == ["broken"]
    assert run([*command, "--no-store", "--seed", "8"]) == 2
    assert "seed = 7, not 8" in capsys.readouterr().err
    assert run([*command, "--no-store", "--seed", "7", "--only", "simple"]) == 2
    assert "only = '', not 'simple'" in capsys.readouterr().err


def test_the_page_shows_every_task(finished: Path, tmp_path: Path) -> None:
    page = (finished / "out/report.html").read_text()
    assert all(name in page for name in TASKS)
    assert "1 of 3 passed" in page
    assert page.count('class="plot"') == 1
    assert run(["report", str(finished / "out"), "-o", str(tmp_path / "again.html")]) == 0
    assert (tmp_path / "again.html").read_text().startswith("<!DOCTYPE html>")


def test_a_limit_ends_a_task_and_is_its_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require("cpp")
    tasks = write_tasks(tmp_path / "tasks", {"doubled": TASKS["simple/doubled"]})
    command = ["suite", "run", "--tasks", str(tasks), "-t", "cpp", "--no-store", "--json"]
    assert run([*command, "--timeout", "0.5", "-o", "slow"]) == 1
    (task,) = json.loads(capsys.readouterr().out)["tasks"]
    assert task["samples"][0]["outcome"] == "timeout"
    assert run([*command, "--memory", "0.01", "-o", "large"]) == 1
    (task,) = json.loads(capsys.readouterr().out)["tasks"]
    assert task["samples"][0]["outcome"] == "memory"


@pytest.mark.sweep
def test_a_run_that_is_killed_goes_on(tmp_path: Path) -> None:
    require("cpp")
    tasks = write_tasks(tmp_path / "tasks", {"a": TASKS["broken"], "b": TASKS["simple/doubled"]})
    command = [sys.executable, "-m", "sketchc", "suite", "run", "--tasks", str(tasks), "-t", "cpp"]
    command += ["--jobs", "1", "--no-store", "-o", str(tmp_path / "out")]
    second = tmp_path / "out/kernels/b/1/run/state.json"
    with started(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        until(second.exists, 120)
        others = below(process.pid)
        process.send_signal(signal.SIGKILL)
    assert len(others) >= 2
    until(lambda: not any(Path(f"/proc/{one}").exists() for one in others), 20)
    (line,) = (tmp_path / "out/results.jsonl").read_text().splitlines()
    assert json.loads(line)["task"] == "a"
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 1, ended.stderr
    found = {task["name"]: task["word"] for task in results_of(tmp_path / "out")["tasks"]}
    assert found == {"a": "failed", "b": "passed"}


def test_a_run_that_is_interrupted_says_how_to_go_on(tmp_path: Path) -> None:
    require("cpp")
    tasks = write_tasks(tmp_path / "tasks", {"b": TASKS["simple/doubled"]})
    command = [sys.executable, "-m", "sketchc", "suite", "run", "--tasks", str(tasks), "-t", "cpp"]
    command += ["--no-store", "-o", str(tmp_path / "out")]
    with started(command, stderr=subprocess.PIPE, text=True) as process:
        until((tmp_path / "out/suite.json").exists, 60)
        time.sleep(1.0)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
        assert process.stderr is not None
        assert "the same command goes on" in process.stderr.read()
    assert results_of(tmp_path / "out")["left"] == ["b"]


def until(done: Any, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.1)


# ---------------------------------------------------------------- compare


def write_run(folder: Path, outcomes: Mapping[str, list[tuple[str, float | None]]]) -> str:
    """Results as a run leaves them: of each task the outcomes of its samples, with speedups."""
    tasks = [
        {
            "name": name,
            "category": "even" if place % 2 else "odd",
            "samples": [
                {
                    "task": name,
                    "number": n,
                    "digest": "d",
                    "outcome": word,
                    "reason": "why",
                    "speedup": gain,
                }
                for n, (word, gain) in enumerate(samples, 1)
            ],
        }
        for place, (name, samples) in enumerate(outcomes.items())
    ]
    folder.mkdir()
    data = {"version": 1, "options": {"suite": "s", "target": "cpp"}, "tasks": tasks}
    (folder / "results.json").write_text(json.dumps(data))
    return str(folder)


def test_compare_tests_what_only_one_passes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"t{number}" for number in range(12)]
    before = {name: [("passed" if name < "t2" else "rejected", 1.0)] for name in names}
    after = {name: [("passed" if name != "t0" else "timeout", 2.0)] for name in names}
    first, second = write_run(tmp_path / "a", before), write_run(tmp_path / "b", after)
    assert run(["suite", "compare", first, second, "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)["rows"][-1]
    # t0, t1, t10 and t11 pass before; all but t0 after: 8 gained, 1 lost.
    assert (whole["first"], whole["second"]) == (4, 11)
    assert (len(whole["gained"]), whole["lost"]) == (8, ["t0"])
    assert whole["p"] == pytest.approx(2 * (1 + 9) / 2**9)
    assert whole["speeds"]["tasks"] == 3
    assert whole["speeds"]["ratio"] == pytest.approx(2.0)
    assert whole["speeds"]["p"] == pytest.approx(0.25)
    assert run(["suite", "compare", first, second]) == 0
    shown = capsys.readouterr().out
    assert "4 against 11 of 12 passed: significant (p = 0.0391)" in shown
    assert run(["suite", "compare", first, first]) == 0
    assert "no more than chance gives (p = 1)" in capsys.readouterr().out


def test_compare_takes_shares_of_samples_and_leaves_out_what_is_in_one_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    once: list[tuple[str, float | None]] = [("passed", None), ("failed", None)]
    first = write_run(tmp_path / "a", {"x": once, "y": once, "z": once})
    second = write_run(tmp_path / "b", {"x": [("passed", None)], "y": once[1:] + once[:1]})
    assert run(["suite", "compare", first, second, "--json"]) == 0
    compared = json.loads(capsys.readouterr().out)
    assert compared["unpaired"] == ["z"]
    assert compared["rows"][-1]["gained"] == ["x"]
    assert compared["rows"][-1]["speeds"] is None


# ---------------------------------------------------------------- models


@pytest.mark.sweep
def test_a_suite_serves_runs_with_a_model(tmp_path: Path) -> None:
    """A recorded model designs the sketch of each sample."""
    require("cpp")
    root = Path(__file__).resolve().parents[2]
    task = root / "examples/tasks/softmax.py"
    write_tasks(tmp_path / "tasks", {"softmax": task.read_text()})
    replay = f"replay:{root / 'examples/ledgers/softmax.jsonl'}"
    command = ["suite", "run", "--tasks", "tasks", "-t", "cpp", "--llm", replay, "-n", "2"]
    assert run([*command, "--workflow", "default", "-o", "out"]) == 0
    (found,) = results_of(tmp_path / "out")["tasks"]
    assert [one["calls"] for one in found["samples"]] == [1, 1]
    assert results_of(tmp_path / "out")["totals"][-1]["pass_at"] == {"1": 1.0, "2": 1.0}
    assert os.path.exists(os.environ["SKETCHC_STORE"])
