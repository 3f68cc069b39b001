"""Scalars on which an operation on integers has no value: a divisor of 0, a negative power, a shift
by as many bits as there are (SK0329).

Such a scalar stands on every lane. One that is known now is an error; of one that the host knows it
is a condition of the launches that get there. What loop variables and data decide is seen by the
interpreter alone (SK0807).
"""

from __future__ import annotations

from collections.abc import Iterator

from sketchc.base.types import DType
from sketchc.checker.calls.calls import Call
from sketchc.checker.context.context import Interval
from sketchc.checker.context.shapes import interval
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic
from sketchc.ops.table import Partial

#: What is wrong with the second operand of an operation, and what it may be.
_WRONG = {
    Partial.QUOTIENT: ("divides by 0", "another number than 0"),
    Partial.REMAINDER: ("divides by 0", "another number than 0"),
    Partial.POWER: ("takes a negative power", "0 or more"),
    Partial.SHIFT: ("shifts too far", "0 or more, and less than the bits of the type"),
}


def check_second_operand(call: Call, dtype: DType) -> None:
    """Refuse a scalar on which the operation, evaluated in `dtype`, has no value, or ask the host
    for what gives it one. Raises `InvalidError` after reporting."""
    operand = call.operands[-1]
    partial = call.row.partial
    if partial is None or not dtype.is_integer:
        return
    if not isinstance(operand, ir.ScalarOperand):
        return
    context = call.context
    exact = symbolic.constant_value(operand.value, context.definitions)
    if exact is not None:
        exact = _wrapped(exact, dtype)
    known = interval(context, operand.value) if exact is None else (exact, exact)
    for operator, bound in _needed(partial, dtype):
        holds = _settled(operator, bound, known)
        if holds is False:
            problem, allowed = _WRONG[partial]
            raise context.error(
                operand.span,
                "SK0329",
                f"`{call.row.name}` has no value here: it {problem}",
                f"must be {allowed}",
                notes=(f"the operation is evaluated in {dtype.value}, on every lane",),
            )
        host = context.host_form(operand.value)
        if holds is None and host is not None:
            context.require(ir.Binary(operator, host, ir.Literal(bound)), operand.span)


def _wrapped(number: int, dtype: DType) -> int:
    """A literal as the type holds it; other scalars are never wider than the evaluation."""
    limits = dtype.limits
    assert limits is not None  # floats have a value everywhere
    return (number - limits[0]) % (limits[1] - limits[0] + 1) + limits[0]


def _needed(partial: Partial, dtype: DType) -> Iterator[tuple[str, int]]:
    """What the operand must compare with, and how."""
    match partial:
        case Partial.POWER:
            yield (">=", 0)
        case Partial.SHIFT:
            yield (">=", 0)
            yield ("<", 8 * dtype.bytes)
        case _:
            yield ("!=", 0)


def _settled(operator: str, bound: int, known: Interval) -> bool | None:
    """Whether a comparison holds, or does not, for all that its left side can be."""
    low, high = known
    match operator:
        case "!=":
            if low == high == bound:
                return False
            away = (low is not None and low > bound) or (high is not None and high < bound)
            return True if away else None
        case ">=":
            if low is not None and low >= bound:
                return True
            return False if high is not None and high < bound else None
        case _:
            if high is not None and high < bound:
                return True
            return False if low is not None and low >= bound else None
