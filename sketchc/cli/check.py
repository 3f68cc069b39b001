"""`sketchc check` (and `lint`): every diagnostic and every proof of all files given."""

from __future__ import annotations

import os
import sys

import click

from sketchc import records as attrs
from sketchc.cli import options
from sketchc.diagnostics import Diagnostic, DiagnosticError, Severity, UsageError, has_errors
from sketchc.reading import read, sketch_files
from sketchc.reporting import SketchReport, distinct, render_proofs, render_text
from sketchc.source import Source

#: From this many files on, several processes share the work.
_PARALLEL_FROM = 16


@attrs.frozen
class Request:
    """What is asked of every file."""

    target: str | None = None
    execute: bool = False
    constants: tuple[tuple[str, options.Scalar], ...] = ()


@attrs.frozen
class FileReport:
    """What is known of one file; `unreadable` says why it could not be opened."""

    source: Source
    diagnostics: tuple[Diagnostic, ...] = ()
    sketches: tuple[SketchReport, ...] = ()
    unreadable: str = ""


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
@click.option("--execute", is_flag=True, help="Also run each sketch in the interpreter (R6b).")
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="Bind a constexpr or a param."
)
@click.option("--quiet", "-q", is_flag=True, help="Diagnostics only: no proofs, no summary.")
def check(
    files: tuple[str, ...],
    target: str | None,
    form: str,
    execute: bool,
    settings: tuple[str, ...],
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
    """
    constants = tuple(options.parse_assignments(settings, "--set").items())
    if target is not None:
        _check_target(target)
    paths = list(dict.fromkeys(path for file in files for path in sketch_files(file)))
    reports = check_files(paths, Request(target, execute, constants))
    _check_settings(reports, constants)
    unreadable = [report for report in reports if report.unreadable]
    if form == "text":
        _print_text(reports, quiet)
    else:
        _print_machine(reports, form)
    for report in unreadable:
        click.echo(f"error: {report.unreadable}", err=True)
    if unreadable:
        return 2
    return 1 if any(has_errors(report.diagnostics) for report in reports) else 0


def _check_target(target: str) -> None:
    from sketchc.lowering.registry import TARGETS

    if target not in TARGETS:
        message = f"unknown target {target!r}; known: {', '.join(TARGETS)}"
        raise UsageError(message)


def _check_settings(
    reports: list[FileReport], constants: tuple[tuple[str, options.Scalar], ...]
) -> None:
    """Raises `UsageError` for a `--set` name that no sketch declares."""
    if not constants:
        return
    from sketchc.checker.elaborate import bindable
    from sketchc.parser import parse

    known: set[str] = set()
    for report in reports:
        tree, _ = parse(report.source) if report.source.text else (None, [])
        if tree is None:
            return  # What does not parse may well declare the name.
        for sketch in tree.sketches:
            known |= set(bindable(sketch))
    for name, _ in constants:
        if name not in known:
            listed = ", ".join(sorted(known)) or "none"
            message = f"--set {name}: no sketch has such a constexpr or param; there are: {listed}"
            raise UsageError(message)


# ---------------------------------------------------------------- the work


def check_files(paths: list[str], request: Request) -> list[FileReport]:
    """A report per path, in order; many files are shared out over the processors."""
    workers = min(len(os.sched_getaffinity(0)), len(paths) // (_PARALLEL_FROM // 2))
    if workers < 2 or "-" in paths or not hasattr(os, "fork"):
        return [check_file(path, request) for path in paths]
    import multiprocessing
    from functools import partial

    import sketchc.checker.api  # noqa: F401 - imported once, before the processes part
    from sketchc.parser import tables

    tables()
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        size = max(1, len(paths) // (workers * 8))
        return pool.map(partial(check_file, request=request), paths, chunksize=size)


def check_file(path: str, request: Request) -> FileReport:
    """Check one file; never raises for a user's mistake."""
    from sketchc.checker.api import check as check_source

    try:
        source = read(path)
    except UsageError as error:
        return FileReport(Source(path, ""), unreadable=str(error))
    except DiagnosticError as error:
        return FileReport(Source(path, ""), error.diagnostics)
    constants = dict(request.constants)
    result = check_source(source, constants)
    diagnostics = list(result.diagnostics)
    if request.target is not None and result.tree is not None and result.ok:
        from sketchc.lowering.passes import build_plan

        for sketch in result.tree.sketches:
            try:
                diagnostics += build_plan(sketch, request.target, None, constants).diagnostics
            except DiagnosticError as error:
                diagnostics += error.diagnostics
    if request.execute and result.ok:
        from sketchc.selfcheck import self_check

        diagnostics += self_check(source, constants)
    sketches = tuple(
        SketchReport(source.name, checked.sketch.name, tuple(distinct(checked.proofs)))
        for checked in result.sketches
    )
    return FileReport(source, tuple(dict.fromkeys(diagnostics)), sketches)


# ---------------------------------------------------------------- the report


def _print_text(reports: list[FileReport], quiet: bool) -> None:
    colour = sys.stdout.isatty()
    parts = []
    for report in reports:
        parts.append(render_text(report.diagnostics, [report.source], colour))
        if not quiet:
            for sketch in report.sketches:
                title = f"{report.source.name}: {sketch.name}"
                parts.append(render_proofs(title, sketch.proofs, colour) + "\n")
    if not quiet:
        parts.append(summary(reports) + "\n")
    click.echo("".join(parts), nl=False)


def summary(reports: list[FileReport]) -> str:
    """One line: files, errors, warnings, and claims by tier."""
    found = [diagnostic for report in reports for diagnostic in report.diagnostics]
    errors = sum(diagnostic.severity is Severity.ERROR for diagnostic in found)
    warnings = sum(diagnostic.severity is Severity.WARNING for diagnostic in found)
    tiers: dict[str, int] = {}
    for report in reports:
        for sketch in report.sketches:
            for proof in sketch.proofs:
                tiers[proof.tier.value] = tiers.get(proof.tier.value, 0) + 1
    claims = ", ".join(f"{count} {tier}" for tier, count in tiers.items()) or "none"
    counts = ", ".join(
        f"{count} {word}{'' if count == 1 else 's'}"
        for count, word in ((len(reports), "file"), (errors, "error"), (warnings, "warning"))
    )
    return f"{counts}; claims: {claims}"


def _print_machine(reports: list[FileReport], form: str) -> None:
    from sketchc import reporting_machine

    diagnostics = [diagnostic for report in reports for diagnostic in report.diagnostics]
    sketches = [sketch for report in reports for sketch in report.sketches]
    if form == "json":
        text = reporting_machine.render_json(diagnostics, sketches, len(reports))
    else:
        names = [report.source.name for report in reports]
        text = reporting_machine.render_sarif(diagnostics, sketches, names)
    click.echo(text, nl=False)
