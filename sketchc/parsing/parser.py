"""Sketch text to syntax tree: an LALR driver over Lark's tables that goes on behind an error.

`read` takes a path and returns a `Source`, `parse` a `Source` and returns the tree (None when
anything is wrong) with all diagnostics. The driver keeps one stack, so nesting cannot overflow
Python's. An error costs the line it stands in: the stack is cut back to the line's first token, the
line is skipped, and a block that belongs to it is read under a stand-in header, so that one run
reports every wrong line.

The tables are those that Lark computes of grammar/sketch.lark, read from a file: importing Lark and
computing them takes 0.7 s, reading them 5 ms, and a whole `check --static` of a small sketch some
100 ms. A wheel holds them beside the grammar (`setup.py` has `ship` write them); an installation
from a checkout keeps them in the user's cache folder. The file's name holds the grammar's checksum.
A file that is missing, unwritable or damaged costs time, never correctness: the tables are then
computed again.
"""

from __future__ import annotations

import marshal
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from sketchc.base import records
from sketchc.base.diagnostics import (
    Diagnostic,
    DiagnosticError,
    InternalError,
    Source,
    UsageError,
    error,
    has_errors,
    refuse,
)
from sketchc.base.memo import memoised
from sketchc.parsing import syntax
from sketchc.parsing.conversion_statements import Converter
from sketchc.parsing.errors import Refusal, explain
from sketchc.parsing.lexer import MAXIMUM_BRACKETS, UNITS, Token, tokenize

#: Raised whenever the layout below or the driver's reading of it changes.
_LAYOUT = 1
#: A form of `marshal` that every Python reads: a wheel serves several.
_MARSHAL = 2


@records.frozen
class Rule:
    """One production: `name` is its alias, else its origin; `size` the number of its symbols.

    `inlined`: the value is the list of the children, spliced into the parent (`_rule` in Lark);
    `passed`: the value is the one child (`?rule`).
    """

    origin: str
    name: str
    size: int
    inlined: bool
    passed: bool


@records.frozen
class Tables:
    """LALR(1) tables. `actions[state][token]` is the state to shift to, or `-1 - rule` to reduce;
    `gotos[state][origin]` the state after a reduction. `patterns` holds the regular expressions of
    the tokens with a name, `literals` the tokens that stand for themselves."""

    start: int
    end: int
    actions: tuple[dict[str, int], ...]
    gotos: tuple[dict[str, int], ...]
    rules: tuple[Rule, ...]
    patterns: dict[str, str]
    literals: frozenset[str]


def is_name(word: str) -> bool:
    """Whether a sketch may have this name: it is no word of the language."""
    tokens, _ = tokenize(Source("name", word), tables())
    return tokens[0].type == "NAME" and tokens[0].text == word


@cache
def tables() -> Tables:
    """The parse tables of the grammar shipped with the package, read once per process."""
    grammar, name = _grammar()
    cached = os.path.join(cache_folder(), name)
    data = _read(os.path.join(_grammar_folder(), name))
    if data is None:
        data = _read(cached)
    if data is None:
        data = _compute(grammar)
        _write(cached, data)
    start, end, actions, gotos, rules, patterns, literals = data
    named = tuple(Rule(*rule) for rule in rules)
    return Tables(start, end, actions, gotos, named, patterns, frozenset(literals))


def ship() -> None:
    """Write the tables beside the grammar, for a wheel that is being built. Raises `InternalError`
    where they cannot be written."""
    grammar, name = _grammar()
    path = os.path.join(_grammar_folder(), name)
    _write(path, _compute(grammar))
    if _read(path) is None:
        raise InternalError(f"{path} could not be written")


def _grammar() -> tuple[str, str]:
    """The grammar's text, and the name of the file with its tables."""
    with open(os.path.join(_grammar_folder(), "sketch.lark"), encoding="utf-8") as file:
        grammar = file.read()
    return grammar, f"grammar-{_LAYOUT}-{zlib.crc32(grammar.encode()):08x}.bin"


def _grammar_folder() -> str:
    import sketchc.grammar

    return os.path.dirname(os.path.abspath(str(sketchc.grammar.__file__)))


def cache_folder() -> str:
    """The folder for files that may be deleted at any time."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "sketchc")


def _read(path: str) -> Any:
    """The cached data, or None. A checksum guards `marshal`, which trusts what it reads."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError:
        return None
    if len(content) < 4 or int.from_bytes(content[:4], "little") != zlib.crc32(content[4:]):
        return None
    try:
        return marshal.loads(content[4:])
    except (ValueError, EOFError, TypeError):
        return None


def _write(path: str, data: Any) -> None:
    """Write the data with a checksum. A file that cannot be written is passed over."""
    from sketchc.base.files import replace_file  # few runs need it

    content = marshal.dumps(data, _MARSHAL)
    content = zlib.crc32(content).to_bytes(4, "little") + content
    # A cache that cannot be written: the next run computes the tables again.
    with suppress(OSError):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        replace_file(path, content)


def _compute(grammar: str) -> Any:
    """Let Lark build the tables; returns plain tuples, dicts, strings and numbers."""
    from lark import Lark
    from lark.grammar import Rule as LarkRule
    from lark.lexer import Lexer, PatternStr, TerminalDef

    class NoLexer(Lexer):
        """Stands for sketchc.parsing.lexer, which Lark does not call."""

        def __init__(self, configuration: Any) -> None:
            del configuration

        def lex(self, lexer_state: Any, parser_state: Any) -> Any:
            raise InternalError("the driver of sketchc.parsing.parser reads the tables")

    lark = Lark(
        grammar, parser="lalr", lexer=NoLexer, start="file", maybe_placeholders=False, strict=False
    )
    literals = {
        terminal.name: terminal.pattern.value
        for terminal in lark.terminals
        if isinstance(terminal.pattern, PatternStr)
    }
    patterns = {
        terminal.name: terminal.pattern.to_regexp()
        for terminal in lark.terminals
        if terminal.name not in literals
    }
    serialized, memo = lark.memo_serialize([TerminalDef, LarkRule])
    table = serialized["parser"]["parser"]
    rules, numbers = _rules(memo)
    names = table["tokens"]
    origins = {rule[0] for rule in rules}
    states = {state: number for number, state in enumerate(table["states"])}
    actions: list[dict[str, int]] = [{} for _ in states]
    gotos: list[dict[str, int]] = [{} for _ in states]
    for state, entries in table["states"].items():
        for index, (kind, argument) in entries.items():
            name = names[index]
            if kind == 1:
                actions[states[state]][literals.get(name, name)] = -1 - numbers[argument["@"]]
            elif name in origins:
                gotos[states[state]][name] = states[argument]
            else:
                actions[states[state]][literals.get(name, name)] = states[argument]
    start = states[table["start_states"]["file"]]
    end = states[table["end_states"]["file"]]
    kept = sorted(set(literals.values()))
    return (start, end, tuple(actions), tuple(gotos), tuple(rules), patterns, tuple(kept))


def _rules(memo: Any) -> tuple[list[tuple[str, str, int, bool, bool]], dict[int, int]]:
    """The productions in a list, and where each stands by Lark's memo number."""
    rules: list[tuple[str, str, int, bool, bool]] = []
    numbers: dict[int, int] = {}
    for number, entry in memo.items():
        if "expansion" not in entry:
            continue
        origin = str(entry["origin"]["name"])
        name = str(entry["alias"] or origin)
        numbers[number] = len(rules)
        size = len(entry["expansion"])
        passed = entry["options"]["expand1"] and not entry["alias"] and size == 1
        rules.append((origin, name, size, name.startswith("_"), passed))
    return rules, numbers


#: Files beyond this many characters are refused: a sketch is a page or two.
MAXIMUM_SIZE = 1 << 20
#: After so many errors the rest of a file is not read.
MAXIMUM_ERRORS = 100
#: Expressions nested deeper than this are refused, like brackets: later stages recurse over them.
MAXIMUM_DEPTH = MAXIMUM_BRACKETS

_DEEPENING = frozenset(("binary", "unary", "choice", "access", "call", "list", "slice"))


def parse(source: Source) -> tuple[syntax.File | None, list[Diagnostic]]:
    """Parse one file. The tree is None when there are errors; never raises for a user's mistake.

    A text that was parsed lately is not parsed again: a sketch is checked, planned and verified one
    after the other, and nobody can change its tree.
    """
    tree, diagnostics = _parsed(source)
    return tree, [*diagnostics]


@memoised
def _parsed(source: Source) -> tuple[syntax.File | None, list[Diagnostic]]:
    span = source.start
    if len(source.text) > MAXIMUM_SIZE:
        message = f"the file holds {len(source.text):,} characters; the limit is {MAXIMUM_SIZE:,}"
        help_text = "is this a sketch? Split it into one file per kernel"
        return None, [error(span, "SK0132", message, help=help_text)]
    nul = source.text.find("\0")
    if nul >= 0:
        message = f"the file is not text: character {nul} is NUL"
        return None, [error(span, "SK0131", message, help="give the path of a sketch")]
    tokens, comments = tokenize(source, tables())
    driver = _Driver(source, tables(), tokens)
    tree = driver.run()
    diagnostics = sorted(driver.diagnostics, key=lambda found: found.span.start)
    if tree is None or has_errors(diagnostics):
        return None, diagnostics
    if not tree.sketches:
        help_text = "write `sketch NAME { ... }`; `sketchc explain SK0133` shows a small one"
        return None, [error(span, "SK0133", "the file holds no sketch", help=help_text)]
    tree = records.evolve(tree, comments=comments)
    for expand in _expansions(tree):
        tree, more = expand(tree)
        diagnostics += more
        if has_errors(more):
            return None, sorted(diagnostics, key=lambda found: found.span.start)
    return tree, diagnostics


def _expansions(tree: syntax.File) -> Iterator[Callable[[syntax.File], syntax.Expanded]]:
    """What is to be expanded in a tree, in this order. Few files need any of it."""
    if any(next(syntax.declared(sketch, "types"), None) for sketch in tree.sketches):
        from sketchc.parsing import generics

        yield generics.expand
    if any(sketch.program is not None for sketch in tree.sketches):
        from sketchc.parsing import programs

        yield programs.expand


class _Driver:
    def __init__(self, source: Source, tables: Tables, tokens: list[Token]) -> None:
        self.source = source
        self.tables = tables
        self.tokens = tokens
        self.converter = Converter(source)
        self.diagnostics = self.converter.diagnostics
        # The parse stack in three columns: states, values, and how deep expressions nest in each.
        self.states = [tables.start]
        self.values: list[Any] = [None]
        self.depths = [0]
        self.index = 0
        self.mark = 1  # height of the stack at the first token of the line (or of its hints)
        self.line = 0  # index of the first token of the line

    def run(self) -> syntax.File | None:
        """Drive the tables over all tokens; None when reading stopped early."""
        actions = self.tables.actions
        while True:
            token = self.tokens[self.index]
            if token.type == "STOP" or len(self.diagnostics) >= MAXIMUM_ERRORS:
                if token.problem is not None:
                    self.diagnostics.append(token.problem)
                return None
            action = actions[self.states[-1]].get(token.type)
            if action is None:
                if token.type == "$END" and isinstance(self.values[-1], syntax.File):
                    tree: syntax.File = self.values[-1]
                    return tree
                if not self._recover(token):
                    return None
            elif action >= 0:
                self._shift(token, action)
            else:
                self._reduce(-1 - action)

    def _shift(self, token: Token, state: int) -> None:
        if token.first:
            if self.tokens[self.line].type != "@":  # the line of a loop begins at its hints
                self.mark = len(self.states)
            self.line = self.index
        self.states.append(state)
        self.values.append(token)
        self.depths.append(0)
        self.index += 1

    def _reduce(self, number: int) -> None:
        rule = self.tables.rules[number]
        states = self.states
        if rule.passed:
            states[-1] = self.tables.gotos[states[-2]][rule.origin]
            return
        base = len(states) - rule.size
        children = self.values[base:]
        depth = max(self.depths[base:], default=0)
        self._cut(base)
        value: Any = _spliced(children)
        if not rule.inlined:
            value, depth = self._convert(rule.name, value, depth)
        states.append(self.tables.gotos[states[-1]][rule.origin])
        self.values.append(value)
        self.depths.append(depth)

    def _cut(self, height: int) -> None:
        """Drop what stands on the stack at and above `height`."""
        del self.states[height:], self.values[height:], self.depths[height:]

    def _convert(self, name: str, children: list[Any], depth: int) -> tuple[Any, int]:
        value = self.converter.convert(name, children)
        if name not in _DEEPENING:
            return value, depth
        if depth < MAXIMUM_DEPTH:
            return value, depth + 1
        if not any(found.code == "SK0121" for found in self.diagnostics):
            message = f"the expression is nested more than {MAXIMUM_DEPTH} deep"
            help_text = "bind parts of it to names"
            found = error(value.span, "SK0121", message, "too deep", help=help_text)
            self.diagnostics.append(found)
        return syntax.Name("_", span=value.span), 0

    # ------------------------------------------------------------ errors

    def _recover(self, token: Token) -> bool:
        """Report the token that cannot be shifted, and go on behind its line; False to stop."""
        # Other tokens in the tables only reduce, then fail.
        types = self.tables.actions[self.states[-1]]
        accepted = frozenset(kind for kind in types if self._can_shift(kind))
        top = self.values[-1]
        if token.type == "DEDENT" and isinstance(top, Token) and top.type == "INDENT":
            self._insert((("pass", "pass"), ("NEWLINE", "")), token)  # all lines were skipped
            return True
        line = self.index
        while line > 0 and not self.tokens[line].first:
            line -= 1
        if token.problem is not None:
            self.diagnostics.append(token.problem)
        else:
            hinted = line == self.index and self.tokens[self.line].type == "@"
            before = self.tokens[self.line if hinted else line : self.index]
            following = self.tokens[self.index : self.index + 3]
            refusal = Refusal(self.source.name, token, before, accepted, following)
            self.diagnostics.append(explain(refusal))
        if self._holds("{"):
            return self._skip_line(token, line, accepted)
        return self._next_sketch()

    def _holds(self, kind: str) -> bool:
        """Whether a token of the type `kind` is on the stack, its construct not yet complete."""
        return any(isinstance(value, Token) and value.type == kind for value in self.values)

    def _next_sketch(self) -> bool:
        """Go on at the next sketch of the file, or at the body of a sketch with a bad header."""
        in_header = self._holds("sketch") or self._holds("program")
        while isinstance(self.values[-1], Token):
            self._cut(len(self.states) - 1)
        while self.tokens[self.index].type not in (*UNITS, "$END", "STOP"):
            if in_header and self.tokens[self.index].type == "{":
                self._insert((("sketch", "sketch"), ("NAME", "_")), self.tokens[self.index])
                return True
            self.index += 1
        if self.tokens[self.index].type not in UNITS:
            return False
        while len(self.states) > 1 and not self._can_shift("sketch"):
            self._cut(len(self.states) - 1)  # back to complete sketches
        return True

    def _skip_line(self, token: Token, line: int, accepted: frozenset[str]) -> bool:
        """Recovery inside a sketch: every branch consumes a token or makes the next one fit."""
        kind = token.type
        if kind in ("$END", "}"):
            return False
        if self.tokens[self.index + 1].type == "}" and token.problem is not None:
            self.index += 1  # the missing brace itself, put in by the lexer
            return True
        if kind == "INDENT":
            self._insert(_header("for"), token)
            return True
        if "INDENT" in accepted:
            body = (("INDENT", ""), ("pass", "pass"), ("NEWLINE", ""), ("DEDENT", ""))
            self._insert(body, token)
            return True
        hinted = self.tokens[self.line].type == "@"
        if hinted or not token.first:
            self._cut(self.mark)
        if hinted and token.first and token.problem is None and self._can_shift(kind):
            return True
        first = self.tokens[line].type
        while self.tokens[self.index].type not in ("NEWLINE", "INDENT", "DEDENT", "$END", "STOP"):
            self.index += 1
        if self.tokens[self.index].type == "NEWLINE" or kind == "DEDENT":
            self.index += 1
        if self.tokens[self.index].type == "INDENT":
            self._insert(_header("if" if first == "if" else "for"), token)
        return True

    def _insert(self, parts: Sequence[tuple[str, str]], at: Token) -> None:
        """Put stand-in tokens before the current one."""
        made = [Token(kind, text, at.start, at.line, at.column) for kind, text in parts]
        made[0].first = made[0].type in ("for", "if", *UNITS)
        self.tokens[self.index : self.index] = made

    def _can_shift(self, kind: str) -> bool:
        states = self.states.copy()
        while True:
            action = self.tables.actions[states[-1]].get(kind)
            if action is None:
                return False
            if action >= 0:
                return True
            rule = self.tables.rules[-1 - action]
            if rule.size:
                del states[len(states) - rule.size :]
            target = self.tables.gotos[states[-1]].get(rule.origin)
            if target is None:
                return False
            states.append(target)


def _header(word: str) -> tuple[tuple[str, str], ...]:
    """A stand-in for a broken `for` or `if` line, which owns the block that follows."""
    if word == "if":
        return (("if", "if"), ("NUMBER", "0"), (":", ":"), ("NEWLINE", ""))
    loop = ("for", "_", "in", "range", "(", "0", ")", ":", "")
    kinds = ("for", "NAME", "in", "NAME", "(", "NUMBER", ")", ":", "NEWLINE")
    return tuple(zip(kinds, loop, strict=True))


def _spliced(children: list[Any]) -> list[Any]:
    """The children of an inlined rule in one list; a growing list is extended in place."""
    values: list[Any] = []
    for number, child in enumerate(children):
        if not isinstance(child, list):
            values.append(child)
        elif number == 0:
            values = child
        else:
            values += child
    return values


STANDARD_INPUT = "-"
SUFFIX = ".sketch"


def read(path: str) -> Source:
    """The text of a sketch file; "-" reads standard input.

    Raises `UsageError` for a path that cannot be read, and `DiagnosticError` for content that is
    not the text of a sketch: binary data (SK0131) or more than `MAXIMUM_SIZE` bytes (SK0132).
    """
    name = "<stdin>" if path == STANDARD_INPUT else path
    span = Source(name, "").start
    content = _content(path)
    if len(content) > MAXIMUM_SIZE:
        size = os.path.getsize(path) if os.path.isfile(path) else 0
        held = f"{size:,} bytes" if size else f"more than {MAXIMUM_SIZE:,} bytes"
        message = f"the file holds {held}; the limit is {MAXIMUM_SIZE:,}"
        advice = "a sketch is a page or two: give the path of one, or split the file"
        raise DiagnosticError([error(span, "SK0132", message, help=advice)])
    offset, what = content.find(b"\0"), "a NUL byte"
    if offset < 0:
        try:
            return Source(name, content.decode("utf-8"))
        except UnicodeDecodeError as problem:
            offset, what = problem.start, "no UTF-8"
    message = f"the file is not text: {what} at byte offset {offset}"
    advice = "give the path of a sketch, saved as UTF-8"
    raise DiagnosticError([error(span, "SK0131", message, help=advice)])


def _content(path: str) -> bytes:
    """The bytes of a file, one more than allowed at most."""
    if path == STANDARD_INPUT:
        return sys.stdin.buffer.read(MAXIMUM_SIZE + 1)
    try:
        with open(path, "rb") as file:
            return file.read(MAXIMUM_SIZE + 1)
    except IsADirectoryError:
        raise UsageError(f"{path} is a directory, not a sketch") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        refuse(f"cannot read {path}: {reason}", error)


def sketch_files(path: str) -> list[str]:
    """The files that a command-line path stands for: itself, or all *.sketch below a directory.

    Raises `UsageError` for a directory that holds none.
    """
    if path == STANDARD_INPUT or not os.path.isdir(path):
        return [path]
    found = []
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [os.path.join(folder, name) for name in sorted(names) if name.endswith(SUFFIX)]
    if not found:
        refuse(f"the directory {path} holds no *{SUFFIX} files")
    return found
