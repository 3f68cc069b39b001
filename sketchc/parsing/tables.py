"""The LALR parse tables of grammar/sketch.lark: computed by Lark once, then read from a file.

Importing Lark and building the tables takes longer than checking a sketch. A wheel holds the tables
beside the grammar (`setup.py` has `ship` write them); an installation from a checkout keeps them in
the user's cache folder. The file's name holds the grammar's checksum. A file that is missing,
unwritable or damaged costs time, never correctness: the tables are then computed again.
"""

from __future__ import annotations

import marshal
import os
import zlib
from typing import Any

from sketchc.base import records
from sketchc.base.diagnostics import InternalError

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


def load_tables() -> Tables:
    """The tables of the grammar shipped with the package."""
    grammar, name = _grammar()
    cached = os.path.join(cache_folder(), name)
    data = _read(os.path.join(_grammar_folder(), name))
    if data is None:
        data = _read(cached)
    if data is None:
        data = _compute(grammar)
        _write(cached, data)
    return _tables(data)


def ship() -> None:
    """Write the tables beside the grammar, for a wheel that is being built. Raises `InternalError`
    where they cannot be written."""
    grammar, name = _grammar()
    path = os.path.join(_grammar_folder(), name)
    _write(path, _compute(grammar))
    if _read(path) is None:
        message = f"{path} could not be written"
        raise InternalError(message)


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
    """Keep the data; written aside and renamed, so that no reader sees half a file."""
    content = marshal.dumps(data, _MARSHAL)
    content = zlib.crc32(content).to_bytes(4, "little") + content
    aside = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(aside, "wb") as file:
            file.write(content)
        os.replace(aside, path)
    except OSError:
        return  # A cache that cannot be written: the next run computes the tables again.


def _tables(data: Any) -> Tables:
    start, end, actions, gotos, rules, patterns, literals = data
    return Tables(
        start,
        end,
        actions,
        gotos,
        tuple(Rule(*rule) for rule in rules),
        patterns,
        frozenset(literals),
    )


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
            message = "the driver of sketchc.parsing.parser reads the tables"
            raise InternalError(message)

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
