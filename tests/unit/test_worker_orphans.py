"""No worker outlives the process that started it, even if it hangs and its parent is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

HANG = """
import os, pathlib, sys
def hang(request, arrays):
    pathlib.Path(request["file"]).write_text(str(os.getpid()))
    while True:
        pass
"""
PARENT = """
import sys
from sketchc.runtime.worker import run_worker
run_worker(sys.argv[1] + ":hang", {"file": sys.argv[2]}, preload=tuple(sys.argv[3:]), timeout=60)
"""


@pytest.mark.parametrize("preload", [(), ("json",)], ids=["plain", "forked"])
def test_a_hanging_worker_ends_with_its_parent(preload: tuple[str, ...], tmp_path: Path) -> None:
    handler, told = tmp_path / "hang.py", tmp_path / "pid"
    handler.write_text(HANG)
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(handler), str(told), *preload])
    try:
        worker = _wait_for(told)
        assert _alive(worker)
        parent.send_signal(signal.SIGKILL)
        parent.wait(10)
        deadline = time.monotonic() + 10
        while _alive(worker) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not _alive(worker)
    finally:
        parent.kill()


def _wait_for(path: Path) -> int:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if path.exists() and path.read_text():
            return int(path.read_text())
        time.sleep(0.02)
    pytest.fail("the worker did not start")


def _alive(pid: int) -> bool:
    """A process that runs; one that ended and waits to be reaped does not."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
