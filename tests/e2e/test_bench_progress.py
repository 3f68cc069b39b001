"""What `sketchc bench` says on a terminal while it works, and what it does not say elsewhere."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from processes import started
from toolchains import require

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
RELU = str(EXAMPLES / "relu.sketch")
NOISY = """import torch


def noisy(x: "f32[M, N]"):
    return torch.relu(x) + torch.rand(())
"""


def on_a_terminal(*arguments: str) -> tuple[int, str]:
    """The status of a command whose errors go to a terminal, and what stood there."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "sketchc.cli.main", *arguments]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
    with started(command, stdout=subprocess.DEVNULL, stderr=theirs, env=environment) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                chunk = os.read(ours, 1 << 16)
            except OSError:  # the other end is closed
                break
            if not chunk:
                break
            shown += chunk
        status = process.wait(timeout=300)
    os.close(ours)
    return status, shown.decode(errors="replace")


def test_each_step_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require("cpp")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    options = ["--target", "cpp", "--no-store", "--symbols", "M=24,N=40", "--samples", "5"]
    task = ["--task", str(EXAMPLES / "tasks" / "relu.py")]
    status, shown = on_a_terminal("bench", RELU, *task, *options)
    steps = [
        *("loads the task", "measures the machine", "checks the task", "compiles"),
        *("warms PyTorch up", "times eager alone", "times, round 1 (at least 5)"),
        *("times bursts of calls", "verifies timed outputs"),
    ]
    assert status in (0, 1), shown  # other work on the machine may dispute the times
    places = [shown.index(f" {step}") for step in steps]
    assert places == sorted(places)
    assert "bench relu.sketch" in shown


def test_nothing_is_shown_beside_json(tmp_path: Path) -> None:
    require("cpp")
    (tmp_path / "noisy.py").write_text(NOISY)
    options = ["--task", str(tmp_path / "noisy.py"), "--target", "cpp", "--no-store"]
    status, shown = on_a_terminal("bench", RELU, *options)
    assert status == 2
    assert "checks the task" in shown
    status, shown = on_a_terminal("bench", RELU, *options, "--json")
    assert status == 2
    assert shown.startswith("error: ")
    assert "\x1b[" not in shown
    assert shown.count("\n") == 1
