"""Pieces of the syntax tree as one line of sketch text: comments of generated code, and fix-its.

The canonical spelling of everything is `sketchc.parsing.unparse`; whole files are printed by the
formatter, which also keeps comments and line breaks.
"""

from __future__ import annotations

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
