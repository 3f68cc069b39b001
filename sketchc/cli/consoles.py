"""Whether what is written to a stream is coloured, and rich consoles that keep to it.

The environment decides first: `NO_COLOR` (https://no-color.org) turns colours off, `FORCE_COLOR`
turns them on where nobody watches, too, and `TERM=dumb` says that the terminal has none. Each
counts when it is not empty.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Literal, TextIO

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
    """As wide as a table needs: in a narrower terminal lines wrap, and nothing is cut off."""
    return make_console(highlight=False, width=width)


def make_progress() -> Progress:
    """Bars on standard error, with a `note` behind each, that go in the end."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )
    return Progress(*columns, console=make_console(stderr=True), transient=True)
