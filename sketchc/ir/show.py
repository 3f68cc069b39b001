"""Expressions of the typed sketch as text of the sketch language, in messages and in plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import assert_never

from sketchc.base.precedence import (
    ATOM,
    CHOICE,
    PRECEDENCE,
    PRODUCT,
    SIGN,
    bracketed,
    operand_levels,
)
from sketchc.ir import nodes as ir
from sketchc.ops.host_functions import JOINING


def show(expression: ir.Expr, minimum: int = 0) -> str:
    """The expression in the sketch language, with no parentheses that it does not need; `minimum`
    says how tightly the outermost operator must bind to stand without them."""
    text, level = _show(expression)
    return bracketed(text, level, minimum)


def _show(expression: ir.Expr) -> tuple[str, int]:
    """The text and how tightly its outermost operator binds."""
    match expression:
        case ir.Literal(value):
            text = str(value)
            return text, PRODUCT - 1 if text.startswith("-") else ATOM
        case ir.Ref(name=name, kind=ir.NameKind.PRESENT):
            return f"present({name})", ATOM
        case ir.Ref(name=name, layout=layout):
            return name if layout is None else name + show_layout(layout), ATOM
        case ir.Unary(operator, operand):
            level = SIGN if operator == "-" else PRECEDENCE[operator]
            return ("-" if operator == "-" else "not ") + show(operand, level), level
        case ir.Binary(operator, left, right) if operator in JOINING:
            return f"{operator}({show(left)}, {show(right)})", ATOM
        case ir.Binary(operator, left, right):
            level = PRECEDENCE[operator]
            needed = operand_levels(operator)
            space = "" if level == PRODUCT else " "
            text = f"{show(left, needed[0])}{space}{operator}{space}{show(right, needed[1])}"
            return text, level
        case ir.Choice(condition, then, otherwise):
            return f"{show(then, 1)} if {show(condition, 1)} else {show(otherwise)}", CHOICE
        case ir.Function(name, arguments):
            return f"{name}({', '.join(map(show, arguments))})", ATOM
        case ir.Iota(extent, lower, upper, layout):
            parts = [extent]
            if upper is not None:
                parts += [lower, upper]
            elif lower != ir.Literal(0):
                parts.append(lower)
            shown = f"iota({', '.join(map(show, parts))})"
            return shown if layout == (True,) else shown + show_layout(layout), ATOM
        case ir.TileLanes(tile=tile, extents=extents, layout=layout):
            own = layout == (True,) * len(extents)
            return tile if own else tile + show_layout(layout), ATOM
        case _:
            assert_never(expression)


def range_arguments(
    loop: ir.For | ir.HostFor, shown: Callable[[ir.Expr], object] = show
) -> list[str]:
    """The arguments of a loop's `range` as text, written by `shown`; defaults are left out."""
    arguments = [loop.stop]
    if loop.start != ir.Literal(0) or loop.step != ir.Literal(1):
        arguments.insert(0, loop.start)
    if loop.step != ir.Literal(1):
        arguments.append(loop.step)
    return [str(shown(argument)) for argument in arguments]


def show_layout(layout: tuple[bool, ...]) -> str:
    """Text such as `[:, None]`: `:` for each own axis of a tile or an index tile, `None` for each
    new one."""
    return "[" + ", ".join(":" if own else "None" for own in layout) + "]"


def show_operand(operand: ir.Operand) -> str:
    """An operand as a sketch writes it."""
    if isinstance(operand, ir.TileOperand):
        return operand.tile + ("" if operand.layout is None else show_layout(operand.layout))
    return show(operand.value)


def assignments(values: Mapping[str, object]) -> str:
    """Named values as text, such as `M = 300, N = 520`."""
    return ", ".join(f"{name} = {value}" for name, value in values.items())


def element_text(name: str, element: tuple[int, ...]) -> str:
    """An element as text, such as `C[5, 0]`."""
    return f"{name}[{', '.join(str(index) for index in element)}]"
