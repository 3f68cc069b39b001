"""How commands end: told to by a signal, without a package that they need, with errors as JSON."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import started

from sketchc.cli.main import run

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TIDIES_UP_FOR_EVER = """
    try:
        time.sleep(60)
    finally:
        time.sleep(60)
"""
HEARS_NOTHING = """
    while True:
        try:
            time.sleep(60)
        except BaseException:
            pass
"""
#: A command that is at work for longer than anybody waits.
CODE = """
import sys, time, click
from sketchc.cli import main

@click.command()
def busy():
    print("ready", flush=True)
{work}

main.COMMANDS["busy"] = ("__main__:busy", "")
sys.modules["__main__"].busy = busy
main.main(["busy"])
"""


@pytest.mark.sweep
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    ("work", "status"),
    [("    time.sleep(60)", 130), (TIDIES_UP_FOR_EVER, -signal.SIGALRM),
     (HEARS_NOTHING, -signal.SIGALRM)],
    ids=["waits", "tidies up for ever", "hears nothing"],
)  # fmt: skip
def test_a_signal_ends_a_command_within_five_seconds(
    number: signal.Signals, work: str, status: int
) -> None:
    command = [sys.executable, "-c", CODE.format(work=work)]
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.3)  # it is at work a moment later
        began = time.monotonic()
        process.send_signal(number)
        assert process.wait(20) == status
        assert time.monotonic() - began < 5
        assert "Traceback" not in process.stderr.read()


def test_a_signal_that_the_shell_ignores_for_what_runs_behind_it_ends_a_command() -> None:
    """`command &` in a script starts with SIGINT ignored."""
    behind = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    behind += "os.execv(sys.executable, [sys.executable, '-c', sys.argv[1]])"
    command = [sys.executable, "-c", behind, CODE.format(work="    time.sleep(60)")]
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert "interrupted" in process.stderr.read()


@pytest.mark.parametrize(
    "arguments",
    [
        ["bench", "rms.sketch", "--task", "tasks/rms.py", "--target", "cpp"],
        ["bench", "rms.sketch", "--task", "tasks/rms.py", "--target", "cpp", "--json"],
    ],
    ids=["text", "json"],
)
def test_without_torch_it_is_said_what_to_install(arguments: list[str]) -> None:
    code = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "from sketchc.cli.main import run\n"
        "sys.exit(run(sys.argv[1:]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True, text=True, check=False, cwd=EXAMPLES,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "this needs torch" in done.stderr
    assert "internal error" not in done.stderr
    if "--json" in arguments:
        error = json.loads(done.stdout)["error"]
        assert error["class"] == "usage"
        assert "pip install" in error["reason"]


@pytest.mark.parametrize("command", ["verify", "bench", "gen"])
def test_errors_of_a_sketch_are_json_where_that_is_asked_for(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.sketch"
    bad.write_text("sketch bad {\n    symbols: M;\n    store(x -> Y[0:M])\n}\n")
    task = str(EXAMPLES / "tasks" / "relu.py")
    rest = [str(bad), "--task", task]
    if command == "gen":
        rest = [task, "--workflow", "coder-only", "--sketch", str(bad), "-o", str(tmp_path / "out")]
    assert run([command, *rest, "--target", "cpp", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["diagnostics"][0]["severity"] == "error"
    assert found["diagnostics"][0]["code"].startswith("SK")
    assert found.get("passed", False) is False
    assert run([command, *rest, "--target", "nobody", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["class"] == "usage"
