"""A measurement as text and as JSON."""

from __future__ import annotations

from typing import Any

import attrs
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sketchc.runtime.bench.bench import Measurement
from sketchc.runtime.bench.statistics import Summary
from sketchc.runtime.verify.verdict import jsonable


def seconds_text(seconds: float) -> str:
    """Seconds with three digits and a fitting unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def show(measured: Measurement, console: Console) -> None:
    """Print the table and the conclusion."""
    sizes = ", ".join(f"{name}={value}" for name, value in measured.symbols.items())
    console.print(
        f"[bold]{escape(measured.sketch)}[/bold] for {measured.target} ({measured.hardware}) at "
        f"{sizes}, on {escape(measured.machine.name)}, {measured.machine.threads} threads",
        highlight=False,
        soft_wrap=True,
    )
    for note in measured.notes:
        console.print(f"note: {escape(note)}", highlight=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for name in ("median", "95 % interval", "samples", "GB/s", "roofline", "GFLOP/s"):
        table.add_column(name, justify="right", no_wrap=True)
    _row(table, "PyTorch eager", measured.eager, measured, measured.eager_roofline)
    _row(table, f"sketchc {measured.target}", measured.kernel, measured, measured.roofline)
    console.print(table)
    console.print(summary(measured), highlight=False, soft_wrap=True)


def _row(table: Table, name: str, times: Summary, measured: Measurement, roofline: float) -> None:
    table.add_row(
        name,
        seconds_text(times.median),
        f"{seconds_text(times.low)} to {seconds_text(times.high)}",
        str(times.samples),
        f"{measured.bytes / times.median / 1e9:.1f}",
        f"{roofline:.0%}",
        f"{measured.flops / times.median / 1e9:.1f}",
    )


def summary(measured: Measurement) -> str:
    """The conclusion in one line."""
    gain = measured.speedup
    times = f"{gain.of_medians:.2f}x of eager ({gain.low:.2f} to {gain.high:.2f})"
    wrong = [comparison for comparison in measured.comparisons if not comparison.passed]
    if wrong:
        return f"failed: a timed output is wrong ({wrong[0].name}: {wrong[0].reason}); {times}"
    if not measured.believable:
        return f"failed: {times}, faster than the memory of this machine allows"
    largest = max((comparison.max_error for comparison in measured.comparisons), default=0.0)
    return (
        f"{times}; outputs of timed runs verified, largest error {largest:.2g}; "
        f"bandwidth {measured.machine.bandwidth / 1e9:.1f} GB/s"
    )


def to_json(measured: Measurement) -> dict[str, Any]:
    """Everything, with the raw samples."""
    data: dict[str, Any] = attrs.asdict(measured)
    data["passed"] = measured.passed
    found: dict[str, Any] = jsonable(data)
    return found
