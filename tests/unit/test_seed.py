"""The seed of a command that is given none: fresh, or the one of the environment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_tasks import small_task
from toolchains import require

from sketchc.base.diagnostics import UsageError
from sketchc.cli.main import run
from sketchc.runtime.verify.seed import VARIABLE, fresh_seed

RELU = Path(__file__).parents[2] / "examples" / "relu.sketch"


def test_a_fresh_seed_is_another_one_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE)
    seeds = {fresh_seed() for _ in range(100)}
    assert len(seeds) == 100
    assert max(seeds) < 1 << 48


def test_the_environment_gives_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "0")
    assert (fresh_seed(), fresh_seed()) == (0, 0)


@pytest.mark.parametrize("text", ["-1", "seven", "1.5", str(1 << 48), "\u0667"])
def test_what_is_no_seed_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(UsageError, match=f"{VARIABLE} is "):
        fresh_seed()


def test_a_command_takes_it_unless_it_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    require("cpp")
    task = str(small_task("relu", tmp_path))
    command = ["verify", str(RELU), "--task", task, "--target", "cpp", "--json", "--no-store"]

    def seed(*more: str) -> int:
        assert run([*command, *more]) == 0
        return int(json.loads(capsys.readouterr().out)["seed"])

    monkeypatch.setenv(VARIABLE, "41")
    assert (seed(), seed("--seed", "42")) == (41, 42)
    monkeypatch.setenv(VARIABLE, "forty-one")
    assert run(command[:-2]) == 2
    assert f"{VARIABLE} is 'forty-one'" in capsys.readouterr().err
