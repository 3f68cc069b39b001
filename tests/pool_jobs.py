"""Jobs for the tests of the pool: they run in its processes, which find them by name."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from sketchc.runtime.process import pool


def square(number: int) -> int:
    pool.tell("squaring", 1, 1)
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
        pool.tell(f"event {told}", told)
        told += 1
    return told


def die_later(seconds: float) -> None:
    time.sleep(seconds)
    os.kill(os.getpid(), signal.SIGKILL)


def compile_and_run(folder: str) -> tuple[int, int, str]:
    """The most processes that compiled, and that ran, at once; and the device that this one had."""
    here = Path(folder)
    with pool.slots().compiling():
        compiling = _together(here / "compiling", 2)
    with pool.slots().running():
        running = _together(here / "running", 1)
        return compiling, running, os.environ.get("CUDA_VISIBLE_DEVICES", "")


def _together(folder: Path, enough: int) -> int:
    """The most that were here at once while this one was: it stays until `enough` are, and then a
    little, so that one too many would be seen."""
    mark = folder / str(os.getpid())
    mark.touch()
    most, end = 0, time.monotonic() + 5
    while most < enough and time.monotonic() < end:
        most = max(most, len(list(folder.iterdir())))
        time.sleep(0.005)
    time.sleep(0.15)
    most = max(most, len(list(folder.iterdir())))
    mark.unlink()
    return most
