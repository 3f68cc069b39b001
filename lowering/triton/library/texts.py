"""The source text of device functions and of what they call, for generated files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

#: The files with device functions; each calls functions of its own and of those before it.
FILES = ("functions.py", "device_ordering.py", "device_random.py")


@cache
def _sources() -> dict[str, tuple[str, frozenset[str]]]:
    """Function name -> (text with decorator, names it reads), in the order of the files."""
    found = {}
    for name in FILES:
        text = Path(__file__).with_name(name).read_text("utf-8")
        lines = text.splitlines()
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef):
                first = node.decorator_list[0].lineno - 1
                used = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
                found[node.name] = ("\n".join(lines[first : node.end_lineno]), frozenset(used))
    return found


def function_names() -> tuple[str, ...]:
    """All device functions."""
    return tuple(_sources())


def with_callees(names: Iterable[str]) -> set[str]:
    """These functions and all that they call."""
    sources = _sources()
    needed: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in needed:
            needed.add(name)
            pending.extend(used for used in sources[name][1] if used in sources)
    return needed


def function_sources(names: Iterable[str], renamed: Mapping[str, str]) -> list[str]:
    """The texts of these functions and of all they call, callees first; `renamed` ones under their
    new names."""
    sources = _sources()
    needed = with_callees(names)
    texts = [text for name, (text, _) in sources.items() if name in needed]
    for old, new in renamed.items():
        texts = [re.sub(rf"(?<![.\w]){old}\b", new, text) for text in texts]
    return texts
