"""Shapes: broadcasting, and the intervals that bound extents.

Broadcasting is right-aligned; two extents agree when they are symbolically equal or one of them is
literally 1 (R2).
"""

from __future__ import annotations

from collections.abc import Sequence

from sketchc.checker.context.context import Context, Interval
from sketchc.ir import nodes as ir
from sketchc.ir.show import show

_UNKNOWN: Interval = (None, None)


def broadcast(
    context: Context, shapes: Sequence[tuple[ir.Expr, ...]]
) -> tuple[ir.Expr, ...] | None:
    """The common shape of all, or None where two extents disagree."""
    rank = max(map(len, shapes), default=0)
    result: list[ir.Expr] = [ir.Literal(1)] * rank
    for shape in shapes:
        offset = rank - len(shape)
        for axis, extent in enumerate(shape, start=offset):
            known = result[axis]
            if context.is_one(known):
                result[axis] = extent
            elif not context.is_one(extent) and not context.equal(known, extent):
                return None
    return tuple(result)


def fits(context: Context, shape: tuple[ir.Expr, ...], target: tuple[ir.Expr, ...]) -> bool:
    """Whether a value of `shape` can be written to `target`: broadcast to it, not reduced."""
    if len(shape) > len(target):
        return False
    offset = len(target) - len(shape)
    return all(
        context.is_one(extent) or context.equal(extent, wanted)
        for extent, wanted in zip(shape, target[offset:], strict=True)
    )


def same(context: Context, left: tuple[ir.Expr, ...], right: tuple[ir.Expr, ...]) -> bool:
    return len(left) == len(right) and all(
        context.equal(a, b) for a, b in zip(left, right, strict=True)
    )


def shown(extents: Sequence[ir.Expr]) -> str:
    """A shape as in a sketch: `[TM, N]`."""
    return f"[{', '.join(show(extent) for extent in extents)}]"


def interval(context: Context, value: ir.Expr) -> Interval:
    """The (lowest, highest) value that an integer expression can have; None where unbounded."""
    return context.ask(lambda values: bounds(values, value))


def signs(context: Context, value: ir.Expr) -> Interval:
    """The interval of an integer expression as far as it tells the sign: a bound below -1 is -1,
    one above 1 is 1. For decisions that hold whatever the size."""

    def clamped(bound: int | None) -> int | None:
        return None if bound is None else max(-1, min(bound, 1))

    def question(values: Context) -> Interval:
        low, high = bounds(values, value)
        return clamped(low), clamped(high)

    return context.ask(question)


def bounds(context: Context, value: ir.Expr) -> Interval:
    """As `interval`, inside a question (see `Context.ask`)."""
    match value:
        case ir.Literal(number) if isinstance(number, int):
            return (int(number), int(number))
        case ir.Ref(name=name):
            known = context.values.get(name)
            if isinstance(known, int):
                return (int(known), int(known))
            return context.intervals.get(name, _UNKNOWN)
        case ir.Unary("-", operand):
            low, high = bounds(context, operand)
            return (None if high is None else -high, None if low is None else -low)
        case ir.Binary(operator, left, right):
            return _combined(operator, bounds(context, left), bounds(context, right))
        case ir.Choice(_, then, otherwise):
            (a, b), (c, d) = bounds(context, then), bounds(context, otherwise)
            return (
                None if a is None or c is None else min(a, c),
                None if b is None or d is None else max(b, d),
            )
        case _:
            return _UNKNOWN


def _combined(operator: str, left: Interval, right: Interval) -> Interval:
    (a, b), (c, d) = left, right
    match operator:
        case "+":
            return (_sum(a, c), _sum(b, d))
        case "-":
            return (_sum(a, _negative(d)), _sum(b, _negative(c)))
        case "*" if a is not None and c is not None and a >= 0 and c >= 0:
            return (a * c, None if b is None or d is None else b * d)
        case "//" if a is not None and a >= 0 and c is not None and c >= 0:
            # a divisor of 0 is excluded at launch
            return (0 if not d else a // d, None if b is None else b // max(c, 1))
        case "cdiv" if a is not None and a >= 0 and c is not None and c >= 0:
            return (0 if not d else -(-a // d), None if b is None else -(-b // max(c, 1)))
        case "%" if c is not None and c >= 0:
            return (0, None if d is None else max(d - 1, 0))
        case "min":
            highs = [high for high in (b, d) if high is not None]
            return (None if a is None or c is None else min(a, c), min(highs, default=None))
        case "max":
            lows = [low for low in (a, c) if low is not None]
            return (max(lows, default=None), None if b is None or d is None else max(b, d))
        case _:
            return _UNKNOWN


def _sum(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left + right


def _negative(value: int | None) -> int | None:
    return None if value is None else -value
