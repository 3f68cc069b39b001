"""`sketchc check` (and `lint`): every diagnostic and every proof of all files given."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import click

from sketchc.api import FileReport, Names, Request, check_file
from sketchc.base.diagnostics import Severity, has_errors, refuse
from sketchc.base.types import Scalar
from sketchc.cli import options
from sketchc.cli.consoles import coloured
from sketchc.parsing.parser import sketch_files
from sketchc.reporting.text import render_proofs, render_text

#: From this many files on, several processes share the work.
_PARALLEL_FROM = 16


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--target", "-t", help="Also plan for this target and report what it refuses.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "sarif"]),
    default="text",
    show_default=True,
    help="How to print the report.",
)
@click.option(
    "--execute", is_flag=True, help="Interpret at more sizes, and vary fixed constants too (R6b)."
)
@click.option(
    "--static",
    is_flag=True,
    help="No runs at several tile sizes (R6b): interpret only what no proof decides.",
)
@options.set_option("Bind a constexpr or a param.")
@options.symbols_option("Sizes for which a proof is enough, where there is none for all.")
@options.allow_unproved_option
@click.option(
    "--fix", "mend", is_flag=True, help="Carry out the safe fix-its, then report the rest."
)
@click.option(
    "--unsafe-fixes",
    "unsafe",
    is_flag=True,
    help="With --fix: also those that guess, or that change results; where there is just one.",
)
@click.option("--diff", is_flag=True, help="With --fix: show the changes, write nothing.")
@click.option(
    "--ignore", multiple=True, metavar="CODE", help="Leave out warnings of this code (SK06...)."
)
@click.option("--quiet", "-q", is_flag=True, help="Diagnostics only: no proofs, no summary.")
@options.verify_ir_option
def check(
    files: tuple[str, ...],
    target: str | None,
    form: str,
    execute: bool,
    static: bool,
    settings: tuple[str, ...],
    symbols: tuple[str, ...],
    allow_unproved: bool,
    mend: bool,
    unsafe: bool,
    diff: bool,
    ignore: tuple[str, ...],
    quiet: bool,
) -> int:
    """Report every diagnostic and every proof of sketches.

    A directory stands for all *.sketch files below it; - is standard input. The exit status is 0
    when all is well (warnings included), 1 when there are errors, 2 for a file that cannot be read.

    \b
    Examples:
      sketchc check examples/rms.sketch
      sketchc check examples --target cpp --format sarif > report.sarif
      sketchc check examples/softmax.sketch --execute
      sketchc check my.sketch --target triton_cuda --fix
    """
    constants = tuple(options.parse_assignments(settings, "--set").items())
    shapes = tuple(options.parse_sizes(symbols).items())
    options.known_target(target)
    paths = list(dict.fromkeys(path for file in files for path in sketch_files(file)))
    request = Request(target, execute, constants, allow_unproved, _codes(ignore), static, shapes)
    if (diff or unsafe) and not mend:
        option = "--diff shows" if diff else "--unsafe-fixes widens"
        refuse(f"{option} what --fix would do: give both")
    if mend:
        from sketchc.cli.check_fix import mend_files

        mend_files(paths, request, write=not diff, unsafe=unsafe)
        if diff:
            return 0
    reports = map_files(partial(check_file, request=request), paths)
    _check_names([report.names for report in reports], request)
    if form == "text":
        _print_text(reports, quiet)
    else:
        _print_machine(reports, form)
    unreadable = [report.unreadable for report in reports if report.unreadable]
    for message in unreadable:
        click.echo(f"error: {message}", err=True)
    return 2 if unreadable else int(any(has_errors(report.diagnostics) for report in reports))


def _codes(ignored: tuple[str, ...]) -> frozenset[str]:
    """The codes to leave out; raises `UsageError` for one that does not exist."""
    from sketchc.base.explain import codes

    wanted = frozenset(code.strip() for item in ignored for code in item.split(","))
    unknown = sorted(wanted - frozenset(codes()))
    if unknown:
        refuse(f"--ignore {unknown[0]}: there is no such code")
    return wanted


def _check_names(declared: list[Names | None], request: Request) -> None:
    """Raises `UsageError` for names of `--set` and `--symbols` that no sketch declares, and for
    sizes that are not those of all symbols of any sketch."""
    known = [names for names in declared if names is not None]
    if len(known) < len(declared):
        return  # What does not parse may well declare the name.
    bindable = frozenset[str]().union(*(names.bindable for names in known))
    _refuse_unknown("--set", "constexpr or param", request.constants, bindable)
    sketches = [symbols for names in known for symbols in names.symbols]
    _refuse_unknown("--symbols", "symbol", request.shapes, frozenset[str]().union(*sketches))
    given = {name for name, _ in request.shapes}
    if given and not any(symbols <= given for symbols in sketches):
        missing = min((sorted(symbols - given) for symbols in sketches), key=len)
        refuse(f"--symbols: a run takes sizes of all symbols; give {', '.join(missing)} too")


def _refuse_unknown(
    option: str,
    what: str,
    given: tuple[tuple[str, Scalar], ...],
    known: frozenset[str],
) -> None:
    for name, _ in given:
        if name not in known:
            listed = ", ".join(sorted(known)) or "none"
            refuse(f"{option} {name}: no sketch has such a {what}; there are: {listed}")


# ---------------------------------------------------------------- the work

Result = TypeVar("Result")


def map_files(function: Callable[[str], Result], paths: list[str]) -> list[Result]:
    """`function` of every path, in order; many files are shared out over the processors."""
    workers = min(len(os.sched_getaffinity(0)), len(paths) // (_PARALLEL_FROM // 2))
    if workers < 2 or "-" in paths or not hasattr(os, "fork"):
        return [function(path) for path in paths]
    import multiprocessing

    from sketchc.parsing.parser import tables

    tables()
    function(paths[0])  # imports what checking needs, once, before the processes part
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        size = max(1, len(paths) // (workers * 8))
        return pool.map(function, paths, chunksize=size)


# ---------------------------------------------------------------- the report


def _print_text(reports: list[FileReport], quiet: bool) -> None:
    """Print the diagnostics and, unless `quiet`, the proofs and a summary."""
    colour = coloured(sys.stdout)
    parts = []
    for report in reports:
        parts.append(render_text(report.diagnostics, [report.source], colour))
        for sketch in () if quiet else report.sketches:
            title = f"{report.source.name}: {sketch.name}"
            parts.append(render_proofs(title, sketch.proofs, colour) + "\n")
    click.echo("".join(parts), nl=False)
    read = [report for report in reports if not report.unreadable]
    if read and not quiet:
        click.echo(_summary(read))


def _summary(reports: list[FileReport]) -> str:
    """One line: files, errors, warnings, and claims by tier."""
    severities = Counter(found.severity for report in reports for found in report.diagnostics)
    claims = options.by_tier(p for report in reports for s in report.sketches for p in s.proofs)
    counted = (
        (len(reports), "file"),
        (severities[Severity.ERROR], "error"),
        (severities[Severity.WARNING], "warning"),
    )
    counts = ", ".join(f"{count} {word}{'' if count == 1 else 's'}" for count, word in counted)
    return f"{counts}; claims: {claims or 'none'}"


def _print_machine(reports: list[FileReport], form: str) -> None:
    from sketchc.reporting import machine

    diagnostics = [diagnostic for report in reports for diagnostic in report.diagnostics]
    sketches = [sketch for report in reports for sketch in report.sketches]
    if form == "json":
        read = sum(not report.unreadable for report in reports)
        text = machine.render_json(diagnostics, sketches, read)
    else:
        names = [report.source.name for report in reports]
        text = machine.render_sarif(diagnostics, sketches, names)
    click.echo(text, nl=False)
