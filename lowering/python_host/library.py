"""Definitions of a Python file as text, for the generated files that carry them along."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import attrs


@attrs.frozen
class Definition:
    """A function or a class: its text with decorators, and the names that it reads."""

    text: str
    reads: frozenset[str]


@cache
def definitions(file: Path) -> Mapping[str, Definition]:
    """Those of a file by name, in its order; each reads only those before it."""
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
    """These definitions of a file and all that they read, in its order."""
    known = definitions(file)
    needed = set(names)
    for name in reversed(list(known)):
        if name in needed:
            needed |= known[name].reads
    return [name for name in known if name in needed]


def texts(names: Iterable[str], file: Path, renamed: Mapping[str, str] | None = None) -> list[str]:
    """The texts of these definitions and of all that they read; `renamed` ones under their new
    names."""
    found = [definitions(file)[name].text for name in with_callees(names, file)]
    for old, new in (renamed or {}).items():
        found = [re.sub(rf"(?<![.\w]){old}\b", new, text) for text in found]
    return found
