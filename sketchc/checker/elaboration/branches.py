"""Conditions of `if`: what is known of them at compile time, and which tensors they vouch for."""

from __future__ import annotations

from collections.abc import Callable

from sketchc.base.types import DType
from sketchc.checker.calls.expressions import condition, evaluate_constant
from sketchc.checker.calls.layouts import has_lanes
from sketchc.checker.context.context import Context, Typed
from sketchc.checker.context.lets import without_functions
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.parsing import syntax

#: What is reported of a branch that is not taken: the rest may depend on the constants.
_ALWAYS_WRONG = frozenset(["SK0201", "SK0210"])


def uniform(context: Context, node: syntax.Expression) -> ir.Expr:
    """The condition of an `if`, without the parts that are known; raises `InvalidError` after
    reporting one that has lanes or is none."""
    context.asking = True
    try:
        typed = condition(context, node)
    finally:
        context.asking = False
    if typed.extents is not None:
        raise context.error(
            node.span,
            "SK0324",
            "the condition of an `if` is the same for all lanes",
            "has lanes",
            help="choose lane by lane with `where(condition, a, b, dst)`, or mask a load or store "
            "with `where=`",
        )
    value = _reduced(context, typed.value, node)
    return without_functions(context, Typed(value, DType.BOOL), node.span)


def decided(value: ir.Expr) -> bool | None:
    """The truth of a reduced condition where it is known at compile time."""
    return bool(value.value) if isinstance(value, ir.Literal) else None


def _reduced(context: Context, value: ir.Expr, node: syntax.Expression) -> ir.Expr:
    match value:
        case ir.Unary("not", operand):
            operand = _reduced(context, operand, node)
            known = decided(operand)
            if known is not None:
                return ir.Literal(not known, span=value.span)
            return ir.Unary("not", operand, span=value.span)
        case ir.Binary("and" | "or" as operator, left, right):
            left, right = (_reduced(context, side, node) for side in (left, right))
            for side, other in ((left, right), (right, left)):
                known = decided(side)
                if known is not None:
                    settles = known == (operator == "or")
                    return side if settles else other
            return ir.Binary(operator, left, right, span=value.span)
        case _:
            names = walk.names(value)
            if has_lanes(value) or _asks(value) or not names <= context.values.keys():
                return value
            return ir.Literal(bool(evaluate_constant(context, value, node.span)), span=value.span)


def _asks(value: ir.Expr) -> bool:
    return any(one.kind is ir.NameKind.PRESENT for one in walk.references(value))


def given(value: ir.Expr, holds: bool) -> frozenset[str]:
    """The optional tensors that are present wherever a condition holds (or does not)."""
    match value:
        case ir.Ref(name=name, kind=ir.NameKind.PRESENT):
            return frozenset([name]) if holds else frozenset()
        case ir.Unary("not", operand):
            return given(operand, not holds)
        case ir.Binary("and" | "or" as operator, left, right):
            both = holds == (operator == "and")
            first, second = given(left, holds), given(right, holds)
            return first | second if both else first & second
        case _:
            return frozenset()


def look_over(
    context: Context,
    body: tuple[syntax.Statement, ...],
    block: Callable[[Context, tuple[syntax.Statement, ...]], object],
) -> None:
    """Report the unknown names of a branch that is not taken, and note the tensors it accesses."""
    trial = context.trial()
    trial.present.update(tensor.name for tensor in context.tensors)
    with trial.branch(frozenset()):
        block(trial, body)
    context.asked.append((lambda values: values.trial().again(trial.asked), True))
    known = [found for found in trial.diagnostics if found.code in _ALWAYS_WRONG]
    context.diagnostics.extend(known)
