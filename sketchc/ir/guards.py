"""Conditions of launches under the branches around a statement: a launch that does not reach the
statement need not fulfil them.

A divisor of at least 1, a subscript in range, or a view with as many elements as an optional tensor
is a condition of the launches that get there: `not present(S) or G >= 1`.
"""

from __future__ import annotations

from collections.abc import Iterator

from sketchc.ir import nodes as ir
from sketchc.ir.symbolic import conjuncts, constant_value, has_floats, negated


def consequences(condition: ir.Expr, holds: bool = True) -> Iterator[ir.Expr]:
    """The conditions that follow where `condition` is `holds`: from `not (a or b)`, `not a` and
    `not b`."""
    match condition:
        case ir.Unary("not", operand):
            yield from consequences(operand, not holds)
        case ir.Binary("and" | "or" as operator, left, right) if (operator == "and") == holds:
            yield from consequences(left, holds)
            yield from consequences(right, holds)
        case _:
            yield condition if holds else negated(condition)


def alternatives(condition: ir.Expr) -> tuple[ir.Expr, ...]:
    """The operands that `or` joins in a condition: at least one holds where the condition does."""
    return tuple(conjuncts(condition, "or"))


def where(guards: tuple[ir.Expr, ...], condition: ir.Expr) -> ir.Expr | None:
    """The condition weakened by `guards`: `not guard or condition`; None where a guard implies
    it."""
    if any(_implies(guard, condition) for guard in guards):
        return None
    for guard in reversed(dict.fromkeys(guards)):
        condition = ir.Binary("or", negated(guard), condition)
    return condition


def _implies(guard: ir.Expr, condition: ir.Expr) -> bool:
    """Whether an integer comparison implies another that differs by a constant: `G > 0` implies
    `G >= 1`."""
    known, wanted = _gap(guard), _gap(condition)
    if known is None or wanted is None:
        return False
    more = constant_value(ir.Binary("-", wanted, known))
    return more is not None and more >= 0


def _gap(condition: ir.Expr) -> ir.Expr | None:
    """The expression that is at least 0 exactly where an integer comparison holds, else None."""
    if has_floats(condition):
        return None
    match condition:
        case ir.Binary(">=", left, right):
            return ir.Binary("-", left, right)
        case ir.Binary("<=", left, right):
            return ir.Binary("-", right, left)
        case ir.Binary(">", left, right):
            return ir.Binary("-", ir.Binary("-", left, right), ir.Literal(1))
        case ir.Binary("<", left, right):
            return ir.Binary("-", ir.Binary("-", right, left), ir.Literal(1))
        case _:
            return None
