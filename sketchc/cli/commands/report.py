"""`sketchc report`: one self-contained HTML page of a run, or of what was verified and measured."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import click

from sketchc.base.diagnostics import refuse
from sketchc.cli import options

if TYPE_CHECKING:
    from sketchc.runtime.report.content import Page

_NAME = "report.html"
_ID = re.compile(r"[0-9a-f]{4,64}")


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option(
    "--output", "-o", metavar="FILE", help="Default: report.html, in the run's folder or here."
)
@click.option("--sketch", metavar="X.sketch", help="Show it beside its code; for JSON files.")
@click.option(
    "--store",
    metavar="FILE",
    help="Where ids are looked up (files and folders need none); default: the user's store.",
)
@click.option("--open", "show", is_flag=True, help="Show the page in a browser.")
def report(
    runs: tuple[str, ...], output: str | None, sketch: str | None, store: str | None, show: bool
) -> int:
    """Write one self-contained HTML page: verdicts, failures with their evidence, speed, the sketch
    beside its code, and what the agents did.

    RUN is a folder that `sketchc gen` or `sketchc suite run` left, a file with what
    `sketchc verify --json` or `sketchc bench --json` printed, or an id of the store; several files
    or ids are joined on one page. The page loads nothing and can be sent to anybody.

    Exit status: 0 written, 1 for a --sketch that does not hold, 2 misuse.

    \b
    Examples:
      sketchc report out
      sketchc report verdict.json times.json --sketch examples/rms.sketch -o rms.html
      sketchc report 3f2a
    """
    paths = [Path(run) for run in runs]
    folder = next((path for path in paths if path.is_dir()), None)
    if all(_is_id(run, store) for run in runs):
        page = _of_ids(runs, store, sketch)
        folder, paths = None, []
    elif folder is not None:
        page = _of_folder(folder, paths, sketch)
    else:
        _no_ids(runs, store)
        page = _of_files(paths, sketch)
    from sketchc.runtime.report.page import render

    place = Path(output) if output else (folder or Path()) / _NAME
    _write(place, render(page), paths)
    click.echo(str(place))
    if show:
        _show(place)
    return 0


def _is_id(run: str, store: str | None) -> bool:
    """Whether `run` can only be an id of the store: no such file exists, and it is hexadecimal or a
    store is named (whose lookup then reports an unknown id)."""
    return (store is not None or _ID.fullmatch(run.lower()) is not None) and not Path(run).exists()


def _no_ids(runs: Sequence[str], store: str | None) -> None:
    """Raises `UsageError` for ids of a named `store` among files."""
    ids = [run for run in runs if _is_id(run, store)]
    if ids and store is not None:
        refuse(f"{ids[0]} is no file here, and ids of the store have a page of their own")


def _of_ids(identities: Sequence[str], store: str | None, sketch: str | None) -> Page:
    from sketchc.cli.report_store import page_of_ids

    if sketch is not None:
        refuse("--sketch goes with JSON files; the store holds the sketch of each kernel")
    return page_of_ids(options.store_path(store), identities)


def _of_folder(folder: Path, paths: Sequence[Path], sketch: str | None) -> Page:
    from sketchc.agents.run.page import page_of_run
    from sketchc.agents.suites.page import is_suite, page_of_suite

    if len(paths) > 1:
        refuse(f"{folder} is a folder: a run has a page of its own; give it alone")
    if sketch is not None:
        refuse("--sketch goes with JSON files; the folder of a run holds its own sketch")
    return page_of_suite(folder) if is_suite(folder) else page_of_run(folder)


def _of_files(paths: Sequence[Path], sketch: str | None) -> Page:

    from sketchc.cli.report_store import code_of_sketch, code_of_texts, texts_of_page
    from sketchc.runtime.report.files import page_of, results_in

    results, notes = results_in(paths, sketch or "")
    page = page_of(results, notes=notes)
    if sketch is not None:
        return attrs.evolve(page, code=code_of_sketch(sketch, page))
    texts = texts_of_page(page)
    return page if texts is None else attrs.evolve(page, code=code_of_texts(texts))


def _write(place: Path, text: str, inputs: Sequence[Path]) -> None:
    """Write the page. Raises `UsageError` if it cannot be written, or would replace an input."""
    if any(place.resolve() == path.resolve() for path in inputs):
        refuse(f"{place} is what the report is made of; choose another file with -o")
    if place.is_dir():
        refuse(f"{place} is a folder; name a file, as in -o {place / _NAME}")
    options.write_output(text, str(place))


def _show(place: Path) -> None:
    """Open the page in the user's browser; where there is none, say so."""
    import webbrowser

    if not webbrowser.open(place.resolve().as_uri()):
        click.echo("no browser was found here; open the file yourself", err=True)
