"""`sketchc check --fix`: apply the fix-its of findings in rounds, until none is left to apply."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import click

from sketchc.api import Request, check_text
from sketchc.base import diagnostics, records
from sketchc.base.diagnostics import Diagnostic, DiagnosticError, Fix, Severity, Source, UsageError
from sketchc.cli.options import difference
from sketchc.cli.options import write as replace
from sketchc.parsing.parser import parse, read

#: Fixes may uncover further findings; each round carries out all that do not touch each other.
_ROUNDS = 20


@records.frozen
class Mended:
    """A text with fix-its applied, and the findings whose fix-its they were, in that order."""

    text: str
    answered: tuple[Diagnostic, ...]


def mend_files(paths: list[str], request: Request, write: bool, unsafe: bool = False) -> None:
    """Apply fix-its to each file in place (standard input: to standard output), or print the diffs.

    Files that cannot be read are skipped: the check that follows reports them.
    """
    for path in paths:
        try:
            source = read(path)
        except (UsageError, DiagnosticError):
            continue
        mended = mend(source, request, unsafe)
        if not write:
            click.echo(difference(source, mended.text, "mended"), nl=False)
            continue
        if path == "-":
            click.echo(mended.text, nl=False)
        elif mended.text != source.text:
            replace(path, mended.text)
        if mended.answered:
            click.echo(f"{source.name}: {_summary(mended)}", err=True)


def mend(source: Source, request: Request, unsafe: bool = False) -> Mended:
    """Apply fix-its in rounds, but none that would add a syntax error; only the safe ones, unless
    `unsafe`. A finding that has several alternative fixes is left to the sketch's author."""
    text = source.text
    answered: list[Diagnostic] = []
    report = check_text(source, request)
    for _ in range(_ROUNDS):
        mendable = (found for found in report.diagnostics if len(found.fixes) == 1)
        offered = [found for found in mendable if unsafe or found.fixes[0].safe]
        kept = _parsing(text, diagnostics.compatible(found.fixes[0] for found in offered))
        changed = _applied(text, kept)
        if changed == text:
            break
        after = check_text(Source(source.name, changed), request)
        if len(kept) > 1 and not _codes(after.diagnostics) <= _codes(report.diagnostics):
            # One may copy from a tile that another removes: the first alone, then the rest anew.
            kept = kept[:1]
            changed = _applied(text, kept)
            after = check_text(Source(source.name, changed), request)
        text, report = changed, after
        answered += [found for found in offered if found.fixes[0] in kept]
    return Mended(text, tuple(answered))


def _codes(found: Iterable[Diagnostic]) -> set[str]:
    """The codes of the errors in `found`."""
    return {each.code for each in found if each.severity is Severity.ERROR}


def _applied(text: str, kept: Iterable[Fix]) -> str:
    return diagnostics.apply_edits(text, (edit for fix in kept for edit in fix.edits))


def _parsing(text: str, offered: tuple[Fix, ...]) -> tuple[Fix, ...]:
    """All fixes in `offered` if together they add no new kind of syntax error, else a subset that
    adds none: two fixes may each remove one of the only two statements of a block."""
    before = _syntax_errors(text)
    if _syntax_errors(_applied(text, offered)) <= before:
        return offered
    kept: tuple[Fix, ...] = ()
    for fix in offered:
        if _syntax_errors(_applied(text, (*kept, fix))) <= before:
            kept = (*kept, fix)
    return kept


def _syntax_errors(text: str) -> set[str]:
    """The codes of the syntax errors in `text`."""
    return _codes(parse(Source("", text))[1])


def _summary(mended: Mended) -> str:
    counts = Counter(found.code for found in mended.answered)
    total = len(mended.answered)
    listed = ", ".join(f"{code} x {n}" if n > 1 else code for code, n in counts.items())
    return f"{total} finding{'' if total == 1 else 's'} mended ({listed})"
