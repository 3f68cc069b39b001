"""What `bench` and `tune` share: progress while something is timed, and what can be timed here."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sketchc.base.diagnostics import UsageError, refuse
from sketchc.cli import options
from sketchc.cli.consoles import make_console

if TYPE_CHECKING:
    from sketchc.runtime.toolchains.base import Toolchain

#: Seconds between two updates of the progress line within one step of the work.
_REFRESH = 0.2

Say = Callable[[str], None]


@contextmanager
def timing_progress(
    command: str, file: str, *, quiet: bool, number: int = 1, of: int = 1
) -> Iterator[Say]:
    """A function that shows, on a terminal, what is being done to kernel `number` of `of`."""
    if quiet or not sys.stderr.isatty():
        yield lambda doing: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn(command + " {task.description}"),
        *((BarColumn(), MofNCompleteColumn()) if of > 1 else ()),
        TimeElapsedColumn(),
        TextColumn("{task.fields[doing]}", markup=False),
    )
    shown = make_console(stderr=True)
    with Progress(*columns, console=shown, auto_refresh=False, transient=True) as progress:
        row = progress.add_task(Path(file).name, total=of, completed=number - 1, doing="starts")
        said, at = "", 0.0

        def say(doing: str) -> None:
            nonlocal said, at
            word, now = doing.split(",")[0], time.monotonic()
            if word == said and now - at < _REFRESH:
                return
            said, at = word, now
            progress.update(row, doing=doing)
            progress.refresh()

        yield say


class NotTimedHereError(UsageError):
    """The target does not run at its own speed on this machine."""


def require_speed(toolchain: Toolchain) -> None:
    """Raises `UsageError` where the target does not run at its own speed."""
    status = toolchain.status()
    if not status.can_run or status.interpreted:
        how = f"runs: {status.how_it_runs}" if status.can_run else "it cannot run"
        advice = f"; {status.advice}" if status.advice else ""
        msg = f"{toolchain.target} cannot be timed on this machine: {how}{advice}"
        raise NotTimedHereError(msg)


def positive_sizes(pairs: tuple[str, ...], option: str = "--symbols") -> dict[str, int]:
    """The sizes of an option. Raises `UsageError` for what is not a positive integer."""
    sizes = options.parse_sizes(pairs, option)
    for name, value in sizes.items():
        if value < 1:
            refuse(f"{option} {name}={value}: a size to measure at is a positive integer")
    return sizes
