"""Messages of the syntax stage (SK01xx): from what the tables accept to what the user did.

`explain` turns a token that the parse tables refuse, with its surroundings, into a diagnostic.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sketchc.base import records
from sketchc.base.diagnostics import Diagnostic, Edit, Fix, Label, Span, error
from sketchc.parsing.syntax import SECTIONS

if TYPE_CHECKING:
    from sketchc.parsing.lexer import Token


def replace(title: str, span: Span, text: str, safe: bool = False) -> tuple[Fix, ...]:
    """One fix, called `title`, with one edit: `text` in the place of `span`."""
    return (Fix(title, (Edit(span, text),), safe),)


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known word that a misspelt one most likely means, or None."""
    import difflib  # only mistakes need it, and it takes a millisecond to import

    found = difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return found[0] if found else None


def guess(
    verb: str, word: str, known: Iterable[str], span: Span, otherwise: str
) -> tuple[str, tuple[Fix, ...]]:
    """The label and the fix for an unknown `word`: the `known` name that it most likely means, else
    `otherwise` and no fix. `verb` begins the fix's title."""
    meant = nearest(word, known)
    if meant is None:
        return otherwise, ()
    return f"did you mean `{meant}`?", replace(f"{verb} `{meant}`", span, meant)


# ---------------------------------------------------------------- characters and operators

_CHARACTERS = {
    "\u2192": "->",
    "\u2264": "<=",
    "\u2265": ">=",
    "\u2260": "!=",
    "\u00d7": "*",
    "\u00f7": "/",
    "\u2212": "-",
    "\u2013": "-",
    "\u201c": '"',
    "\u201d": '"',
    "\u2018": "'",
    "\u2019": "'",
    "\uff0c": ",",
    "\uff1a": ":",
    "\uff1b": ";",
    "\uff08": "(",
    "\uff09": ")",
    "\u00a0": " ",
    "\u3000": " ",
}
_OPERATORS = {
    "**": "write `x*x`, or the operation `pow(x, y, destination)`",
    "&": "write `and` for conditions, or the operation `bitwise_and(a, b, destination)`",
    "&&": "write `and`",
    "||": "write `or`",
    "!": "write `not`",
    "^": "write the operation `bitwise_xor(a, b, destination)`",
    "~": "write the operation `bitwise_not(a, destination)`",
    "<<": "write the operation `shl(a, b, destination)`",
    ">>": "write the operation `shr(a, b, destination)`",
    "=>": "write `->`",
    ":=": "write `=`",
    "...": "write out every subscript, `0:N` for a whole axis",
    ".": "there are no attributes; sizes are symbols, operations are calls",
}
_EXACT = {"&&": "and", "||": "or", "=>": "->", ":=": "="}


def invalid_character(character: str, span: Span) -> Diagnostic:
    """The diagnostic for a character that no token begins with."""
    code = f"U+{ord(character):04X}"
    shown = f"`{character}` ({code})" if character.isprintable() else code
    meant = _CHARACTERS.get(character)
    fixes = replace(f"write `{meant}`", span, meant, safe=True) if meant is not None else ()
    note = "names are made of the letters a-z and A-Z, digits and `_`"
    return error(
        span,
        "SK0101",
        f"the character {shown} has no meaning in a sketch",
        label="this character",
        notes=(note,) if character.isalpha() else (),
        help="" if meant is None else f"write `{meant}`",
        fixes=fixes,
    )


def invalid_operator(text: str, span: Span) -> Diagnostic:
    """The diagnostic for an operator that only other languages have."""
    help_text = _OPERATORS.get(text, "")
    if text.endswith("=") and not help_text:
        help_text = "names are immutable; bind a new name, or write to a tile with an operation"
    fixes: tuple[Fix, ...] = ()
    if text in _EXACT:  # `=>` may be `->` or `>=`
        fixes = replace(f"write `{_EXACT[text]}`", span, _EXACT[text], safe=text != "=>")
    return error(
        span,
        "SK0127",
        f"the language has no operator `{text}`",
        label="unknown operator",
        help=help_text,
        fixes=fixes,
    )


# ---------------------------------------------------------------- what the tables refuse

_NAMES = {
    "NAME": "a name",
    "NUMBER": "a number",
    "STRING": "a string",
    "BOOLEAN": "True or False",
    "NEWLINE": "the end of the line",
    "INDENT": "an indented block",
    "DEDENT": "the end of the block",
    "$END": "the end of the file",
}
_ENDS = {
    "NEWLINE": "end of the line",
    "DEDENT": "end of the block",
    "$END": "end of the file",
    ";": "end of the line",
}
_EXPRESSION_STARTS = frozenset(("NAME", "NUMBER", "STRING", "BOOLEAN", "[", "(", "-", "+", "not"))
_RESERVED = frozenset(("for", "in", "if", "else", "pass", "and", "or", "not", "None", "BOOLEAN"))
_COMPARISONS = frozenset(("<", "<=", ">", ">=", "==", "!="))


@records.frozen
class Refusal:
    """A token that cannot be shifted: `line` holds the tokens of its logical line before it."""

    source: str
    token: Token
    line: Sequence[Token]
    accepted: frozenset[str]
    following: Sequence[Token] = ()

    @property
    def span(self) -> Span:
        """The place of the refused token in the source."""
        return self.token.span(self.source)


def explain(refusal: Refusal) -> Diagnostic:
    """The diagnostic for a refused token, as specific as can be told."""
    for attempt in (_layout, _header, _section, _name, _operator, _outside):
        found = attempt(refusal)
        if found is not None:
            return found
    return _general(refusal)


def _behind(refusal: Refusal) -> Span:
    """The empty span behind the last token of the line."""
    return refusal.line[-1].span(refusal.source).after


def _layout(refusal: Refusal) -> Diagnostic | None:
    kind, line = refusal.token.type, refusal.line
    if kind == "INDENT":
        return error(
            _widened(refusal),
            "SK0108",
            "unexpected indentation",
            label="this line is indented deeper than its block",
            help="only the body of a `for` or an `if` is indented deeper",
        )
    if "INDENT" in refusal.accepted:
        return error(
            _widened(refusal),
            "SK0110",
            "an indented block must follow",
            label="the body is missing here",
            help="indent the body, or write `pass`",
        )
    if kind == "else":
        return error(refusal.span, "SK0128", "`else` without its `if`", label="no `if` ends here")
    if line and line[0].type == "@" and refusal.token.first:
        return error(
            _widened(refusal),
            "SK0120",
            "a loop hint stands before something that is not a `for`",
            label="no loop begins here",
            labels=(Label(_first_line(refusal), "the hint"),),
            help="move the hint to the line above its `for`",
        )
    return None


def _first_line(refusal: Refusal) -> Span:
    """The span of the tokens before the refused one, as far as they stand on the first's line."""
    first = refusal.line[0]
    last = [token for token in refusal.line if token.line == first.line and token.text][-1]
    return first.span(refusal.source).to(last.span(refusal.source))


def _widened(refusal: Refusal) -> Span:
    """The span of the refused token, or of the next token with text where it has none itself."""
    if refusal.token.text:
        return refusal.span
    for token in refusal.following:
        if token.text:
            return token.span(refusal.source)
    return refusal.span


def _header(refusal: Refusal) -> Diagnostic | None:
    kind, line = refusal.token.type, refusal.line
    first = line[0].type if line else ""
    if first in ("for", "if", "else") and ":" in refusal.accepted and refusal.token.first is False:
        if kind == "NEWLINE" or (kind in _EXPRESSION_STARTS and line[-1].type in (")", first)):
            behind = _behind(refusal)
            return error(
                behind,
                "SK0111",
                f"`{first}` needs a `:` before its body",
                label="`:` is missing here",
                fixes=replace("add the colon", behind, ":", safe=True),
            )
        if kind == "=" and first == "if":
            return error(
                refusal.span,
                "SK0127",
                "`=` is not a comparison",
                label="write `==`",
                fixes=replace("compare with `==`", refusal.span, "==", safe=True),
            )
    if first == "for" and refusal.accepted == {"in"}:
        return error(
            refusal.span,
            "SK0118",
            "a loop is written `for NAME in range(...)`",
            label="`in` was expected here",
        )
    if first == "for" and len(line) >= 4 and line[2].type == "in" and refusal.accepted == {"("}:
        return error(
            line[3].span(refusal.source),
            "SK0118",
            "a loop runs over `range(...)`",
            label="this is not a range",
            help=f"write `range({line[3].text})`",
        )
    if first == "for" and len(line) == 3 and "NAME" in refusal.accepted:
        return error(refusal.span, "SK0118", "a loop runs over `range(...)`", label="not a range")
    return None


def _section(refusal: Refusal) -> Diagnostic | None:
    kind, line = refusal.token.type, refusal.line
    if kind == ":" and len(line) == 1 and line[0].type == "NAME":
        word = line[0].text
        span = line[0].span(refusal.source)
        if word in ("available_tiling", "avaliable_tiling"):
            return error(
                span,
                "SK0125",
                f"`{word}` stands behind the closing `}}` of its sketch",
                label="not a section of the sketch",
            )
        meant = nearest(word, SECTIONS)
        return error(
            span,
            "SK0112",
            f"there is no section `{word}`",
            label="unknown section",
            notes=("the sections are " + ", ".join(sorted(SECTIONS)),),
            help=f"did you mean `{meant}`?" if meant else "",
            fixes=replace(f"write `{meant}`", span, meant) if meant else (),
        )
    if kind in SECTIONS and refusal.token.first:
        return error(
            refusal.span,
            "SK0113",
            f"the section `{kind}` stands inside a block",
            label="sections stand directly in the sketch",
            help="move it to the top of the sketch, before the first statement",
        )
    section = next((token.type for token in reversed(line) if token.type in SECTIONS), "")
    if section in ("tensors", "workspace") and refusal.accepted <= {":", "["}:
        what = f"`{line[-1].text}` needs its extents"
        if line[-1].type == "]":
            what = "a tensor needs its element type"
        return error(
            _visible(refusal),
            "SK0119",
            what,
            label=_expected(refusal.accepted),
            help="write `X[M, N]: f32`, or `X[]: f32` for a scalar",
        )
    return None


def _visible(refusal: Refusal) -> Span:
    """The span of the refused token, or the end of the line before it where it has no text."""
    return refusal.span if refusal.token.text or not refusal.line else _behind(refusal)


def _name(refusal: Refusal) -> Diagnostic | None:
    kind = refusal.token.type
    word = refusal.token.text
    reserved = kind in _RESERVED or word in ("inf", "nan")
    token = None
    if reserved and "NAME" in refusal.accepted and kind not in refusal.accepted:
        declares = "NUMBER" not in refusal.accepted
        token = refusal.token if declares or kind not in ("and", "or", "not") else None
    if token is None and kind == "=" and [t.type in _RESERVED for t in refusal.line] == [True]:
        token = refusal.line[0]
    if token is None:
        return None
    message = f"`{token.text}` is a word of the language and cannot be a name"
    return error(token.span(refusal.source), "SK0114", message, label="choose another name")


def _operator(refusal: Refusal) -> Diagnostic | None:
    kind, line = refusal.token.type, refusal.line
    if kind in _COMPARISONS and any(token.type in _COMPARISONS for token in line):
        return error(
            refusal.span,
            "SK0123",
            "comparisons do not chain",
            label="second comparison",
            help="write `a <= b and b < c`",
        )
    if kind == "[" and len(line) == 1 and line[0].type == "NAME":
        return error(
            refusal.span,
            "SK0115",
            "a tensor is not assigned to",
            label="subscripts stand in `load` and `store` only",
            help=f"write `store(tile -> {line[0].text}[...])`",
        )
    if kind == "|" and line and line[0].type not in ("tensors", "views", "workspace"):
        return error(
            refusal.span,
            "SK0127",
            "the language has no operator `|`",
            label="unknown operator",
            help="write `or` for conditions, or the operation `bitwise_or(a, b, destination)`",
        )
    return None


def _outside(refusal: Refusal) -> Diagnostic | None:
    if "sketch" not in refusal.accepted:
        return None
    return error(
        refusal.span,
        "SK0122",
        "only sketches and their `available_tiling` blocks stand in a file",
        label="this is outside every sketch",
        help="write `sketch NAME { ... }`",
    )


def _general(refusal: Refusal) -> Diagnostic:
    token = refusal.token
    what = f"`{token.text}`" if token.text else _ENDS.get(token.type, token.type)
    notes: tuple[str, ...] = ()
    if [each.type for each in refusal.line] == ["NAME"]:
        notes = ("a statement is `name = ...`, a call, `for`, `if` or `pass`",)
    expected = _expected(refusal.accepted)
    return error(_visible(refusal), "SK0100", f"unexpected {what}", label=expected, notes=notes)


def _expected(accepted: frozenset[str]) -> str:
    """The text "expected one of ..."; tokens that begin an expression are "an expression"."""
    names = set(accepted)
    words = []
    if {"NUMBER", "("} <= names:
        names -= _EXPRESSION_STARTS
        words.append("an expression")
    operators = names & {"+", "-", "*", "/", "//", "%", "and", "or"} | names & _COMPARISONS
    if len(operators) > 3:
        names -= operators
        words.append("an operator")
    sections = names & SECTIONS
    if len(sections) > 2:
        names -= sections
        words.append("a section")
    words += [_NAMES.get(name, f"`{name}`") for name in sorted(names)]
    if len(words) == 1:
        return f"expected {words[0]}"
    return "expected one of " + ", ".join(words)
