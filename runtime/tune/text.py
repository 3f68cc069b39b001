"""A tuning as text and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import attrs
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sketchc.base.json_form import to_plain
from sketchc.base.types import Scalar
from sketchc.runtime.bench.measurement import Summary
from sketchc.runtime.bench.text import seconds_text
from sketchc.runtime.tune.tuner import Dropped, Tuning, settings_text
from sketchc.runtime.verify.words import sizes_text

#: The most points that did not count which are told one by one.
_MOST_TOLD = 8


def show(found: Tuning, again: str, console: Console) -> None:
    """Print a tuning: what was searched, the plan's choice beside the winner, what did not count,
    and the command `again` that gives the winner's code."""
    say = partial(console.print, highlight=False, soft_wrap=True)
    say(
        f"[bold]{escape(found.sketch)}[/bold] for {found.target} ({found.hardware}) at "
        f"{sizes_text(found.symbols) or 'fixed sizes'}, on {escape(found.device)}, "
        f"{found.threads} threads"
    )
    say(counts(found))
    for why in found.illegal:
        say(f"illegal: {why.points} points, {why.code}, as: {escape(why.example)}")
    for line in dropped_lines([*found.dropped, *found.rejected]):
        say(escape(line))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", "point", "median", "95 % interval"):
        table.add_column(name, overflow="fold")
    if found.default_times is not None:
        table.add_row(*_cells("the plan's choice", found.default, found.default_times))
    table.add_row(*_cells("best", found.best, found.best_times))
    console.print(table)
    say(conclusion(found))
    say(f"again: {escape(again)}")


def _cells(name: str, point: Mapping[str, Scalar], times: Summary) -> tuple[str, ...]:
    interval = f"{seconds_text(times.low)} to {seconds_text(times.high)}"
    return name, settings_text(point), seconds_text(times.median), interval


def counts(found: Tuning) -> str:
    """How many points there are, and what became of them, in one line."""
    wrong = len(found.dropped) + len(found.rejected)
    before = f" ({found.known} of them known from before)" if found.known else ""
    end = "the budget was spent" if found.ended == "budget" else "all points are known"
    illegal = sum(why.points for why in found.illegal)
    return (
        f"{found.tried} of {found.points} points tried{before}, {illegal} illegal, "
        f"{wrong} dropped, in {found.seconds:.1f} s; {end}"
    )


def conclusion(found: Tuning) -> str:
    """The speedup of the winner over the plan's choice, in one line."""
    gain = found.gain
    if gain is None:
        return "passed: the plan's own choice fails, and no speedup is quoted"
    if dict(found.best) == dict(found.default):
        return "passed: the plan's own choice is the fastest point that was found"
    return (
        f"passed: {gain.of_medians:.2f}x of the plan's choice ({gain.low:.2f} to {gain.high:.2f}), "
        "measured in turn in a fresh process"
    )


def dropped_lines(told: Sequence[Dropped]) -> list[str]:
    """The points that do not count, a line each; of many the first ones."""
    lines = [f"dropped: {dropped_text(one)}" for one in told[:_MOST_TOLD]]
    more = len(told) - _MOST_TOLD
    return [*lines, *([f"dropped: {more} more points; --json has them all"] if more > 0 else [])]


def dropped_text(one: Dropped) -> str:
    """A point that does not count, and why."""
    return f"{settings_text(one.point)}: {one.failure}: {one.reason}"


def to_json(found: Tuning) -> dict[str, Any]:
    """Everything that was found as JSON-able data."""
    plain: dict[str, Any] = to_plain(attrs.asdict(found))
    return plain
