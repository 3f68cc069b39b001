"""Diagnostics as frozen data: code, severity, message, spans, notes and machine-applicable fixes,
with the source texts that they speak of.

`sketchc.reporting` renders them (text, JSON, SARIF); `base.explain` finds the page of a code.
Analyses collect many diagnostics and stop at the end of their stage; a stage that cannot go on
raises `DiagnosticError`, which carries them. `InternalError` is for compiler bugs alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import NoReturn, TypedDict, Unpack

from sketchc.base import records


@records.frozen
class Source:
    """One sketch file: the name shown to the user and its text."""

    name: str
    text: str = records.field(repr=False)

    def line(self, number: int) -> str:
        """The text of line `number` (1-based), without its newline; "" past the end."""
        lines = self.text.split("\n")
        return lines[number - 1].rstrip("\r") if 0 < number <= len(lines) else ""

    @property
    def start(self) -> Span:
        """The empty span at the beginning of the source."""
        return Span(self.name, 0, 0, 1, 1, 1, 1)


@records.frozen
class Span:
    """A region of a source: character offsets and 1-based lines and columns.

    `end_*` is exclusive. The name of the source is kept so that a diagnostic stands alone.
    """

    source: str
    start: int
    end: int
    line: int
    column: int
    end_line: int
    end_column: int

    def to(self, other: Span) -> Span:
        """The smallest span that covers this one through `other`."""
        end, line, column = other.end, other.end_line, other.end_column
        return Span(self.source, self.start, end, self.line, self.column, line, column)

    @property
    def before(self) -> Span:
        """The empty span before this one, for insertions."""
        return self.first(0)

    @property
    def after(self) -> Span:
        """The empty span behind this one, for insertions."""
        return records.evolve(self, start=self.end, line=self.end_line, column=self.end_column)

    def first(self, size: int) -> Span:
        """The first `size` characters of the span, which lie on one line."""
        end, column = self.start + size, self.column + size
        return records.evolve(self, end=end, end_line=self.line, end_column=column)


#: The span of what has no place in a source (made by a pass, or by the API).
NOWHERE = Span("<none>", 0, 0, 1, 1, 1, 1)


@records.frozen
class Placed:
    """Base class of nodes with a place in a source; `span` does not take part in equality."""

    span: Span = records.field(default=NOWHERE, eq=False, repr=False, kw_only=True)


class Severity(Enum):
    """How bad a finding is: errors stop the stage."""

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


class More(TypedDict, total=False):
    """The optional fields of a `Diagnostic`, as keyword arguments of `error` and `warning`."""

    labels: tuple[Label, ...]
    notes: tuple[str, ...]
    help: str
    fixes: tuple[Fix, ...]


def error(span: Span, code: str, message: str, label: str = "", **more: Unpack[More]) -> Diagnostic:
    """An error at `span`."""
    return Diagnostic(code, Severity.ERROR, message, span, label, **more)


def warning(
    span: Span, code: str, message: str, label: str = "", **more: Unpack[More]
) -> Diagnostic:
    """A warning at `span`."""
    return Diagnostic(code, Severity.WARNING, message, span, label, **more)


def once(
    found: Iterable[tuple[str, Diagnostic]], known: Iterable[Diagnostic] = ()
) -> tuple[Diagnostic, ...]:
    """The diagnostics of pairs (setting, diagnostic) without repetitions: each as at its first
    setting, with a note that lists all its settings. Those among the `known` are left out."""
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
    """The key under which `once` takes two findings as one: numbers in the message do not count."""
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


class MemoryLimitError(UsageError):
    """What was asked for is no mistake, but takes more memory than it may."""


def refuse(text: str, cause: BaseException | None = None) -> NoReturn:
    """Raises `UsageError(text)` from `cause`."""
    raise UsageError(text) from cause


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """Raises `UsageError` for an `OSError` inside: `what` failed, and the system's reason."""
    try:
        yield
    except OSError as error:
        refuse(f"{what}: {error.strerror or error}", error)


def has_errors(diagnostics: Iterable[Diagnostic]) -> bool:
    """Whether an error is among the findings."""
    return any(d.severity is Severity.ERROR for d in diagnostics)


#: Between two statements of one line.
_SEPARATOR = re.compile(r"[ \t]*;[ \t]*")


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """`text` with edits carried out, given in any order."""
    parts: list[str] = []
    position = 0
    for edit in sorted(edits, key=lambda edit: (edit.span.start, edit.span.end)):
        if edit.span.start < position or edit.span.end > len(text):
            raise InternalError("edits of one fix overlap or lie outside the text")
        start, end = (edit.span.start, edit.span.end)
        if not edit.replacement:
            start, end = _removed(text, start, end)
        parts += [text[position : max(start, position)], edit.replacement]
        position = end
    return "".join([*parts, text[position:]])


def _removed(text: str, start: int, end: int) -> tuple[int, int]:
    """Start and end of what to cut so that the removal of `text[start:end]` leaves no blank line
    behind, nor the `;` between the removed statement and its neighbour."""
    before = text.rfind("\n", 0, start) + 1
    if start < end and (follows := _SEPARATOR.match(text, end)):
        end = follows.end()
    elif start < end and text[before:start].rstrip().endswith(";"):
        start = text.rindex(";", before, start)
    after = text.find("\n", end)
    last = len(text) if after < 0 else after + 1
    if start < end and not text[before:start].strip() and not text[end:last].strip():
        return before, last
    return start, end


def compatible(fixes: Iterable[Fix]) -> tuple[Fix, ...]:
    """The fixes, in order, whose edits touch nothing that an earlier fix changes."""
    taken: list[tuple[int, int]] = []
    kept: list[Fix] = []
    for fix in fixes:
        spans = [(edit.span.start, edit.span.end) for edit in fix.edits]
        if all(_apart(span, other) for span in spans for other in taken):
            taken += spans
            kept.append(fix)
    return tuple(kept)


def _apart(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return (one[1] <= other[0] and one != other) or (other[1] <= one[0] and one != other)
