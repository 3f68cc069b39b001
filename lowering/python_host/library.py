"""Definitions of Python files as text, for the generated files that carry them along."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
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
def definitions(files: tuple[Path, ...]) -> Mapping[str, Definition]:
    """The definitions of some files by name, in order; each reads only those before it."""
    return {name: found for file in files for name, found in _definitions(file)}


def _definitions(file: Path) -> Iterator[tuple[str, Definition]]:
    text = file.read_text("utf-8")
    lines = text.splitlines()
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            first = min(part.lineno for part in (node, *node.decorator_list))
            reads = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
            own = "\n".join(lines[first - 1 : node.end_lineno])
            yield node.name, Definition(own, frozenset(reads))


def with_callees(names: Iterable[str], files: tuple[Path, ...]) -> list[str]:
    """The names of these definitions of some files and of all that they read, in that order."""
    known = definitions(files)
    needed = set(names)
    for name in reversed(list(known)):
        if name in needed:
            needed |= known[name].reads
    return [name for name in known if name in needed]


def part_of(
    files: tuple[Path, ...], names: Iterable[str], renamed: Mapping[str, str] | None = None
) -> LibraryPart:
    """The named definitions of some files and what they read; `renamed` maps old names to new."""
    needed, new_names = with_callees(names, files), renamed or {}
    text = "\n\n\n".join(definitions(files)[name].text for name in needed)
    for old, new in new_names.items():
        text = re.sub(rf"(?<![.\w]){old}\b", new, text)
    return LibraryPart(tuple(new_names.get(name, name) for name in needed), text)
