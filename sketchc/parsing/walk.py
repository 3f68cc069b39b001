"""Walking the syntax tree: nodes below a node, the names used there, the statements of a body."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sketchc.base import records
from sketchc.base.diagnostics import Span
from sketchc.parsing import syntax


def parts(node: object) -> Iterator[object]:
    """A node, or each of a tuple of nodes, and all nodes below it, in the order of their fields;
    nothing for None and for words."""
    if isinstance(node, tuple):
        for part in node:
            yield from parts(part)
    elif records.has(kind := type(node)) and not isinstance(node, Span):
        yield node
        for field in records.fields(kind):
            yield from parts(getattr(node, field.name))


def names(node: object) -> Iterator[str]:
    """Every name that an expression (or slice, or None) uses."""
    return (part.id for part in parts(node) if isinstance(part, syntax.Name))


def statements(body: Iterable[syntax.Statement]) -> Iterator[syntax.Statement]:
    """All statements, in the order of the text."""
    for statement in body:
        yield statement
        match statement:
            case syntax.For(body=inner):
                yield from statements(inner)
            case syntax.If(body=inner, orelse=other):
                yield from statements((*inner, *other))
            case _:
                pass
