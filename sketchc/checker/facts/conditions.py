"""Conditions as alternatives: `i < n or j == 0` as systems of affine facts, one of which holds.

`Scope.compare` gives what follows from a condition, which is all that a bound needs. Whether a
store under a condition covers an element needs the condition itself: here nothing is lost. A part
that is not affine becomes an atom of its own, the same one wherever it is written, so that the two
sides of an `if` on it exclude each other and leave nothing out.
"""

from __future__ import annotations

from typing import TypeAlias

from sketchc.base.types import DType
from sketchc.checker.facts.affine import ONE, Fact, Linear, add, constant, constant_value, scale
from sketchc.checker.facts.scope import Scope, is_float
from sketchc.ir import nodes as ir
from sketchc.ir.show import show
from sketchc.ir.symbolic import OPPOSITE
from sketchc.ir.walk import names, references

#: Alternatives, each a conjunction; none: never; an empty one: always.
Cases: TypeAlias = tuple[tuple[Fact, ...], ...]
ALWAYS: Cases = ((),)

#: More alternatives than this are not told apart.
CASE_LIMIT = 16

#: What the names of atoms for conditions that the host knows start with.
HOST_CONDITION = "'if "

_HOST = (
    ir.NameKind.SYMBOL,
    ir.NameKind.PARAM,
    ir.NameKind.CONSTANT,
    ir.NameKind.LET,
    ir.NameKind.PRESENT,
)


def cases(scope: Scope, condition: ir.Expr, holds: bool = True) -> Cases:
    """The alternatives in which a condition without lanes holds (or does not)."""
    match condition:
        case ir.Literal(value):
            return ALWAYS if bool(value) == holds else ()
        case ir.Unary("not", operand):
            return cases(scope, operand, not holds)
        case ir.Binary("and" | "or" as operator, left, right):
            sides = (cases(scope, left, holds), cases(scope, right, holds))
            return both(*sides) if (operator == "and") == holds else _either(*sides)
        case ir.Binary(operator, left, right) if operator in OPPOSITE and not is_float(condition):
            gap = add(scope.form(right), scope.form(left), -1)
            return _related(operator if holds else OPPOSITE[operator], gap)
        case ir.Ref(dtype=dtype) if dtype.is_integer and dtype is not DType.BOOL:
            return _related("!=" if holds else "==", scope.form(condition))
        case _:
            return _opaque(scope, condition, holds)


def both(left: Cases, right: Cases) -> Cases:
    """The alternatives of two conditions that hold together."""
    if left == ALWAYS or not right:
        return right
    if right == ALWAYS or not left:
        return left
    return tuple((*one, *two) for one in left for two in right)


def _either(left: Cases, right: Cases) -> Cases:
    return ALWAYS if ALWAYS in (left, right) else (*left, *right)


def _related(operator: str, gap: Linear) -> Cases:
    """`left operator right` for gap = right - left."""
    known = constant_value(gap)
    if known is not None:
        zero, positive = known == 0, known > 0
        holds = {
            "==": zero,
            "!=": not zero,
            "<": positive,
            "<=": positive or zero,
            ">": not positive and not zero,
            ">=": not positive,
        }[operator]
        return ALWAYS if holds else ()
    back = scale(gap, -1)
    match operator:
        case "==":
            return ((Fact(gap, equality=True),),)
        case "!=":
            return ((_positive(gap),), (_positive(back),))
        case "<":
            return ((_positive(gap),),)
        case "<=":
            return ((Fact(gap),),)
        case ">":
            return ((_positive(back),),)
        case _:
            return ((Fact(back),),)


def _positive(form: Linear) -> Fact:
    return Fact(add(form, constant(-1)))


def _opaque(scope: Scope, condition: ir.Expr, holds: bool) -> Cases:
    """A condition that is not affine: true is 1, false is 0."""
    if isinstance(condition, ir.Ref) and condition.name in scope.forms:
        form: Linear = scope.forms[condition.name]
        known = constant_value(form)
        if known is not None:
            return ALWAYS if bool(known) == holds else ()
    elif all(name.kind in _HOST for name in references(condition)):
        form = {scope.atoms.variable(HOST_CONDITION + show(condition), True): 1}
    else:
        form = unknown(scope, condition)
    return ((Fact(add(form, {ONE: -1} if holds else {}), equality=True),),)


def unknown(scope: Scope, expression: ir.Expr, suffix: str | None = None) -> Linear:
    """The atom for a quantity of which nothing is known but where it is evaluated. `suffix` tells
    apart what two iterations know, as the scope's own does."""
    places = [
        f"{name}={scope.atoms.describe(scope.forms[name])}"
        for name in sorted(names(expression))
        if name in scope.forms
    ]
    tag = scope.suffix if suffix is None else suffix
    key = f"{expression!r}{tag} at {', '.join(places)}"
    loops: tuple[ir.For | ir.HostFor, ...] = (*scope.hosts, *scope.loops)
    counters = frozenset(scope.counter(loop) for loop in loops)
    return {scope.atoms.opaque(key, counters): 1}
