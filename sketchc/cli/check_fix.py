"""`sketchc check --fix`: carry out fix-its until nothing is left that has one."""

from __future__ import annotations

import difflib

import click

from sketchc import fixes
from sketchc import records as attrs
from sketchc.cli.check import Request, check_text
from sketchc.diagnostics import Diagnostic, DiagnosticError, UsageError
from sketchc.reading import read
from sketchc.source import Source

#: Fixes may uncover further findings; each round carries out all that do not touch each other.
_ROUNDS = 20


@attrs.frozen
class Mended:
    """A text after its fix-its, and the findings that they answered, in the order of mending."""

    text: str
    answered: tuple[Diagnostic, ...]


def mend_files(paths: list[str], request: Request, write: bool) -> None:
    """Mend each file in place (standard input: to standard output), or print the differences.

    Of a finding with several fixes the first is taken. Files that cannot be read are left to the
    report that follows.
    """
    for path in paths:
        try:
            source = read(path)
        except (UsageError, DiagnosticError):
            continue
        mended = mend(source, request)
        if not write:
            click.echo(_difference(source, mended.text), nl=False)
            continue
        if path == "-":
            click.echo(mended.text, nl=False)
        elif mended.text != source.text:
            with open(path, "w", encoding="utf-8", newline="") as file:
                file.write(mended.text)
        if mended.answered:
            click.echo(f"{source.name}: {_summary(mended)}", err=True)


def mend(source: Source, request: Request) -> Mended:
    """Carry out fix-its; a round that brings a new kind of error is undone, and ends it."""
    text = source.text
    answered: list[Diagnostic] = []
    for _ in range(_ROUNDS):
        report = check_text(Source(source.name, text), request)
        offered = [found for found in report.diagnostics if found.fixes]
        kept = fixes.combine(found.fixes[0] for found in offered)
        if not kept:
            break
        changed = fixes.apply_edits(text, (edit for fix in kept for edit in fix.edits))
        after = check_text(Source(source.name, changed), request)
        if changed == text or _errors(after.diagnostics) - _errors(report.diagnostics):
            break
        text = changed
        answered += [found for found in offered if found.fixes[0] in kept]
    return Mended(text, tuple(answered))


def _errors(diagnostics: tuple[Diagnostic, ...]) -> set[str]:
    """Codes of syntax errors: what a fix must never bring in."""
    return {found.code for found in diagnostics if found.code.startswith("SK01")}


def _summary(mended: Mended) -> str:
    counts: dict[str, int] = {}
    for found in mended.answered:
        counts[found.code] = counts.get(found.code, 0) + 1
    total = len(mended.answered)
    listed = ", ".join(f"{code} x {n}" if n > 1 else code for code, n in counts.items())
    return f"{total} finding{'' if total == 1 else 's'} mended ({listed})"


def _difference(source: Source, text: str) -> str:
    lines = difflib.unified_diff(
        source.text.splitlines(keepends=True),
        text.splitlines(keepends=True),
        source.name,
        f"{source.name} (mended)",
    )
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)
