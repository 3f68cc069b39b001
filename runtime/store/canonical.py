"""The canonical form of a sketch, and its hash: the sketch's name in the store.

Two sketches have the same form exactly when they differ only in layout, comments, spelling of
numbers, the sketch's own name, and the names that its body binds: tiles, loop variables, bound and
fetched values. Everything else is kept: the names and the order of declarations (tensors, symbols,
params, constants: callers use them), constants with their values and choices, hints, tuning points,
operations, and the order of statements.

The form is made from the syntax tree and not from the typed IR, which is elaborated for one choice
of constants and has lost the branches that this choice does not take: sketches that differ only
there would have the same form. Renaming is sound, since the language has no shadowing: a visible
name is not bound again, and the scope of a name bound in a block ends with the block
(`checker/elaboration`). The n-th name that the body binds becomes n, and every use is resolved to
its binding.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs

from sketchc.base import records
from sketchc.base.types import DType
from sketchc.checker.api import bindable
from sketchc.parsing import syntax

#: Increased by one with every change to the form: hashes of different versions differ.
VERSION = 1


def canonical_hash(sketch: syntax.Sketch) -> str:
    """The SHA-256 of the sketch's canonical form, in hexadecimal."""
    text = json.dumps([VERSION, canonical_form(sketch)], separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def canonical_form(sketch: syntax.Sketch) -> list[Any]:
    """The canonical form as nested lists of strings, numbers as text, booleans and None.

    A node is a list that begins with its class; a declared name is a string, and a name that the
    body binds is `["local", n]`.
    """
    writer = _Writer(bindable(sketch))
    return [
        [writer.plain(each) for each in sketch.sections if each.keyword != "types"],
        writer.block(sketch.body),
        [writer.plain(point) for point in sketch.tilings],
    ]


@attrs.define
class _Writer:
    """Writes nodes in source order; `scope` maps the visible names of the body to their numbers.

    `kept` are the names that `--set` can bind, which are not renamed: constants bound in the body
    among them.
    """

    kept: frozenset[str]
    scope: dict[str, int] = attrs.field(factory=dict)
    made: int = 0

    @contextmanager
    def inner(self) -> Iterator[None]:
        """A context for a block: the scope of names bound in the block ends with it."""
        outer, self.scope = self.scope, dict(self.scope)
        try:
            yield
        finally:
            self.scope = outer

    def make(self, name: str) -> Any:
        """Bind `name` for the rest of its block; returns its form."""
        if name in self.kept:
            return name
        self.scope[name] = self.made
        self.made += 1
        return self.name(name)

    def name(self, name: str) -> Any:
        return ["local", self.scope[name]] if name in self.scope else name

    def block(self, body: tuple[syntax.Statement, ...]) -> list[Any]:
        with self.inner():
            return [self.statement(statement) for statement in body]

    def statement(self, node: syntax.Statement) -> list[Any]:
        """The form of one statement: names that it reads are resolved before it binds its own."""
        match node:
            case syntax.For():
                head = [self.plain(node.hints), self.plain(node.arguments)]
                with self.inner():
                    return ["For", *head, self.make(node.variable.id), self.block(node.body)]
            case syntax.If():
                kind = "Block" if node.block else "If"
                branches = self.block(node.body), self.block(node.orelse)
                return [kind, self.plain(node.condition), *branches]
            case syntax.Binding():
                values = self.plain(node.values)
                return ["Binding", values, [self.make(name.id) for name in node.names]]
            case syntax.Alloc():
                parts = [node.extents, node.dtype, node.init, node.hints]
                return ["Alloc", *map(self.plain, parts), self.make(node.name)]
            case syntax.Fetch():
                return ["Fetch", self.plain(node.access), self.make(node.name)]
            case _:
                return self.fields(node)

    def plain(self, value: Any) -> Any:
        """The form of any part of the syntax tree that binds no name."""
        match value:
            case None | bool() | str():
                return value
            case tuple():
                return [self.plain(item) for item in value]
            case syntax.Name():
                return ["Name", self.name(value.id)]
            case syntax.Number():
                # The type counts: 1 and 1.0 are not the same operand.
                return ["Number", type(value.value).__name__, repr(value.value)]
            case DType():
                return ["DType", value.value]
            case _:
                return self.fields(value)

    def fields(self, node: Any) -> list[Any]:
        """The form of a node, by its fields that take part in equality: without source positions
        and accepted misspellings."""
        parts = [self.plain(getattr(node, f.name)) for f in records.fields(type(node)) if f.eq]
        return [type(node).__name__, *parts]
