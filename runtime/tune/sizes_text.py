"""A tuning for several sizes as text and as JSON."""

from __future__ import annotations

from functools import partial
from typing import Any

import attrs
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sketchc.base.json_form import to_plain
from sketchc.runtime.bench.text import seconds_text
from sketchc.runtime.tune.cover import TOLERANCE
from sketchc.runtime.tune.rule import lines
from sketchc.runtime.tune.sizes import SizeResult, SizesTuning
from sketchc.runtime.tune.text import dropped_lines
from sketchc.runtime.tune.tuner import settings_text
from sketchc.runtime.verify.words import sizes_text


def show(found: SizesTuning, again: str, console: Console) -> None:
    """Print the table of sizes and points, the points that serve all sizes, and the command `again`
    that gives the code for sizes. Columns are the plan's choice and what serves any size."""
    say = partial(console.print, highlight=False, soft_wrap=True)
    say(
        f"[bold]{escape(found.sketch)}[/bold] for {found.target} ({found.hardware}) at "
        f"{len(found.sizes)} sizes, on {escape(found.device)}, {found.threads} threads"
    )
    for row in found.sizes:
        known = f" ({row.known} of them known from before)" if row.known else ""
        say(f"{sizes_text(row.symbols) or 'fixed sizes'}: {row.tried} points tried{known}")
    for line in dropped_lines([*found.dropped, *found.rejected]):
        say(escape(line))
    table = Table(box=None, pad_edge=False, header_style="bold")
    shown = list(dict.fromkeys([0, *found.chosen]))
    table.add_column("sizes", overflow="fold")
    for place in shown:
        name = settings_text(found.points[place]) or "nothing varies"
        table.add_column(f"{name} (the plan's)" if place == 0 else name, overflow="fold")
    table.add_column("best of all", overflow="fold")
    for row in found.sizes:
        cells = [_cell(row, place) for place in shown]
        table.add_row(sizes_text(row.symbols), *cells, seconds_text(row.best_seconds))
    console.print(table)
    say(conclusion(found))
    for line in rule_lines(found):
        say(escape(line))
    say(f"again: {escape(again)}")


def _cell(row: SizeResult, place: int) -> str:
    seconds = row.seconds[place]
    if seconds is None:
        return "failed"
    mark = " *" if place == row.chosen else ""
    return f"{seconds_text(seconds)} ({row.best_seconds / seconds:.0%}){mark}"


def conclusion(found: SizesTuning) -> str:
    """How many points serve all sizes, in one line."""
    number, many = len(found.chosen), len(found.sizes)
    points = "one point serves" if number == 1 else f"{number} points serve"
    return f"passed: {points} {many} sizes within {TOLERANCE:.0%} of the best point of each (*)"


def rule_lines(found: SizesTuning) -> list[str]:
    """Which point to take at which sizes, a line for each question; none for a single point."""
    if len(found.chosen) == 1:
        return []
    names = [settings_text(point) for point in found.points]
    return ["rule:", *lines(found.rule, names, "  ")]


def to_json(found: SizesTuning) -> dict[str, Any]:
    """Everything that was found as JSON-able data."""
    plain: dict[str, Any] = to_plain(attrs.asdict(found))
    return plain | {"rule": "\n".join(rule_lines(found)[1:])}
