"""Pieces of the syntax tree as one line of sketch text: comments of generated code, and fix-its.

Whole files are printed by the formatter, which also keeps comments and line breaks.
"""

from __future__ import annotations

from typing import assert_never

from sketchc import syntax
from sketchc.symbolic import PRECEDENCE

_TIGHT = ("*", "/", "//", "%")
_Part = syntax.Expression | syntax.Slice | syntax.NewAxis


def expression_text(node: _Part, minimum: int = 0) -> str:
    """An expression, with parentheses where its operator binds less tightly than `minimum`."""
    match node:
        case syntax.Name(id=name):
            return name
        case syntax.Number(text=text):
            return text
        case syntax.Boolean(value=value):
            return str(value)
        case syntax.String(value=value):
            return f'"{value}"'
        case syntax.Unary(operator, operand):
            level = PRECEDENCE["not" if operator == "not" else "negate"]
            text = ("not " if operator == "not" else operator) + expression_text(operand, level)
            return f"({text})" if level < minimum else text
        case syntax.Binary(operator, left, right):
            level = PRECEDENCE[operator]
            comparison = level == PRECEDENCE["<"]
            space = "" if operator in _TIGHT else " "
            text = (
                expression_text(left, level + 1 if comparison else level)
                + f"{space}{operator}{space}"
                + expression_text(right, level + 1)
            )
            return f"({text})" if level < minimum else text
        case syntax.Call(function, arguments, keywords):
            return f"{function}({_arguments(arguments, keywords)})"
        case syntax.Subscript(base, subscripts):
            inner = ", ".join(expression_text(part) for part in subscripts)
            return f"{expression_text(base, 9)}[{inner}]"
        case syntax.List(items):
            return f"[{', '.join(expression_text(item) for item in items)}]"
        case syntax.Slice(lower, upper, step):
            text = ":".join(
                "" if part is None else expression_text(part) for part in (lower, upper)
            )
            return text if step is None else f"{text}:{expression_text(step)}"
        case syntax.NewAxis():
            return "None"
        case _:
            assert_never(node)


def _arguments(
    arguments: tuple[syntax.Expression, ...], keywords: tuple[syntax.Keyword, ...]
) -> str:
    parts = [expression_text(argument) for argument in arguments]
    parts += [f"{keyword.name}={expression_text(keyword.value)}" for keyword in keywords]
    return ", ".join(parts)


def statement_text(node: syntax.Statement) -> str:
    """A simple statement, or the header of a loop or condition, hints omitted."""
    match node:
        case syntax.Alloc():
            return _alloc_text(node)
        case syntax.Load(access, tile, keywords):
            inner = f"{expression_text(access)} -> {tile.id}"
            return f"load({inner}{_tail(keywords)})"
        case syntax.Store(tile, access, keywords):
            return f"store({tile.id} -> {expression_text(access)}{_tail(keywords)})"
        case syntax.Atomic(operation, tile, access, keywords):
            return f"{operation}({tile.id} -> {expression_text(access)}{_tail(keywords)})"
        case syntax.Fetch(name, access):
            return f"{name} = fetch({expression_text(access)})"
        case syntax.Compute(operation, arguments, keywords):
            return f"{operation}({_arguments(arguments, keywords)})"
        case syntax.Binding(names, values):
            left = ", ".join(name.id for name in names)
            return f"{left} = {', '.join(expression_text(value) for value in values)}"
        case syntax.For(variable, arguments):
            return f"for {variable.id} in range({_arguments(arguments, ())}):"
        case syntax.If(condition):
            return f"if {expression_text(condition)}:"
        case syntax.Pass():
            return "pass"
        case _:
            assert_never(node)


def _tail(keywords: tuple[syntax.Keyword, ...]) -> str:
    return f", {_arguments((), keywords)}" if keywords else ""


def _alloc_text(node: syntax.Alloc) -> str:
    parts = [f"[{', '.join(expression_text(extent) for extent in node.extents)}]"]
    if node.dtype is not None:
        parts.append(node.dtype.value)
    if node.init is not None:
        parts.append(f"init={expression_text(node.init)}")
    if node.hints:
        words = ", ".join(f'"{hint.value}"' for hint in node.hints)
        parts.append(f"llm_hint=[{words}]" if len(node.hints) > 1 else f"llm_hint={words}")
    return f"{node.name} = alloc({', '.join(parts)})"
