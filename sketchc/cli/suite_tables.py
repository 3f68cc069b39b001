"""Tables of `sketchc suite` for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sketchc.cli.consoles import table_console

if TYPE_CHECKING:
    from sketchc.agents.suites.comparing import Compared, Difference
    from sketchc.agents.suites.run import Results
    from sketchc.agents.suites.sources import Suite

_WIDTH = 200


def show_tasks(suite: Suite) -> None:
    """Print a line for each task; an excluded one has the reason in place of its sizes."""
    rows = [
        (task.name, task.category, f"excluded: {task.excluded}" if task.excluded else task.sizes)
        for task in suite.tasks
    ]
    _show(table_console(_WIDTH), ("task", "category", "sizes"), rows)


def show_results(results: Results) -> None:
    """Print how many tasks passed by category, then those that did not, with the reasons."""
    console = table_console(_WIDTH)
    from sketchc.agents.suites.metrics import cells, headings

    rows = results.totals
    named = ["category", *headings(rows[-1])]
    lines = [[row.category, *cells(row, rows[-1])] for row in rows]
    _show(console, named, lines, len(named) - 1)
    if results.scaled:
        text = f"passed at sizes scaled down from their own: {', '.join(results.scaled)}"
        console.print(escape(text), soft_wrap=True)
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


def show_compared(compared: Compared, first: Results, second: Results) -> None:
    """Print both runs by category, the tasks that only one passed, and if that may be chance."""
    console = table_console(_WIDTH)
    headings = ["category", "tasks", "first", "second", "gained", "lost", "p"]
    timed = compared.rows[-1].speeds is not None
    headings += ["second's speed", "95 % interval", "faster", "slower", "p"] if timed else []
    rows = [_compared_cells(row, timed) for row in compared.rows]
    _show(console, headings, rows, len(headings) - 1)
    for title, names, results in (
        ("gained", compared.rows[-1].gained, first),
        ("lost", compared.rows[-1].lost, second),
    ):
        reasons = {task.name: task for task in results.tasks}
        found = [
            (name, miss.outcome, miss.reason.split("\n")[0])
            for name in names
            for miss in [next(s for s in reasons[name].samples if not s.passed)]
        ]
        if found:
            console.print()
            _show(console, (title, "outcome in the other", "reason"), found)
    if compared.unpaired:
        some = ", ".join(compared.unpaired[:5]) + (", ..." if len(compared.unpaired) > 5 else "")
        text = f"{len(compared.unpaired)} not compared, being in one run only or changed: {some}"
        console.print(escape(text), soft_wrap=True)
    whole = compared.rows[-1]
    word = "significant" if whole.significant else "no more than chance gives"
    console.print(
        f"{whole.first} against {whole.second} of {whole.tasks} passed: {word} (p = {whole.p:.3g})",
        soft_wrap=True,
    )


def _compared_cells(row: Difference, timed: bool) -> list[str]:
    """The cells of one row of the comparison; those on speeds only if any task was `timed`."""
    counts = (row.tasks, row.first, row.second, len(row.gained), len(row.lost))
    cells = [row.category, *map(str, counts), f"{row.p:.3g}"]
    speeds = row.speeds
    if not timed:
        return cells
    if speeds is None:
        return [*cells, *[""] * 5]
    interval = f"{speeds.low:.2f} to {speeds.high:.2f}"
    numbers = (str(speeds.faster), str(speeds.slower), f"{speeds.p:.3g}")
    return [*cells, f"{speeds.ratio:.2f}x", interval, *numbers]


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
