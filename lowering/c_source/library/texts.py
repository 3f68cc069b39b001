"""The libraries of generated files: each file carries the pieces that it uses, and their needs.

The headers of this folder, and of the targets' own, are C++ as it is. Blank lines separate pieces,
and a piece bears the name of what it defines first; `//# NAME` above one gives it another name, and
`//# NAME (with A, B)` says that a file carries it where it carries A and B. A piece needs the
pieces that its code names, be it by a variable of the same name: that costs text, no more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from functools import cached_property
from pathlib import Path

import attrs

_OPENING, _CLOSING = "namespace sketch {", "} // namespace sketch"
_MARK = re.compile(r"//# (\w+)(?: \(with ([\w, ]+)\))?\n")
#: Between pieces; blank lines inside a class are no end of it.
_GAP = re.compile(r"\n\n(?=\S)(?!private:|protected:)")
_DEFINED = re.compile(
    r"(?:class|struct) (\w+) (?:: public \w+ )?\{|constexpr \w+ (\w+) =|using (\w+) =|(\w+)\("
)
#: What is no code.
_COMMENT = re.compile(r"//.*")
_INCLUDE = re.compile(r"^#include <\w+>$", re.MULTILINE)


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
        """The names in the code, but for the piece's own."""
        return set(re.findall(r"[A-Za-z_]\w*", _COMMENT.sub("", self.text))) - {self.name}


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


def shared(*names: str) -> tuple[Path, ...]:
    """The headers of these names in this folder."""
    return tuple(Path(__file__).with_name(name) for name in names)


@attrs.frozen(slots=False)
class Library:
    """The library of one target: its headers, in the order in which generated files carry their
    pieces. `spelled` gives the text of a piece of a header as the target takes it."""

    headers: tuple[Path, ...]
    spelled: Callable[[Path, str], str] = lambda _, text: text

    @cached_property
    def pieces(self) -> dict[str, Piece]:
        """Every piece by name, in order."""
        return {
            piece.name: attrs.evolve(piece, text=self.spelled(header, piece.text))
            for header in self.headers
            for piece in split(header.read_text("utf-8"))
        }

    @cached_property
    def includes(self) -> tuple[str, ...]:
        """The `#include` lines of all headers for what is not theirs."""
        texts = (header.read_text("utf-8") for header in self.headers)
        return tuple(sorted({line for text in texts for line in _INCLUDE.findall(text)}))

    def used(self, names: Collection[str]) -> list[str]:
        """The pieces of these names and all that they need, in the order of definition.

        Raises `KeyError` for a name that no piece has.
        """
        needed: set[str] = set()
        pending = set(names)
        while pending:
            needed |= pending
            words = (self.pieces[name].words for name in pending)
            pending = {need for found in words for need in found & self.pieces.keys()}
            carried = (p for p in self.pieces.values() if p.partners and p.partners <= needed)
            pending |= {piece.name for piece in carried}
            pending -= needed
        return [name for name in self.pieces if name in needed]

    def namespace(self, names: Collection[str]) -> str:
        """The namespace with the pieces of these names and what they need; empty without any."""
        used = [self.pieces[name] for name in self.used(names)]
        inside = [piece.text for piece in used if piece.inside]
        return "\n\n".join([_OPENING, *inside, _CLOSING]) if inside else ""
