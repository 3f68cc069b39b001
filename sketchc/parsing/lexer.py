"""Text to tokens: names, numbers, operators, and NEWLINE / INDENT / DEDENT from the layout.

Takes a `Source` and the patterns of grammar/sketch.lark; returns all tokens and all comments. What
cannot be read becomes a token of type ERROR that carries its diagnostic, so that the parser goes on
behind it and one run reports every line that is wrong.

Layout: inside `{ ... }` lines are indented as in Python; brackets join lines; a section goes on
over the lines that are indented deeper than its keyword, and a line end between two of its items
separates them as `;` does; outside a sketch line ends mean nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from sketchc.base import records
from sketchc.base.diagnostics import Diagnostic, Label, Source, Span, error
from sketchc.parsing.errors import invalid_character, invalid_operator
from sketchc.parsing.syntax import PROGRAM_SECTIONS, SECTIONS, Comment

if TYPE_CHECKING:
    from sketchc.parsing.parser import Tables

#: Words that are keywords in one place only.
TILINGS = ("available_tiling", "avaliable_tiling")
_SECTIONS = SECTIONS | PROGRAM_SECTIONS
UNITS = ("sketch", "program")
CONTEXTUAL = _SECTIONS | {*UNITS, "available_tiling"}
_UNIT = re.compile(r"(?:sketch|program)\s+\w+\s*\{")

OPERATORS = frozenset("< <= > >= == != + - * / // % = -> , ; : @ ? |".split())  # noqa: SIM905
#: Longest first; those that the language does not have are read so that they can be named.
_SYMBOLS = (
    r"\*\*=|//=|<<=|>>=|\.\.\.|\*\*|//|<<|>>|->|=>|&&|\|\||[-+*/%<>=!:]="
    r"|[-<>+*/%=,;:@?|&^~!.()\[\]{}]"
)
STATEMENT = (
    r"(?:load|store|atomic_\w+)\s*\(|\w+\s*=\s*(?:alloc|fetch)\s*\("
    r"|(?:symbols|params|let|tensors|workspace|buffers|views|constexpr|require)\s*:"
    r"|(?:sketch|program)\s+\w+\s*\{"
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
        """The offset behind the token's text."""
        return self.start + len(self.text)

    def span(self, source: str) -> Span:
        """The place of the token in the source of this name."""
        end = self.column + len(self.text)
        return Span(source, self.start, self.end, self.line, self.column, self.line, end)


def _scanner(tables: Tables) -> Callable[[str, int], re.Match[str] | None]:
    number, string = tables.patterns["NUMBER"], tables.patterns["STRING"]
    return re.compile(
        rf"(?P<blank>[ \t\r\f]+)|(?P<newline>\n)|(?P<comment>\#[^\n]*)"
        rf"|(?P<NAME>{tables.patterns['NAME']})|(?P<NUMBER>{number})|(?P<STRING>{string})"
        rf"|(?P<operator>{_SYMBOLS})"
    ).match


#: Brackets and blocks nested deeper than this are refused: nobody reads them, and every pass
#: recurses over them. Blocks stay below the 20 nested loops that Python itself can compile.
MAXIMUM_BRACKETS = 64
MAXIMUM_BLOCKS = 16

_CLOSER = {"(": ")", "[": "]", "{": "}"}
_OPERAND_ENDS = frozenset(("NAME", "NUMBER", "STRING", "BOOLEAN", "None", ")", "]"))
_STATEMENT_WORDS = frozenset(("for", "if", "else", "pass", "@", "}", "{"))


def tokenize(source: Source, tables: Tables) -> tuple[list[Token], tuple[Comment, ...]]:
    """All tokens of a source, ending in `$END`, and its comments in order."""
    lexer = _Lexer(source, tables)
    lexer.run()
    return lexer.tokens, tuple(lexer.comments)


class _Lexer:
    def __init__(self, source: Source, tables: Tables) -> None:
        self.source = source
        self.text = source.text
        self.tokens: list[Token] = []
        self.comments: list[Comment] = []
        self.reserved = frozenset(
            word for word in tables.literals if word.isidentifier() and word not in CONTEXTUAL
        )
        self.scan = _scanner(tables)
        self.position = 1 if self.text.startswith("\ufeff") else 0
        self.line = 1
        self.line_start = self.position
        self.brackets: list[Token] = []
        self.opener: Token | None = None  # of an open sketch, or of a tiling block of lines
        #: indentation columns (tabs to 8, tabs as 1) of the open blocks of that sketch or tiling
        self.stack: list[tuple[int, int]] = []
        self.at_start = True  # nothing but blanks so far in this physical line
        self.first = True  # the next token is the first of a logical line
        self.stopped = False  # nested too deep
        self.section: int | None = None  # column of the section keyword that this line began with

    # ------------------------------------------------------------ the loop

    def run(self) -> None:
        """Read the whole text."""
        handlers: dict[str, Callable[[str, int], object]] = {
            "blank": lambda text, start: None,
            "newline": self._newline,
            "comment": self._comment,
            "NAME": self._name,
            "NUMBER": self._number,
            "STRING": lambda text, start: self._emit("STRING", text, start),
            "operator": self._operator,
        }
        size = len(self.text)
        while self.position < size:
            start = self.position
            match = self.scan(self.text, start)
            if match is None:
                self._unknown(start)
                continue
            self.position = match.end()
            kind = match.lastgroup or ""
            if self.at_start and kind not in ("blank", "newline", "comment"):
                self._line_begins(match.group(), start)
                if self.stopped:
                    break
            handlers[kind](match.group(), start)
        self._finish()

    @property
    def _in_sketch(self) -> bool:
        return self.opener is not None and self.opener.type == "{"

    def _token(self, kind: str, text: str, start: int) -> Token:
        return Token(kind, text, start, self.line, start - self.line_start + 1)

    def _emit(self, kind: str, text: str, start: int) -> Token:
        token = self._token(kind, text, start)
        token.first, self.first = self.first, False
        self.tokens.append(token)
        return token

    def _error(self, problem: Diagnostic, text: str, start: int) -> None:
        self._emit("ERROR", text, start).problem = problem

    def _span(self, start: int, size: int) -> Span:
        return self._token("", self.text[start : start + size], start).span(self.source.name)

    def _column(self, start: int) -> tuple[int, int]:
        """Columns in front of `start` with tabs to multiples of 8, and with tabs as one."""
        before = self.text[self.line_start : start]
        return len(before.expandtabs(8)), len(before)

    # ------------------------------------------------------------ layout

    def _newline(self, text: str, start: int) -> None:
        self.line += 1
        self.line_start = start + 1
        self.at_start = True

    def _comment(self, text: str, start: int) -> None:
        text = text.rstrip()
        span = self._token("", text, start).span(self.source.name)
        self.comments.append(Comment(text, self.at_start, span=span))

    def _line_begins(self, text: str, start: int) -> None:
        """The first token of a physical line stands at `start`: close and open what the layout
        says. Inside brackets only a line that cannot belong to them matters."""
        self.at_start = False
        if self.brackets:
            if not self._ends_brackets(text, start):
                return
            self._close_brackets()
        column = self._column(start)
        if self._in_sketch:
            self._sketch_line(text, start, column)
        elif self.opener is not None:
            self._tiling_line(text, start, column)

    def _sketch_line(self, text: str, start: int, column: tuple[int, int]) -> None:
        if text in UNITS and _UNIT.match(self.text, start):
            self._end_sketch(start, missing=True)
            return
        if self.section is not None and not self.first:
            deeper = column[0] > self.section
            if deeper and text not in _STATEMENT_WORDS:
                self._separate(text, start)
                return
        self._end_line()
        if text == "}":
            return
        if not self.stack:
            self.stack.append(column)
        else:
            self._indent(start, column)

    def _separate(self, text: str, start: int) -> None:
        """Add the `;` between two items of a section that only a line end separates."""
        ended = self.tokens[-1].type in _OPERAND_ENDS or self.tokens[-1].type == "?"
        if ended and text.isidentifier() and text not in ("and", "or", "not", "in"):
            self._layout_token(";", start)

    def _tiling_line(self, text: str, start: int, column: tuple[int, int]) -> None:
        stack = self.stack
        self._end_line()
        if column[0] > stack[0][0]:
            self._indent(start, column)
        elif text == "(" or (text.isidentifier() and self._next_is("=")):
            # A tuning point, `T = 64` or `(T = 64)`, not indented, as some listings have it.
            if len(stack) == 1:
                stack.append(column)
                self._layout_token("INDENT", start)
        else:
            self._dedent_to(0, start)
            self.opener = None
            self.first = True

    def _end_line(self) -> None:
        """End the logical line, if it holds anything."""
        self.section = None
        if not self.first:
            last = self.tokens[-1]
            self.tokens.append(
                Token("NEWLINE", "", last.end, last.line, last.column + len(last.text))
            )
            self.first = True

    def _indent(self, start: int, column: tuple[int, int]) -> None:
        """Open or close blocks for a line at `column`; what is wrong follows the layout tokens."""
        stack = self.stack
        top = stack[-1]
        deeper = (column[0] > top[0], column[1] > top[1])
        lower = (column[0] < top[0], column[1] < top[1])
        mixed = deeper[0] != deeper[1] or lower[0] != lower[1]
        problem = self._mixed_tabs(start) if mixed else None
        if deeper[0]:
            if len(stack) > MAXIMUM_BLOCKS:
                self._too_deep("blocks", MAXIMUM_BLOCKS, start)
                return
            stack.append(column)
            self._layout_token("INDENT", start)
        else:
            depth = len(stack) - 1
            while depth > 0 and stack[depth][0] > column[0]:
                depth -= 1
            self._dedent_to(depth, start)
            if column[0] != stack[-1][0]:
                problem = problem or self._bad_dedent(start, stack)
                stack[-1] = (min(column[0], stack[-1][0]), min(column[1], stack[-1][1]))
        if problem is not None:
            self._error(problem, "", start)

    def _dedent_to(self, depth: int, start: int) -> None:
        while len(self.stack) > depth + 1:
            self.stack.pop()
            self._layout_token("DEDENT", start)

    def _layout_token(self, kind: str, start: int) -> None:
        self.tokens.append(self._token(kind, "", start))

    def _mixed_tabs(self, start: int) -> Diagnostic:
        return error(
            self._span(self.line_start, max(start - self.line_start, 1)),
            "SK0109",
            "tabs and spaces are mixed in a way that leaves the indentation open",
            label="how deep this line stands depends on the width of a tab",
            help="indent with four spaces; `sketchc fmt` does it once the file parses",
        )

    def _bad_dedent(self, start: int, stack: list[tuple[int, int]]) -> Diagnostic:
        levels = ", ".join(str(column[0]) for column in stack)
        return error(
            self._span(start, 1),
            "SK0108",
            "the indentation of this line matches no enclosing block",
            label="unindented to a column that no block begins at",
            notes=(f"the enclosing blocks are indented by {levels} columns",),
        )

    def _too_deep(self, what: str, limit: int, start: int) -> None:
        """Nesting beyond the limit: say so once, and read no further."""
        message = f"{what} are nested more than {limit} deep"
        problem = error(
            self._span(start, 1),
            "SK0121",
            message,
            label="too deep here",
            help="bind parts to names, or use fewer loops",
        )
        self.tokens.append(self._token("STOP", "", start))
        self.tokens[-1].problem = problem
        self.position = len(self.text)
        self.stopped = True

    # ------------------------------------------------------------ words, numbers

    def _name(self, text: str, start: int) -> None:
        if text in ("inf", "nan"):
            self._emit("NUMBER", text, start)
        elif text in ("True", "False", "true", "false"):
            self._emit("BOOLEAN", text, start)
        elif text in self.reserved:
            self._emit(text, text, start)
        elif self.opener is None and not self.brackets:
            self._file_word(text, start)
        elif text in _SECTIONS and self._at_section() and self._next_is(":"):
            if self.first:
                self.section = self._column(start)[0]
            self._emit(text, text, start)
        else:
            if self.first and self._next_is(":"):
                self.section = self._column(start)[0]  # a misspelt section
            self._emit("NAME", text, start)

    def _file_word(self, text: str, start: int) -> None:
        if text in UNITS:
            self.first = True
            self._emit(text, text, start)
        elif text in TILINGS:
            self.first = True
            token = self._emit("available_tiling", text, start)
            if not (self._next_is(":", "{") or self._next_is("{")):
                self.opener, self.stack = token, [self._column(start)]
        else:
            self._emit("NAME", text, start)

    def _at_section(self) -> bool:
        """Whether a section keyword may stand here: first in a line, or behind `;` or `{`."""
        return self.first or (not self.brackets and self.tokens[-1].type in (";", "{"))

    def _next_is(self, *wanted: str) -> bool:
        """Whether the texts `wanted` follow in order, blanks apart."""
        position = self.position
        for text in wanted:
            while position < len(self.text) and self.text[position] in " \t\r\n\f":
                position += 1
            if not self.text.startswith(text, position):
                return False
            position += len(text)
        return True

    def _number(self, text: str, start: int) -> None:
        rest = re.compile(r"[\w.]+").match(self.text, self.position)
        if rest is not None:
            self.position = rest.end()
            whole = self.text[start : self.position]
            problem = error(
                self._span(start, self.position - start),
                "SK0102",
                f"`{_short(whole)}` is not a number",
                label="malformed number",
                help="numbers are written as in Python: 12, 1_024, 0xff, 1.5, 1e-5",
            )
            self._error(problem, whole, start)
            return
        self._emit("NUMBER", text, start)

    # ------------------------------------------------------------ operators and brackets

    def _operator(self, text: str, start: int) -> None:
        if text in _CLOSER and not (text == "{" and self.opener is None and not self._tiling()):
            if text == "{" and self._in_sketch:
                self._unmatched(text, start, None)
                return
            if len(self.brackets) >= MAXIMUM_BRACKETS:
                self._too_deep("brackets", MAXIMUM_BRACKETS, start)
                return
            self.brackets.append(self._emit(text, text, start))
        elif text == "{":
            self.opener, self.stack = self._emit(text, text, start), []
            self.first = True
        elif text in (")", "]", "}"):
            self._close(text, start)
        elif text not in OPERATORS:
            self._error(invalid_operator(text, self._span(start, len(text))), text, start)
        else:
            self._emit(text, text, start)

    def _tiling(self) -> bool:
        """Whether a brace here opens an `available_tiling`: it is then a bracket."""
        types = [token.type for token in self.tokens[-2:]]
        return types[-1:] == ["available_tiling"] or types == ["available_tiling", ":"]

    def _close(self, text: str, start: int) -> None:
        if self.brackets and _CLOSER[self.brackets[-1].type] == text:
            self.brackets.pop()
            self._emit(text, text, start)
        elif text == "}" and self._in_sketch:
            if self.brackets:
                self._close_brackets()
            self._end_sketch(start, missing=False)
        else:
            self._unmatched(text, start, self.brackets[-1] if self.brackets else None)

    def _unmatched(self, text: str, start: int, opener: Token | None) -> None:
        labels: tuple[Label, ...] = ()
        if opener is not None:
            labels = (Label(opener.span(self.source.name), f"`{opener.text}` was opened here"),)
            self.brackets.pop()
        span = self._span(start, len(text))
        problem = error(span, "SK0106", f"`{text}` closes nothing", "unmatched", labels=labels)
        self._error(problem, text, start)

    def _ends_brackets(self, text: str, start: int) -> bool:
        """Whether the line that begins here cannot stand inside the open brackets, so that a
        closing one is missing."""
        if self.brackets[0].type == "{":
            return False
        if text in _STATEMENT_WORDS:
            return True
        if re.compile(r"[A-Za-z_]").match(text) is None:
            return False
        if self.tokens[-1].type in _OPERAND_ENDS:
            return text not in ("and", "or", "not", "in")
        return re.compile(STATEMENT).match(self.text, start) is not None

    def _close_brackets(self) -> None:
        """Report the innermost open bracket and go on as if all were closed."""
        opener = self.brackets[-1]
        span = opener.span(self.source.name)
        closer = _CLOSER[opener.type]
        problem = error(
            span,
            "SK0105",
            f"`{opener.text}` is never closed",
            label="opened here",
            help=f"write the missing `{closer}`",
        )
        self.brackets.clear()
        last = self.tokens[-1]
        self.tokens.append(
            Token("ERROR", "", last.end, last.line, last.column + len(last.text), False, problem)
        )

    def _end_sketch(self, start: int, *, missing: bool) -> None:
        """Close the open blocks and the sketch; with `missing` the brace itself is not there."""
        opener, self.opener = self.opener, None
        assert opener is not None
        self._end_line()
        self._dedent_to(0, start)
        if missing:
            problem = error(
                opener.span(self.source.name),
                "SK0107",
                "the sketch has no closing `}`",
                label="opened here",
                help="write `}` behind the last statement of the sketch",
            )
            self._error(problem, "", start)
            self.first = True
        self._emit("}", "" if missing else "}", start)
        self.first = True

    def _unknown(self, start: int) -> None:
        """A character that begins no token, or a string without an end."""
        if self.at_start:
            self._line_begins(self.text[start], start)
            if self.stopped:
                return
        character = self.text[start]
        if character in "\"'":
            end = self.text.find("\n", start)
            end = len(self.text) if end < 0 else end
            text = self.text[start:end].rstrip("\r")
            escaped = "\\" in text and text.count(character) > 1
            problem = error(
                self._span(start, len(text)),
                "SK0104",
                "a string has no escapes" if escaped else "the string has no closing quote",
                label="this string",
                help="strings are hint words and modes: they stand on one line, without backslash",
            )
            self.position = end
            self._error(problem, text, start)
            return
        self.position = start + 1
        self._error(invalid_character(character, self._span(start, 1)), character, start)

    def _finish(self) -> None:
        """At the end of the text: close all open brackets and blocks, and the sketch."""
        start = len(self.text)
        if self.stopped:
            return
        if self.brackets:
            self._close_brackets()
        if self._in_sketch:
            self._end_sketch(start, missing=True)
        elif self.opener is not None:
            self._end_line()
            self._dedent_to(0, start)
        self.first = True
        self._emit("$END", "", start)


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."
