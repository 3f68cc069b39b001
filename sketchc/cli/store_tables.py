"""Tables of `sketchc store` for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sketchc.cli.consoles import table_console
from sketchc.runtime.verify.words import sizes_text

Row = Mapping[str, Any]
Cell = Callable[[Row], str]

#: Characters of an id that are shown: enough to be unique, and `show` takes them.
_SHORT = 10
#: Columns that may take several lines.
_WRAPPED = ("sizes", "device", "runs", "folder")
_WIDTH = 240


def _plain(name: str) -> Cell:
    return lambda row: escape(str(row[name]))


def _id(name: str) -> Cell:
    return lambda row: "" if row[name] is None else str(row[name])[:_SHORT]


def _recorded(row: Row) -> str:
    return str(row["recorded"])[:16].replace("T", " ")


def _result(row: Row) -> str:
    if row["passed"]:
        return "[green]passed[/green]"
    if not row.get("failure"):
        return "[yellow]incomplete[/yellow]"
    return f"[red]{escape(row['failure'])}[/red]"


def _sizes(row: Row) -> str:
    return escape(sizes_text(row["symbols"]))


def _point(name: str) -> Cell:
    return lambda row: escape(sizes_text(row[name] or {}))


def _microseconds(name: str) -> Cell:
    return lambda row: "" if row[name] is None else f"{row[name] * 1e6:.4g}"


def _median(row: Row) -> str:
    """The median time in microseconds, for every row alike, so that rows can be compared."""
    return f"{row['median'] * 1e6:.4g}"


def _speedup(row: Row) -> str:
    return "" if row["speedup"] is None else f"{row['speedup']:.2f}x"


#: Kind -> (heading, cell) of its list.
_COLUMNS: dict[str, tuple[tuple[str, Cell], ...]] = {
    "tasks": (
        ("id", _id("id")),
        ("task", _plain("name")),
        ("of the file", _plain("subject")),
        ("passed", _plain("passed")),
        ("failed", _plain("failed")),
        ("incomplete", _plain("incomplete")),
        ("measured", _plain("measurements")),
        ("first recorded", _recorded),
    ),
    "sketches": (
        ("id", _id("id")),
        ("sketch", _plain("name")),
        ("spellings", _plain("spellings")),
        ("kernels", _plain("kernels")),
        ("first recorded", _recorded),
    ),
    "kernels": (
        ("id", _id("id")),
        ("kernel", _plain("name")),
        ("target", _plain("target")),
        ("chip", _plain("hardware")),
        ("written by", _plain("origin")),
        ("passed", _plain("passed")),
        ("failed", _plain("failed")),
        ("incomplete", _plain("incomplete")),
        ("sketch", _id("sketch")),
    ),
    "verdicts": (
        ("id", _id("id")),
        ("task", _plain("task")),
        ("target", _plain("target")),
        ("result", _result),
        ("cases", _plain("cases")),
        ("kernel", _id("kernel")),
        ("recorded", _recorded),
        ("runs", _plain("how_it_runs")),
    ),
    "measurements": (
        ("id", _id("id")),
        ("task", _plain("task")),
        ("target", _plain("target")),
        ("sizes", _sizes),
        ("median us", _median),
        ("of eager", _speedup),
        ("precision", _plain("precision")),
        ("outputs", _result),
        ("kernel", _id("kernel")),
        ("device", _plain("device")),
    ),
    "runs": (
        ("id", _id("id")),
        ("task", _plain("task")),
        ("target", _plain("target")),
        ("workflow", _plain("workflow")),
        ("outcome", lambda row: escape(row["outcome"] or "not ended")),
        ("attempts", _plain("attempts")),
        ("calls", _plain("calls")),
        ("tokens", _plain("tokens")),
        ("recorded", _recorded),
        ("folder", _plain("folder")),
    ),
    "builds": (
        ("id", _id("id")),
        ("module", _plain("name")),
        ("target", _plain("target")),
        ("chip", _plain("hardware")),
        ("files", _plain("files")),
        ("task", _id("task")),
        ("recorded", _recorded),
    ),
    "tunings": (
        ("id", _id("id")),
        ("sketch", _plain("sketch_name")),
        ("task", _plain("task")),
        ("target", _plain("target")),
        ("sizes", _sizes),
        ("points", _plain("points")),
        ("best", _point("best")),
        ("best us", _microseconds("seconds")),
        ("plan's choice us", _microseconds("default_seconds")),
        ("recorded", _recorded),
        ("device", _plain("device")),
    ),
}
_BEST: tuple[tuple[str, Cell], ...] = (
    ("task", _plain("task")),
    ("target", _plain("target")),
    ("sizes", _sizes),
    ("precision", _plain("precision")),
    ("median us", _median),
    ("of eager", _speedup),
    ("kernel", _id("kernel")),
    ("measurement", _id("measurement")),
    ("verdict", _id("verdict")),
    ("device", _plain("device")),
)


def show_list(kind: str, rows: Sequence[Row]) -> None:
    """Print the table of the `rows` of one `kind`, or that there are none."""
    if not rows:
        click.echo(f"no {kind}")
        return
    table_console(_WIDTH).print(_table(_COLUMNS[kind], rows))


def show_best(rows: Sequence[Row]) -> None:
    """Print the best kernels."""
    table_console(_WIDTH).print(_table(_BEST, rows))


def _table(columns: Sequence[tuple[str, Cell]], rows: Sequence[Row]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading, _ in columns:
        table.add_column(heading, no_wrap=heading not in _WRAPPED, overflow="fold")
    for row in rows:
        table.add_row(*(cell(row) for _, cell in columns))
    return table


# ---------------------------------------------------------------- one thing


def show_one(data: Row) -> None:
    """Print everything about one stored object: facts, lists of what refers to it, texts last."""
    console = table_console(_WIDTH)
    console.print(f"[bold]{data['kind']} {data['id']}[/bold]", soft_wrap=True)
    _facts(console, data, "")
    for name, value in data.items():
        if name in _COLUMNS and value:
            console.print(f"\n[bold]{name}[/bold]")
            console.print(_table(_COLUMNS[name], value))
    _evidence(console, data)
    _tuning(console, data)
    _run(console, data)
    _texts(console, data)


_TEXTS = ("text", "sketch_text", "signature")
#: Shown in a form of their own, or only as JSON.
_ELSEWHERE = (
    *("id", "kind", "evidence", "spellings", "modules", "files"),
    *("header", "trace", "ledger", "points"),
)


def _facts(console: Console, data: Row, indent: str) -> None:
    """Print a line for each plain value; nested objects (kernel, task, environment) indented."""
    for name, value in data.items():
        if name in (*_TEXTS, *_COLUMNS, *_ELSEWHERE):
            continue
        if isinstance(value, dict) and value:
            console.print(f"{indent}{name}:")
            _facts(console, value, f"{indent}  ")
        elif value not in (None, "", {}, []):
            _say(console, f"{indent}{name}: {value}")


def _say(console: Console, line: str) -> None:
    console.print(escape(line), soft_wrap=True)


def _evidence(console: Console, data: Row) -> None:
    """Print the cases of a verdict, or the samples of a measurement, as they were recorded."""
    evidence = data.get("evidence")
    if evidence is None:
        return
    for note in evidence.get("notes", ()):
        _say(console, f"note: {note}")
    if data["kind"] == "verdict":
        console.print("\n[bold]cases[/bold]")
        for case in evidence["cases"]:
            sizes = sizes_text(case["shape"]["symbols"])
            result = case["failure"] or "passed"
            reason = f": {case['reason']}" if case["reason"] else ""
            _say(console, f"{sizes} ({case['kind']}, seed {case['seed']}): {result}{reason}")
        return
    console.print("\n[bold]samples[/bold], in seconds")
    for name, samples in evidence["samples"].items():
        _say(console, f"{name}: {' '.join(f'{value:.4g}' for value in samples)}")


def _tuning(console: Console, data: Row) -> None:
    """Print the points of a tuning, a line each, as they were first measured."""
    if data["kind"] != "tuning":
        return
    console.print("\n[bold]points[/bold]")
    for row in data["points"]:
        told = f"{row['failure']}: {row['reason']}" if row["failure"] else f"{row['seconds']:.4g} s"
        _say(console, f"{sizes_text(row['point'])}: {told} ({len(row['samples'])} samples)")


def _run(console: Console, data: Row) -> None:
    """Print the steps of a run and the calls of its ledger, a line each; `--json` has all texts."""
    for step in data.get("trace", {}).get("steps", ()):
        reason = f": {step['reason']}" if step["reason"] else ""
        _say(console, f"step {step['number']}: {step['agent']}: {step['outcome']}{reason}")
    for call in data.get("ledger", ())[1:]:
        reply = call["reply"]
        said = f"{len(reply['text']):,} characters" if reply else call["error"]
        model = f" by {reply['model']}" if reply else ""
        _say(console, f"call {call['number']}: {call['request']['purpose']}: {said}{model}")


def _texts(console: Console, data: Row) -> None:
    """Print the full texts of kernels, sketches, signatures, modules and files."""
    for owner in (data, data.get("kernel"), data.get("task")):
        if not isinstance(owner, dict):
            continue
        named = [(name, owner.get(name)) for name in _TEXTS]
        named += [(s["name"], s["text"]) for s in owner.get("spellings", ())]
        named += [*owner.get("modules", {}).items(), *owner.get("files", {}).items()]
        for name, text in named:
            if text:
                of = f" of {owner['name']}" if name in _TEXTS and "name" in owner else ""
                console.print(f"\n[bold]{escape(name)}{escape(of)}[/bold]", soft_wrap=True)
                console.print(escape(text.rstrip()), soft_wrap=True)
