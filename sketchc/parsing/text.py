"""Pieces of the syntax tree as one line of sketch text: comments of generated code, and fix-its.

The canonical spelling of everything is `sketchc.parsing.unparse`; whole files are printed by the
formatter, which also keeps comments and line breaks.
"""

from __future__ import annotations

from collections.abc import Iterable

from sketchc.base import records
from sketchc.base.diagnostics import Edit, Fix
from sketchc.base.types import DType
from sketchc.parsing import syntax, unparse


def expression_text(node: unparse.Part) -> str:
    """An expression, with the parentheses that it needs."""
    return unparse.expression(node)


def statement_text(node: syntax.Statement) -> str:
    """A simple statement, or the header of a loop or condition, hints omitted."""
    match node:
        case syntax.For():
            return unparse.loop(node)
        case syntax.If():
            return f"if {unparse.expression(node.condition)}:"
        case _:
            head, arguments = unparse.statement(node)
            return head if arguments is None else f"{head}({', '.join(arguments)})"


def line_edit(node: syntax.Statement, lines: Iterable[str]) -> Edit:
    indent = " " * (node.span.column - 1)
    return Edit(node.span, f"\n{indent}".join(lines))


def dtype_fix(node: syntax.Alloc, dtype: DType) -> Fix:
    """Give an alloc this element type."""
    text = statement_text(records.evolve(node, dtype=dtype))
    return Fix(f"make `{node.name}` {dtype.value}", (Edit(node.span, text),))
