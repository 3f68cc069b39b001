"""Source texts and spans: where in a sketch something stands."""

from __future__ import annotations

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
        return Span(
            self.source,
            self.start,
            other.end,
            self.line,
            self.column,
            other.end_line,
            other.end_column,
        )


#: The span of what has no place in a source (made by a pass, or by the API).
NOWHERE = Span("<none>", 0, 0, 1, 1, 1, 1)
