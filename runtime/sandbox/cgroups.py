"""A control group that bounds how many processes there are: for root, whom no rlimit binds.

Only the standard library. Both layouts of Linux: version 2 (one tree) and version 1 (a tree for
each controller).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
#: Where groups may be made, if the kernel is set up so.
_PLACES = (_ROOT / "pids", _ROOT)


@contextlib.contextmanager
def bounded(processes: int) -> Iterator[Path | None]:
    """A group of at most so many processes, removed at the end; None where none can be made."""
    group = _make(processes)
    try:
        yield group
    finally:
        if group is not None:
            _remove(group)


def join(group: Path) -> None:
    """Put this process, and with it what it will start, into a group."""
    with contextlib.suppress(OSError):
        (group / "cgroup.procs").write_text(str(os.getpid()))


def _make(processes: int) -> Path | None:
    for place in _PLACES:
        group = place / f"sketchc-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / "pids.max").write_text(str(processes))
        except OSError:  # there is no such controller in this tree
            _remove(group)
            continue
        return group
    return None


def _remove(group: Path) -> None:
    """Once it is empty, which takes the kernel a moment."""
    for _ in range(100):
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.01)
        else:
            return
