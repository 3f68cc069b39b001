"""Tables of `sketchc suite` for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sketchc.cli.consoles import make_console

if TYPE_CHECKING:
    from sketchc.agents.suites.metrics import Totals
    from sketchc.agents.suites.run import Results
    from sketchc.agents.suites.sources import Suite

_WIDTH = 200


def show_tasks(suite: Suite) -> None:
    """A line for each task; what is left out says why."""
    rows = [
        (task.name, task.category, f"excluded: {task.excluded}" if task.excluded else task.sizes)
        for task in suite.tasks
    ]
    _show(_console(), ("task", "category", "sizes"), rows)


def show_results(results: Results) -> None:
    """What passed by category, and below it what did not, with the reasons."""
    console = _console()
    rows = results.totals
    measured = rows[-1].measured > 0
    headings = ["category", "tasks", "passed", "incomplete", "failed", "at own sizes"]
    headings += [f"pass@{k}" for k in rows[-1].pass_at] + ["shape cases"]
    headings += [f"fast_{p:g}" for p in rows[-1].fast] + ["mean"] if measured else []
    _show(console, headings, [_cells(row, measured) for row in rows], len(headings) - 1)
    if results.misses:
        console.print()
        found = [
            (task.name, task.best.outcome, task.best.reason.split("\n")[0])
            for task in results.misses
        ]
        _show(console, ("not passed", "outcome", "reason"), found)
    for name, reason in results.excluded:
        console.print(escape(f"excluded: {name}: {reason}"), soft_wrap=True)
    if results.left:
        console.print(
            f"{len(results.left)} tasks are left: the same command goes on", soft_wrap=True
        )


def _cells(row: Totals, measured: bool) -> list[str]:
    """A line of the table of categories."""
    counts = (row.tasks, row.passed, row.incomplete, row.failed, row.own_sizes)
    cells = [row.category, *map(str, counts), *(f"{share:.1%}" for share in row.pass_at.values())]
    cells.append("" if row.shape_share is None else f"{row.shape_share:.1%} of {row.shapes}")
    if measured:
        cells += [f"{share:.1%}" for share in row.fast.values()]
        cells.append("" if row.geometric_mean is None else f"{row.geometric_mean:.2f}x")
    return cells


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
