"""`sketchc store`: what was verified and measured, with all its evidence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from sketchc.base.diagnostics import refuse
from sketchc.cli import options
from sketchc.cli.options import existing_store_option
from sketchc.runtime.store import exporting, reading
from sketchc.runtime.store.database import collect, open_store, read_store, transaction

#: How many rows a list for people has at most, where nobody says otherwise.
ROWS = 50


@click.group()
def store() -> None:
    """Keep and show what was found: tasks, sketches, kernels, verdicts, measurements, runs, builds.

    `sketchc verify`, `bench` and `gen` record into one file, by default
    ~/.local/share/sketchc/store.sqlite (or $SKETCHC_STORE); `sketchc.compile` keeps the modules
    that it made there, which are its builds. Ids may be shortened.

    \b
    Examples:
      sketchc store list verdicts --task rms
      sketchc store show 3f2a
      sketchc store best --target cpp
      sketchc store export --format jsonl -o store.jsonl
    """


_task = click.option("--task", metavar="TASK", help="Of this task: its name, file or id.")
_target = click.option("--target", "-t", help="For this target.")


@store.command("list")
@click.argument("kind", type=click.Choice(reading.KINDS), required=False)
@_task
@_target
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"The newest N. Default: {ROWS}; all with --json.",
)
@existing_store_option
@options.json_option
def list_(
    kind: str | None,
    task: str | None,
    target: str | None,
    limit: int | None,
    store: Path,
    as_json: bool,
) -> int:
    """List one kind of thing, newest first; without a kind, how many there are of each.

    \b
    Example:
      sketchc store list measurements --task softmax --target cpp
    """

    options.known_target(target)
    with read_store(store) as connection:
        if kind is None:
            found = reading.counts(connection, task, target)
            _print_json({"store": str(store), **found}) if as_json else _show_counts(store, found)
            return 0
        if as_json:
            _print_json(reading.list_rows(connection, kind, task, target, limit))
            return 0
        wanted = limit or ROWS
        rows = reading.list_rows(connection, kind, task, target, wanted + 1)
    from sketchc.cli import store_tables

    store_tables.show_list(kind, rows[:wanted])
    if len(rows) > wanted:
        click.echo(f"these are the newest {wanted}; there are more: --limit N")
    return 0


@store.command()
@click.argument("id", metavar="ID")
@existing_store_option
@options.json_option
def show(id: str, store: Path, as_json: bool) -> int:
    """Show one thing with all its evidence: texts, sizes, seeds, versions, raw samples.

    \b
    Example:
      sketchc store show 3f2a --json
    """

    with read_store(store) as connection:
        data = reading.show(connection, id)
    if as_json:
        _print_json(data)
        return 0
    from sketchc.cli import store_tables

    store_tables.show_one(data)
    return 0


@store.command()
@_task
@_target
@existing_store_option
@options.json_option
def best(task: str | None, target: str | None, store: Path, as_json: bool) -> int:
    """Show the fastest verified kernel of each task, target, device, sizes and precision class.

    Verified: a verdict of the kernel for the task passed, and none failed through the kernel's
    fault. A measurement with wrong outputs, or of an unbelievable time, never counts. Exit status:
    1 where there is none.

    \b
    Example:
      sketchc store best --task rms --target cpp
    """

    options.known_target(target)
    with read_store(store) as connection:
        rows = reading.best_rows(connection, task, target)
    if as_json:
        _print_json(rows)
    elif rows:
        from sketchc.cli import store_tables

        store_tables.show_best(rows)
    else:
        click.echo("no kernel was both verified and measured; see `sketchc bench`", err=True)
    return 0 if rows else 1


@store.command()
@click.option(
    "--format",
    "form",
    type=click.Choice(["json", "jsonl", "csv"]),
    default="json",
    show_default=True,
    help="json and jsonl hold everything; csv a line for each verdict and measurement.",
)
@click.option("--output", "-o", metavar="FILE", help="Default: standard output.")
@existing_store_option
def export(form: str, output: str | None, store: Path) -> int:
    """Write the store as text: complete, and readable without sketchc.

    \b
    Example:
      sketchc store export --format jsonl -o store.jsonl
    """

    with read_store(store) as connection:
        match form:
            case "json":
                text = exporting.export_json(connection)
            case "jsonl":
                text = "".join(exporting.export_jsonl(connection))
            case _:
                text = "".join(exporting.export_csv(connection))
    options.write_output(text, output)
    return 0


@store.command("import")
@click.argument("file")
@existing_store_option
def import_(file: str, store: Path) -> int:
    """Add what an export (json or jsonl) of another store holds; what is there stays as it is.

    \b
    Example:
      sketchc store import from-the-gpu-machine.jsonl
    """

    try:
        text = Path(file).read_text("utf-8")
    except UnicodeDecodeError as error:
        refuse(f"{file} is not UTF-8 text, so it is no export of a store", error)
    except OSError as error:
        refuse(f"cannot read {file}: {error.strerror}", error)
    rows = exporting.parse_export(text, file)  # before a store is made for what is no export
    with open_store(store) as connection, transaction(connection):
        new, known = exporting.import_rows(connection, rows, file)
    click.echo(f"{store}: {new:,} rows added, {known:,} were there")
    return 0


@store.command()
@click.option(
    "--keep",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    metavar="N",
    help="The newest N failures of each task and target stay.",
)
@click.option(
    "--older-than",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    metavar="DAYS",
    help="Younger failures stay.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@existing_store_option
@options.json_option
def gc(keep: int, older_than: float, dry_run: bool, store: Path, as_json: bool) -> int:
    """Drop old failures and what nothing refers to, and give the space back.

    What passed stays, and so does a failure that speaks against a kernel which passed elsewhere.

    \b
    Example:
      sketchc store gc --older-than 90 --dry-run
    """

    if not store.exists():
        refuse(f"there is no store at {store}")
    with open_store(store) as connection:
        found = collect(connection, keep, older_than, dry_run)
    if as_json:
        _print_json({"rows": dict(found.rows), "bytes": found.bytes, "dry_run": dry_run})
        return 0
    went = ", ".join(f"{count:,} {table}" for table, count in found.rows.items() if count)
    verb = "would go" if dry_run else "dropped"
    freed = "" if dry_run else f"; the file is {found.bytes:,} bytes smaller"
    click.echo(f"{store}: {verb}: {went or 'nothing'}{freed}")
    return 0


def _show_counts(path: Path, found: dict[str, int]) -> None:
    click.echo(f"{path}")
    for kind, count in found.items():
        click.echo(f"{count:8,} {kind}")
    click.echo("list one kind with: sketchc store list KIND")


def _print_json(data: Any) -> None:
    click.echo(json.dumps(data, indent=2, ensure_ascii=False))
