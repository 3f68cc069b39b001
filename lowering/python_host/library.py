"""Definitions of a Python file as text, for the generated files that carry them along."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import attrs

from sketchc.lowering.kernel import LibraryPart


@attrs.frozen
class Definition:
    """A function or a class: its text with decorators, and the names that it reads."""

    text: str
    reads: frozenset[str]


@cache
def definitions(file: Path) -> Mapping[str, Definition]:
    """The definitions of a file by name, in order; each reads only those before it."""
    text = file.read_text("utf-8")
    lines = text.splitlines()
    found = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            first = min(part.lineno for part in (node, *node.decorator_list))
            reads = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
            own = "\n".join(lines[first - 1 : node.end_lineno])
            found[node.name] = Definition(own, frozenset(reads))
    return found


def with_callees(names: Iterable[str], file: Path) -> list[str]:
    """The names of these definitions of a file and of all that they read, in the file's order."""
    known = definitions(file)
    needed = set(names)
    for name in reversed(list(known)):
        if name in needed:
            needed |= known[name].reads
    return [name for name in known if name in needed]


def part_of(
    file: Path, names: Iterable[str], renamed: Mapping[str, str] | None = None
) -> LibraryPart:
    """The named definitions of a file and all that they read; `renamed` maps old names to new."""
    needed, new_names = with_callees(names, file), renamed or {}
    text = "\n\n\n".join(definitions(file)[name].text for name in needed)
    for old, new in new_names.items():
        text = re.sub(rf"(?<![.\w]){old}\b", new, text)
    return LibraryPart(tuple(new_names.get(name, name) for name in needed), text)
