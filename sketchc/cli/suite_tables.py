"""Tables of `sketchc suite` for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sketchc.cli.consoles import make_console

if TYPE_CHECKING:
    from sketchc.agents.suites.sources import Suite

_WIDTH = 200


def show_tasks(suite: Suite) -> None:
    """A line for each task; what is left out says why."""
    rows = [
        (task.name, task.category, f"excluded: {task.excluded}" if task.excluded else task.sizes)
        for task in suite.tasks
    ]
    _show(_console(), ("task", "category", "sizes"), rows)


def _console() -> Console:
    """As wide as a table needs: in a narrower terminal lines wrap, and nothing is cut off."""
    return make_console(highlight=False, width=_WIDTH)


def _show(
    console: Console, headings: Sequence[str], rows: Sequence[Sequence[str]], numbers: int = 0
) -> None:
    """Print a table, of which the last `numbers` columns are numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, heading in enumerate(headings):
        right = place >= len(headings) - numbers
        table.add_column(heading, justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(table)
