"""Colours on a terminal and in a pipe, as the environment asks for them; `python -m sketchc`."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

WRONG = """sketch wrong {
    symbols: N;
    tensors: X[N]: in f32; Y[N]: out f32;
    constexpr: T = 8;
    for i in range(0, N, T):
        x = alloc([T])
        load(X[i:i+T] -> y)
        store(x -> Y[i:i+T])
}
"""
ESCAPE = "\x1b["
CASES = [
    ({"TERM": "xterm"}, True, False),
    ({"TERM": "xterm", "NO_COLOR": "1"}, False, False),
    ({"TERM": "xterm", "NO_COLOR": ""}, True, False),
    ({"TERM": "dumb"}, False, False),
    ({"TERM": "xterm", "FORCE_COLOR": "1"}, True, True),
    ({"TERM": "dumb", "FORCE_COLOR": "1"}, True, True),
    ({"TERM": "xterm", "FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
]


def ran(arguments: list[str], environment: dict[str, str], terminal: bool) -> tuple[int, str]:
    """The exit status and what `python -m sketchc` writes, to a terminal or to a pipe."""
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "TERM")}
    command = [sys.executable, "-m", "sketchc", *arguments]
    given = {**kept, **environment, "COLUMNS": "100"}
    if not terminal:
        done = subprocess.run(
            command, env=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120
        )
        return done.returncode, done.stdout.decode()
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, env=given, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    parts = []
    try:
        while part := os.read(ours, 65536):
            parts.append(part)
    except OSError:  # the other side is closed
        pass
    os.close(ours)
    return process.wait(120), b"".join(parts).decode()


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
@pytest.mark.parametrize(("environment", "watched", "piped"), CASES)
@pytest.mark.parametrize("command", ["check", "lower"])
def test_diagnostics(command, environment, watched, piped, terminal, tmp_path: Path) -> None:
    """`check` reports on standard output, `lower` on standard error."""
    path = tmp_path / "wrong.sketch"
    path.write_text(WRONG, "utf-8")
    more = ["--target", "cpp"] if command == "lower" else []
    status, text = ran([command, str(path), *more], environment, terminal)
    assert status == 1
    assert "SK0201" in text
    assert (ESCAPE in text) == (watched if terminal else piped)


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
@pytest.mark.parametrize(("environment", "watched", "piped"), CASES)
def test_tables(environment, watched, piped, terminal) -> None:
    status, text = ran(["targets"], environment, terminal)
    assert status == 0
    assert "triton_cuda" in text
    assert (ESCAPE in text) == (watched if terminal else piped)


def test_the_module_is_the_command() -> None:
    status, text = ran(["--help"], {}, terminal=False)
    assert status == 0
    assert text.startswith("Usage: sketchc ")
    assert ran(["no-such-command"], {}, terminal=False)[0] == 2
