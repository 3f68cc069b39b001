"""The devices of `sketchc.toml` are those that workers see, and what `gen` shows meanwhile."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console
from rich.text import Text

from sketchc.cli import gen_run
from sketchc.cli.gen_run import visible_devices
from sketchc.runtime.process.peer import clean_environment


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("triton_cuda", "CUDA_VISIBLE_DEVICES"),
        ("triton_ascend", "ASCEND_RT_VISIBLE_DEVICES"),
    ],
)
def test_workers_see_the_devices_that_are_named(
    target: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in visible_devices(target, (1, 3)).items():
        monkeypatch.setenv(variable, value)
    assert clean_environment({})[name] == "1,3"


@pytest.mark.parametrize(("target", "devices"), [("cpp", (1,)), ("triton_cuda", ())])
def test_otherwise_they_see_all(target: str, devices: tuple[int, ...]) -> None:
    assert visible_devices(target, devices) == {}


def test_a_terminal_shows_a_bar_of_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    written = StringIO()
    console = Console(file=written, force_terminal=True, width=100, legacy_windows=False)
    monkeypatch.setattr(gen_run, "make_console", lambda **_: console)
    with gen_run.Display(quiet=False, steps=4) as display:
        for step in range(1, 4):
            display.note("coder", f"[writes] {step}")
            display.ended(step)
    done = Text.from_ansi(written.getvalue()).plain
    assert "coder     [writes] 2" in done
    assert "3 of 4" in done
