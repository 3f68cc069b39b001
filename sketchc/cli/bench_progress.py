"""What `sketchc bench` is doing, on a terminal: on standard error, gone when there is a result.

Nothing is drawn in the background: what is timed shares the processors with this process.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from sketchc.cli.consoles import make_console

#: Seconds between two updates of the same sort.
_REFRESH = 0.2

Say = Callable[[str], None]


@contextmanager
def bench_progress(
    file: str, *, quiet: bool, number: int = 1, of: int = 1, console: Console | None = None
) -> Iterator[Say]:
    """Says what is being done to kernel `number` of `of`; nothing where nobody watches."""
    if quiet or (console is None and not sys.stderr.isatty()):
        yield lambda doing: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("bench {task.description}"),
        *((BarColumn(), MofNCompleteColumn()) if of > 1 else ()),
        TimeElapsedColumn(),
        TextColumn("{task.fields[doing]}", markup=False),
    )
    shown = console or make_console(stderr=True)
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
