"""The C++ library of generated files: each file carries the pieces that it uses, and their needs.

The headers of this folder are C++ as it is. Blank lines separate pieces, and a piece bears the name
of what it defines first; `//# NAME` above one gives it another name, and `//# NAME (with A, B)`
says that a file carries it where it carries A and B. A piece needs the pieces that its text names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import cache, cached_property
from pathlib import Path

import attrs

#: The headers, in the order in which generated files carry their pieces.
FILES = (
    "memory.hpp",
    "numbers.hpp",
    "functions.hpp",
    "matrix.hpp",
    "atomics.hpp",
    "lanes.hpp",
    "random.hpp",
    "launch.hpp",
    "reductions.hpp",
)

_OPENING, _CLOSING = "namespace sketch {", "} // namespace sketch"
_MARK = re.compile(r"//# (\w+)(?: \(with ([\w, ]+)\))?\n")
#: Between pieces; blank lines inside a class are no end of it.
_GAP = re.compile(r"\n\n(?=\S)(?!private:)")
_DEFINED = re.compile(r"(?:class|struct) (\w+) \{|constexpr \w+ (\w+) =|(\w+)\(")
_INCLUDE = re.compile(r"^#include <\w+>$", re.MULTILINE)
#: A function of the vector C library: of `float` with an f behind its name, or of `double`.
_DECLARATION = re.compile(r"SKETCH_VECTORS (?:float (\w+)f|double (\w+))\(")


@attrs.frozen
class Piece:
    """A definition with its comments; `partners` are the pieces with which it is carried, if any.
    `inside` says whether it stands in the namespace."""

    name: str
    text: str
    partners: frozenset[str]
    inside: bool

    @cached_property
    def words(self) -> set[str]:
        """The names in the text, but for the piece's own."""
        return set(re.findall(r"[A-Za-z_]\w*", self.text)) - {self.name}


def read(name: str) -> str:
    """The text of a header."""
    return Path(__file__).with_name(name).read_text("utf-8")


def split(header: str) -> Iterator[Piece]:
    """The pieces of a header's text."""
    before, _, rest = header.partition(_OPENING)
    for part in (before, rest.partition(_CLOSING)[0]):
        for text in _GAP.split(part.strip("\n")):
            mark = _MARK.match(text)
            name = mark[1] if mark else _defined(text)
            partners = frozenset(mark[2].split(", ") if mark and mark[2] else ())
            if name:
                yield Piece(name, text[mark.end() if mark else 0 :], partners, part is not before)


def _defined(text: str) -> str:
    """The name that C++ code defines first; empty for comments and directives alone."""
    found = _DEFINED.search(re.sub(r"^(?://|#).*", "", text, flags=re.MULTILINE))
    return next(name for name in found.groups() if name) if found else ""


@cache
def pieces() -> dict[str, Piece]:
    """Every piece by name, in the order of the headers."""
    return {piece.name: piece for file in FILES for piece in split(read(file))}


def used_pieces(names: Collection[str]) -> list[str]:
    """The pieces of these names and all that they need, in the order of definition.

    Raises `KeyError` for a name that no piece has.
    """
    needed: set[str] = set()
    pending = set(names)
    while pending:
        needed |= pending
        pending = {need for name in pending for need in pieces()[name].words & pieces().keys()}
        pending |= {p.name for p in pieces().values() if p.partners and p.partners <= needed}
        pending -= needed
    return [name for name in pieces() if name in needed]


def library_text(names: Collection[str]) -> str:
    """What a file that uses these pieces carries: declarations, the namespace, OpenMP's reductions.

    Empty without names.
    """
    used = used_pieces(names)
    inside = [pieces()[name].text for name in used if pieces()[name].inside]
    after = "\n".join(pieces()[name].text for name in used if not pieces()[name].inside)
    namespace = [_OPENING, *inside, _CLOSING] if inside else []
    parts = [*_declarations(set(used)), *namespace, after]
    return "\n\n".join(part for part in parts if part)


def _declarations(used: set[str]) -> list[str]:
    """The declarations of the vector C library for the pieces that are functions of it."""
    lines = pieces()["declarations"].text.splitlines()
    declared = {line: {*found.groups()} for line in lines if (found := _DECLARATION.match(line))}
    unused = {line for line, names in declared.items() if not names & used}
    if unused == declared.keys():
        return []
    return ["\n".join(line for line in lines if line not in unused)]


def include_lines(names: Collection[str]) -> str:
    """The `#include` lines of the whole library and of OpenMP; the intrinsics' where used."""
    found = {line for file in FILES for line in _INCLUDE.findall(read(file))}
    lines = [*sorted(found), "#include <omp.h>"]
    if "stream" in names:
        lines.append(pieces()["intrinsics"].text)
    return "\n".join(lines)
