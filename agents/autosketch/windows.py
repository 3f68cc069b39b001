"""Windows in the subscripts of a phase, and digits, which look like them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sketchc.agents.autosketch.loops import elements
from sketchc.agents.autosketch.phase import Phase
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic
from sketchc.ir.walk import names, substitute

#: Up to so many rows or columns of a matrix product are one block.
ONE_BLOCK = 16


def windows(phase: Phase) -> set[str]:
    """The axes of windows: they shift a subscript that a row or column is in, and are no digit; and
    those that run into the padding of a value, which in lanes would count as data."""
    digits = (axis for axis, _ in phase.digits)
    rows = {axis.name for axis in (*phase.rows, *phase.columns, *digits)}
    extents = extents_of(phase)
    found: set[str] = set()
    for element in (e for s in phase.scalars() for e in elements(s)):
        for subscript in element.index:
            own = names(subscript) & rows
            others = names(subscript) - rows if own or element.pad is not None else set[str]()
            found |= {name for name in others if not is_digit(subscript, name, own, extents)}
    return found


def extents_of(phase: Phase) -> dict[str, ir.Expr]:
    """The extents of a phase's axes by name, those of digits among them."""
    digits = tuple(axis for axis, _ in phase.digits)
    return {axis.name: axis.extent for group in (*phase.groups, digits) for axis in group}


def is_digit(
    subscript: ir.Expr, name: str, others: Collection[str], extents: Mapping[str, ir.Expr]
) -> bool:
    """Whether the axis `name` is the last digit of the number `subscript`, with a larger extent
    than a window has: one of the axes `others` moves the subscript by just that extent."""
    extent = extents.get(name)
    if extent is None or (isinstance(extent, ir.Literal) and extent.value <= ONE_BLOCK):
        return False
    line = line_of(subscript, name)
    return (
        line is not None
        and line[0] == 1
        and any(symbolic.equal(moved(subscript, other), extent) for other in others)
    )


def leaps(phase: Phase) -> bool:
    """Whether windows along the digits of a phase's last row are several elements apart."""
    digits = [axis.name for axis, _ in phase.digits]
    subscripts = (each for s in phase.scalars() for e in elements(s) for each in e.index)
    lines = (line_of(each, name) for each in subscripts for name in digits if name in names(each))
    return any(line is not None and abs(line[0]) > 1 for line in lines)


def moved(subscript: ir.Expr, name: str) -> ir.Expr:
    """By how much a subscript grows when the axis `name` grows by 1."""
    further = ir.Binary("+", ir.Ref(name, ir.NameKind.LOOP), ir.Literal(1))
    return ir.Binary("-", substitute(subscript, {name: further}), subscript)


def line_of(expression: ir.Expr, lane: str) -> tuple[int, ir.Expr] | None:
    """Step and rest where `expression` is step*lane + rest, with a constant step; else None."""
    ref = ir.Ref(lane, ir.NameKind.LOOP)
    moved = substitute(expression, {lane: ir.Binary("+", ref, ir.Literal(1))})
    step = symbolic.constant_value(ir.Binary("-", moved, expression))
    if step is None or step == 0:
        return None
    rest = symbolic.simplify(ir.Binary("-", expression, ir.Binary("*", ir.Literal(step), ref)))
    return None if lane in names(rest) else (step, rest)
