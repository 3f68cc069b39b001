"""Whether what is written to a stream is coloured, and rich consoles that keep to it.

The environment decides first: `NO_COLOR` (https://no-color.org) turns colours off, `FORCE_COLOR`
turns them on where nobody watches, too, and `TERM=dumb` says that the terminal has none. Each
counts when it is not empty.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


def coloured(stream: TextIO) -> bool:
    """Whether to colour what is written to a stream."""
    if os.environ.get("NO_COLOR"):
        return False
    return forced() or (stream.isatty() and os.environ.get("TERM") != "dumb")


def forced() -> bool:
    """Whether the environment asks for colours wherever the output goes."""
    return bool(os.environ.get("FORCE_COLOR")) and not os.environ.get("NO_COLOR")


def make_console(
    *, stderr: bool = False, quiet: bool = False, highlight: bool = True, width: int | None = None
) -> Console:
    """A console on standard output or standard error: plain, or in the terminal's colours."""
    from rich.console import Console

    system: Literal["auto", "standard"] | None
    system = "auto" if coloured(sys.stderr if stderr else sys.stdout) else None
    if system and forced() and os.environ.get("TERM") in (None, "", "dumb", "unknown"):
        system = "standard"
    return Console(
        stderr=stderr, quiet=quiet, highlight=highlight, width=width, color_system=system
    )


def table_console(width: int) -> Console:
    """A console of a fixed `width`: in a narrower terminal its lines wrap, nothing is cut off."""
    return make_console(highlight=False, width=width)


class Watch:
    """Counts the jobs of a command as they begin and end, in any thread; with a `progress` it shows
    a bar for all jobs, and a line for each running one."""

    def __init__(self, title: str, total: int, progress: Progress | None = None) -> None:
        self.total, self.done, self.passed = total, 0, 0
        self.progress = progress
        self._all: Any = progress and progress.add_task(title, total=total, note="")
        self._rows: dict[Hashable, Any] = {}
        self._ended: set[Hashable] = set()
        self._lock = threading.Lock()

    def runs(self, job: Hashable, name: str, note: str = "", completed: int = 0) -> None:
        """Note that `job` runs, and how far it is (`completed`); ignored once the job has ended."""
        with self._lock:
            if job in self._ended:
                return
            if job not in self._rows:
                self._rows[job] = self.progress and self.progress.add_task(
                    name, total=None, note=""
                )
            if self.progress is not None:
                self.progress.update(self._rows[job], note=note, completed=completed)

    def ends(self, job: Hashable, *, passed: bool) -> bool:
        """Note that `job` has ended; returns whether `runs` had been called for it."""
        with self._lock:
            began = job in self._rows
            row = self._rows.pop(job, None)
            self._ended.add(job)
            self.done += 1
            self.passed += passed
            if self.progress is not None:
                if began:
                    self.progress.remove_task(row)
                note = f"{self.passed} passed"
                self.progress.update(self._all, completed=self.done, note=note)
            return began


@contextmanager
def watching(title: str, total: int, *, quiet: bool = False) -> Iterator[Watch]:
    """A `Watch` with bars on standard error, removed at the end; none if `quiet` or no terminal."""
    if quiet or not sys.stderr.isatty():
        yield Watch(title, total)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=make_console(stderr=True), transient=True) as progress:
        yield Watch(title, total, progress)
