"""Jobs for the tests of the pool: they run in its processes, which find them by name."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from sketchc.runtime.pool import local, slots


def square(number: int) -> int:
    local.tell("squaring", 1, 1)
    return number * number


def fail(number: int) -> int:
    msg = f"no square of {number}"
    raise ValueError(msg)


def die(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def die_once(place: str) -> str:
    """Ends its process the first time; the second time there is a file that says so."""
    path = Path(place)
    if not path.exists():
        path.write_text("tried")
        os.kill(os.getpid(), signal.SIGKILL)
    return path.read_text()


def chatter(seconds: float) -> int:
    """Tells all the time, so that it is always in the middle of it; how often it did."""
    told, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        local.tell(f"event {told}", told)
        told += 1
    return told


def die_later(seconds: float) -> None:
    time.sleep(seconds)
    os.kill(os.getpid(), signal.SIGKILL)


def compile_and_run(folder: str) -> tuple[int, int, str]:
    """The most processes that compiled, and that ran, at once; and the device that this one had."""
    here = Path(folder)
    with slots.compiling():
        compiling = _together(here / "compiling")
    with slots.running():
        running = _together(here / "running")
        return compiling, running, os.environ.get("CUDA_VISIBLE_DEVICES", "")


def _together(folder: Path) -> int:
    mark = folder / str(os.getpid())
    mark.touch()
    time.sleep(0.15)
    count = len(list(folder.iterdir()))
    mark.unlink()
    return count
