"""Control groups that bound how many processes there are, and what memory they hold: for root, whom
no rlimit binds, and to know afterwards whether the kernel ended a process for want of memory.

Only the standard library. Both layouts of Linux: version 2 (one tree) and version 1 (a tree for
each controller).
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
#: Controller -> where groups may be made, if the kernel is set up so, and the file with the bound.
_PLACES = {
    "pids": ((_ROOT / "pids", "pids.max"), (_ROOT, "pids.max")),
    "memory": ((_ROOT / "memory", "memory.limit_in_bytes"), (_ROOT, "memory.max")),
}
#: Files that count the processes that were ended at a group's own bound.
_COUNTS = ("memory.events.local", "memory.events", "memory.oom_control")


class Groups:
    """The groups of one candidate, by controller; none where none could be made."""

    def __init__(self, folders: list[Path]) -> None:
        self.folders = folders

    def join(self) -> None:
        """Put this process, and with it what it will start, into the groups."""
        for folder in self.folders:
            with contextlib.suppress(OSError):
                (folder / "cgroup.procs").write_text("0")

    def kills(self) -> int:
        """How many processes were ended because a group held all the memory that it may."""
        return sum(_kills(folder) for folder in self.folders)


@contextlib.contextmanager
def bounded(processes: int | None, memory: int | None) -> Iterator[Groups]:
    """Groups of at most so many processes and bytes, removed at the end."""
    made: list[Path] = []
    for controller, most in (("pids", processes), ("memory", memory)):
        if most is not None and (folder := _make(controller, most)) is not None:
            made.append(folder)
    try:
        yield Groups(list(dict.fromkeys(made)))
    finally:
        for folder in made:
            _remove(folder)


def _make(controller: str, most: int) -> Path | None:
    for place, name in _PLACES[controller]:
        group = place / f"sketchc-{os.getpid()}"
        new = not group.exists()  # else it is another controller's, of the same tree
        with contextlib.suppress(OSError):
            group.mkdir(exist_ok=True)
            if (group / name).exists():  # there is such a controller in this tree
                (group / name).write_text(str(most))
                return group
        if new and group.exists():
            _remove(group)
    return None


def _kills(folder: Path) -> int:
    for name in _COUNTS:
        with contextlib.suppress(OSError, ValueError, IndexError):
            for line in (folder / name).read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    return 0


def _remove(group: Path) -> None:
    """Once it is empty, which takes the kernel a moment."""
    for _ in range(100):
        try:
            group.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY:
                return
            time.sleep(0.01)
        else:
            return
