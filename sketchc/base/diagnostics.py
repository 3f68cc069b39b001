"""Diagnostics as frozen data: code, severity, message, spans, notes and machine-applicable fixes.

`sketchc.reporting` renders them (text, JSON, SARIF); `base.explain` finds the page of a code.
Analyses collect many diagnostics and stop at the end of their stage; a stage that cannot go on
raises `DiagnosticError`, which carries them. `InternalError` is for compiler bugs alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum

from sketchc.base import records
from sketchc.base.source import Span


class Severity(Enum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@records.frozen
class Label:
    """A secondary span with its text."""

    span: Span
    text: str


@records.frozen
class Edit:
    """Replace the text of `span` by `replacement` (empty span: insert)."""

    span: Span
    replacement: str


@records.frozen
class Fix:
    """A repair: a title and the edits that carry it out.

    `safe`: it may be carried out unasked. The results of a sketch that has a meaning stay the same
    bit by bit, and what has none can be read in no other way. All others are guesses, or change
    what is computed, and are the author's to take.
    """

    title: str
    edits: tuple[Edit, ...]
    safe: bool = False


@records.frozen
class Diagnostic:
    """One finding.

    `message` says what is wrong, `label` (shown at the carets) says it in a few words, `notes` say
    why, and `help` says how to mend it.
    """

    code: str
    severity: Severity
    message: str
    span: Span
    label: str = ""
    labels: tuple[Label, ...] = ()
    notes: tuple[str, ...] = ()
    help: str = ""
    fixes: tuple[Fix, ...] = ()


def once(
    found: Iterable[tuple[str, Diagnostic]], known: Iterable[Diagnostic] = ()
) -> tuple[Diagnostic, ...]:
    """Findings, each with the setting at which it was made, said once: as at the first setting,
    with a note of all. What is among the `known` is not said again."""
    settings: dict[object, tuple[Diagnostic, dict[str, None]]] = {}
    before = {_key(each) for each in known}
    for setting, each in found:
        if _key(each) not in before:
            settings.setdefault(_key(each), (each, {}))[1][setting] = None
    return tuple(
        records.evolve(first, notes=(*first.notes, f"with {' | '.join(where)}"))
        for first, where in settings.values()
    )


def _key(found: Diagnostic) -> tuple[object, ...]:
    """What a finding is about; the numbers of an example may differ."""
    return (found.code, found.severity, re.sub(r"\d+", "", found.message), found.span)


class DiagnosticError(Exception):
    """Raised by a stage that cannot go on; carries everything it found."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__("; ".join(f"{d.code}: {d.message}" for d in self.diagnostics))


class InternalError(Exception):
    """A bug in sketchc itself, never a user's mistake."""


class UsageError(Exception):
    """A misuse of the command line or the API (exit status 2): says what to do instead."""


def has_errors(diagnostics: Iterable[Diagnostic]) -> bool:
    return any(d.severity is Severity.ERROR for d in diagnostics)
