"""No worker outlives the process that started it, even if it hangs and its parent is killed."""

from __future__ import annotations

import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import running

HANG = """
import subprocess, sys
def hang(request, arrays):
    command = [sys.executable, "-c", "while True: pass", request["mark"]]
    subprocess.run(command, start_new_session=True)
"""
PARENT = """
import sys
from sketchc.runtime.sandbox.worker import run_worker
run_worker(sys.argv[1] + ":hang", {"mark": sys.argv[2]}, preload=tuple(sys.argv[3:]), timeout=60)
"""


@pytest.mark.parametrize("preload", [(), ("json",)], ids=["plain", "forked"])
def test_a_hanging_worker_ends_with_its_parent(preload: tuple[str, ...], tmp_path: Path) -> None:
    handler, mark = tmp_path / "hang.py", secrets.token_hex(8)
    handler.write_text(HANG)
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(handler), mark, *preload], start_new_session=True
    )
    try:
        assert _becomes(lambda: len(set(running(mark)) - {parent.pid}) > 0)
        parent.send_signal(signal.SIGKILL)
        parent.wait(10)
        assert _becomes(lambda: not running(mark))
    finally:
        parent.kill()


def _becomes(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False
