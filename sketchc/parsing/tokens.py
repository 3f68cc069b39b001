"""Tokens, and the regular expression that cuts them out of a text."""

from __future__ import annotations

import re
from collections.abc import Callable

from sketchc.base import records
from sketchc.base.diagnostics import Diagnostic, Span
from sketchc.parsing.tables import Tables
from sketchc.parsing.vocabulary import SECTIONS

#: Words that are keywords in one place only.
TILINGS = ("available_tiling", "avaliable_tiling")
CONTEXTUAL = SECTIONS | {"sketch", "available_tiling"}

OPERATORS = frozenset("< <= > >= == != + - * / // % = -> , ; : @ ? |".split())  # noqa: SIM905
#: Longest first; those that the language does not have are read so that they can be named.
_SYMBOLS = (
    r"\*\*=|//=|<<=|>>=|\.\.\.|\*\*|//|<<|>>|->|=>|&&|\|\||[-+*/%<>=!:]="
    r"|[-<>+*/%=,;:@?|&^~!.()\[\]{}]"
)
STATEMENT = (
    r"(?:load|store|atomic_\w+)\s*\(|\w+\s*=\s*(?:alloc|fetch)\s*\("
    r"|(?:symbols|params|let|tensors|workspace|views|constexpr|require)\s*:|sketch\s+\w+\s*\{"
)


@records.define(eq=False)
class Token:
    """One token: `type` is a terminal of the grammar, ERROR, or STOP (read no further).

    `first` marks the first of a logical line; lines and columns are 1-based. A token never spans
    lines; those that the layout adds have no text.
    """

    type: str
    text: str
    start: int
    line: int
    column: int
    first: bool = False
    problem: Diagnostic | None = None

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    def span(self, source: str) -> Span:
        size = len(self.text)
        return Span(
            source,
            self.start,
            self.start + size,
            self.line,
            self.column,
            self.line,
            self.column + size,
        )


def scanner(tables: Tables) -> Callable[[str, int], re.Match[str] | None]:
    number, string = tables.patterns["NUMBER"], tables.patterns["STRING"]
    return re.compile(
        rf"(?P<blank>[ \t\r\f]+)|(?P<newline>\n)|(?P<comment>\#[^\n]*)"
        rf"|(?P<NAME>{tables.patterns['NAME']})|(?P<NUMBER>{number})|(?P<STRING>{string})"
        rf"|(?P<operator>{_SYMBOLS})"
    ).match
