"""Which lines of generated code came from which lines of the sketch.

Emitters record, while they print, which statement of the sketch the current lines implement; the
code itself shows nothing of this. Takes ranges of printed lines with spans, gives a `SourceMap`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

import attrs

from sketchc.base.diagnostics import NOWHERE, Span

#: (line of the code, lines of the sketch that it carries out), both 1-based, in order. Lines that
#: belong to no statement (imports, helpers, checks of arguments) are left out.
SourceMap: TypeAlias = tuple[tuple[int, tuple[int, ...]], ...]


@attrs.frozen
class Traced:
    """A node of an emitter's own tree that knows where in the sketch it comes from. `origins` take
    no part in comparisons: nodes that differ in them alone are equal."""

    origins: tuple[Span, ...] = attrs.field(default=(), eq=False, repr=False, kw_only=True)


@attrs.define(slots=False)  # for classes with further bases
class TracedLines:
    """Lines of code that are being written, with the spans of the sketch that they implement.

    Ranges of lines nest as statements do, and an inner one ends before the one around it; a line
    belongs to the innermost range around it, which is the most specific.
    """

    lines: list[str] = attrs.field(factory=list, kw_only=True)
    _ranges: list[tuple[int, int, tuple[Span, ...]]] = attrs.field(factory=list, init=False)

    @contextmanager
    def tracing(self, *origins: Span) -> Iterator[None]:
        """Record the lines written in this context as implementing the sketch at `origins`."""
        first = len(self.lines)
        yield
        known = tuple(span for span in origins if span != NOWHERE)
        if known and len(self.lines) > first:
            self._ranges.append((first, len(self.lines), known))

    def carried_out(self, offset: int) -> dict[int, tuple[int, ...]]:
        """Lines of the sketch by line of the code, 1-based; `offset` lines stand above the code."""
        found: dict[int, tuple[int, ...]] = {}
        for first, end, origins in reversed(self._ranges):
            numbers = tuple(sorted({span.line for span in origins}))
            found.update(dict.fromkeys(range(offset + first + 1, offset + end + 1), numbers))
        return found


def digest(text: str) -> str:
    """The SHA-256 of a text, the same with and without a newline at its end."""
    return hashlib.sha256(text.rstrip("\n").encode("utf-8", "surrogatepass")).hexdigest()
