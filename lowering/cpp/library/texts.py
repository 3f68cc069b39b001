"""The library of generated C++: what is C++ on any machine, and what the threads of a CPU need."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from sketchc.lowering.c_source.library.texts import Library, shared

_FOLDER = Path(__file__).parent

LIBRARY = Library(
    (
        _FOLDER / "memory.hpp",
        *shared("numbers.hpp", "functions.hpp"),
        _FOLDER / "division.hpp",
        _FOLDER / "matrix.hpp",
        _FOLDER / "atomics.hpp",
        *shared("lanes.hpp", "scans.hpp", "random.hpp", "launch.hpp"),
        _FOLDER / "reductions.hpp",
    )
)

#: A function of the vector C library: of `float` with an f behind its name, or of `double`.
_DECLARATION = re.compile(r"SKETCH_VECTORS (?:float (\w+)f|double (\w+))\(")


def read(name: str) -> str:
    """The text of a header of this folder."""
    return (_FOLDER / name).read_text("utf-8")


def library_text(names: Collection[str]) -> str:
    """What a file that uses these pieces carries: declarations, the namespace, OpenMP's reductions.

    Empty without names.
    """
    used = LIBRARY.used(names)
    outside = (LIBRARY.pieces[name] for name in used)
    after = "\n".join(piece.text for piece in outside if not piece.inside)
    parts = [*_declarations(set(used)), LIBRARY.namespace(names), after]
    return "\n\n".join(part for part in parts if part)


def _declarations(used: set[str]) -> list[str]:
    """The declarations of the vector C library for the pieces that are functions of it."""
    lines = LIBRARY.pieces["declarations"].text.splitlines()
    declared = {line: {*found.groups()} for line in lines if (found := _DECLARATION.match(line))}
    unused = {line for line, names in declared.items() if not names & used}
    if unused == declared.keys():
        return []
    return ["\n".join(line for line in lines if line not in unused)]


def include_lines(names: Collection[str]) -> str:
    """The `#include` lines of the whole library and of OpenMP; the intrinsics' where used."""
    lines = [*LIBRARY.includes, "#include <omp.h>"]
    if "stream" in names:
        lines.append(LIBRARY.pieces["intrinsics"].text)
    return "\n".join(lines)
