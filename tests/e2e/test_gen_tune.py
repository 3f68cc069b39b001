"""`sketchc gen --tune` and `sketchc tune` of a task alone, on C++: what the built-in Designer makes
is tuned at the task's sizes, and the winner's kernel is the one that is written and verified."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from toolchains import require

from sketchc.cli.main import run
from sketchc.cli.tuning import gen_tuned
from sketchc.runtime.bench.driver import MeasurementFailedError
from sketchc.runtime.tune.tuner import Tuning

TASK = """import torch


def rows(x: "f32[M,N]"):
    return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(37, 300)]
"""
LISTS = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return 2 * x


def get_init_inputs():
    return []


def get_input_groups():
    return [[torch.randn(37)], [torch.randn(5, 7)]]
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder with a task, and no settings from outside."""
    require("cpp")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    monkeypatch.delenv("SKETCHC_LLM", raising=False)
    (tmp_path / "rows.py").write_text(TASK)
    return tmp_path


WORDS = ["-t", "cpp", "--seed", "5", "--store", "store.sqlite", "--quiet"]
GEN = ["gen", "rows.py", *WORDS, "--tune", "--budget", "2s", "--no-bench", "-o", "out"]


def other_point(change: Callable[[dict[str, Any], dict[str, Any]], None]) -> Callable[..., Tuning]:
    """A search whose winner is another one than the plan's own choice, whatever was measured."""
    real = gen_tuned.tune_sketch

    def tune(*arguments: Any) -> Any:
        found, tree = real(*arguments)
        best = dict(found.default)
        change(best, dict(found.best))
        return attrs.evolve(found, best=best), tree

    return tune


def halved(point: dict[str, Any], _: dict[str, Any]) -> None:
    name = next(iter(point))
    point[name] //= 2


def told(name: str) -> Any:
    return json.loads((Path("out") / name).read_text())


def test_the_kernel_of_the_winner_is_written_and_verified(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It goes through the gate of a run of its own; with --resume the winner stays what it was."""
    monkeypatch.setattr(gen_tuned, "tune_sketch", other_point(halved))
    assert run(GEN) == 0
    choice = told("tuning.json")
    assert (choice["kept"], choice["search"]["symbols"]) == ("tuned", {"M": 37, "N": 300})
    name, value = next(iter(choice["point"].items()))
    assert f"{name} = {value}" in Path("out/rows.plan").read_text()
    assert told("verdict.json")["verdict"]["passed"] is True
    assert Path("out/rows.cpp").read_text() == Path("out/tuned/rows.cpp").read_text()
    assert Path("out/rows.cpp").read_text() != Path("out/untuned/rows.cpp").read_text()
    before = Path("out/rows.cpp").read_text()
    monkeypatch.setattr(gen_tuned, "tune_sketch", lambda *_: pytest.fail("the winner is known"))
    assert run([*GEN, "--resume"]) == 0
    assert Path("out/rows.cpp").read_text() == before
    capsys.readouterr()
    assert run(GEN) == 2
    assert "--resume" in capsys.readouterr().err


def test_without_a_winner_the_kernel_is_that_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*_: Any) -> Any:
        raise MeasurementFailedError("no point passes: none could be measured", "launch")

    monkeypatch.setattr(gen_tuned, "tune_sketch", nothing)
    assert run(GEN) == 0
    choice = told("tuning.json")
    assert (choice["kept"], choice["point"]) == ("untuned", None)
    assert "no point passes" in choice["reason"]
    assert Path("out/rows.cpp").read_text() == Path("out/untuned/rows.cpp").read_text()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--coder", "llm"], "--coder builtin"),
        (["--workflow", "kernelgen-only"], "a workflow that codes and verifies"),
        (["--budget", "soon"], "is no time"),
    ],
)
def test_what_cannot_be_tuned_is_refused_at_once(
    more: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*GEN, *more]) == 2
    assert said in capsys.readouterr().err
    assert not Path("out").exists()


def test_a_budget_without_a_search_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([word for word in GEN if word != "--tune"]) == 2
    assert "add --tune" in capsys.readouterr().err
    assert not Path("out").exists()


def test_a_task_alone_is_tuned(capsys: pytest.CaptureFixture[str]) -> None:
    """The sketch is kept where it is asked for; what was found is taken by `lower --tuned`, and a
    search of this sketch goes on with what is known."""
    words = ["tune", "rows.py", *WORDS, "--search", "all", "--budget", "20s", "--threads", "1"]
    assert run([*words, "-o", "mine.sketch", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["again"].startswith("sketchc lower mine.sketch --target cpp")
    assert (found["sketch"], found["symbols"]) == ("rows", {"M": 37, "N": 300})
    lower = ["lower", "mine.sketch", "-t", "cpp", "--tuned", "--store", "store.sqlite"]
    assert run(lower) == 0
    assert "tuned: " in capsys.readouterr().err
    assert run([*words, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["known"] >= found["tried"] > 0
    assert again["again"].startswith("sketchc gen rows.py --designer builtin --target cpp")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["mine.sketch"], "--task TASK.py"),
        (["mine.sketch", "--task", "rows.py", "-o", "x.sketch"], "a sketch is given here"),
        (["mine.cpp", "--task", "rows.py"], "is a kernel"),
        (["rows.py", "--sketch", "rows"], "a task is given here"),
        (["lists.py"], "gen --tune"),
    ],
)
def test_options_that_do_not_go_together(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("lists.py").write_text(LISTS)
    assert run(["tune", *words, *WORDS]) == 2
    assert said in capsys.readouterr().err
