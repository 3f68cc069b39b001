"""Shapes: broadcasting, and the intervals that bound extents.

Broadcasting is right-aligned; two extents agree when they are symbolically equal or one of them is
literally 1 (R2). Intervals follow from declarations, from bounds of loops, and from preconditions
that bound single names, as `require: S >= 1` does.

The linear reasoning of `checker/facts` cannot replace these intervals: they are asked for while a
sketch is read, before there is a tree to take facts from. And of 184 bounds that examples and tests
ask for, it misses six, minima such as `min(i + 1, cdiv(M, T)) >= 0`, and takes 0.4 ms for each,
not 0.004.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import inf

from sketchc.base import records
from sketchc.base.diagnostics import Span
from sketchc.checker.context.context import Context, Interval
from sketchc.ir import nodes as ir
from sketchc.ir.show import show

_UNKNOWN: Interval = (-inf, inf)


def broadcast(
    context: Context, shapes: Sequence[tuple[ir.Expr, ...]]
) -> tuple[ir.Expr, ...] | None:
    """The shape to which all `shapes` broadcast, or None where two extents disagree."""
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


def joined(
    context: Context,
    span: Span,
    shapes: Sequence[tuple[ir.Expr, ...]],
    advice: str,
    what: str = "shapes",
) -> tuple[ir.Expr, ...]:
    """The shape to which all broadcast; where there is none, reports and raises `InvalidError`."""
    common = broadcast(context, shapes)
    if common is None:
        listed = " and ".join(map(shown, shapes))
        message = f"{what} {listed} do not broadcast"
        raise context.error(span, "SK0305", message, "extents differ", help=advice)
    return common


#: Advice where index tiles do not broadcast.
SHAPE_INDICES = "shape index tiles with `[:, None]` and `[None, :]`"


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
    """Whether two shapes agree on every axis."""
    return len(left) == len(right) and all(
        context.equal(a, b) for a, b in zip(left, right, strict=True)
    )


def shown(extents: Sequence[ir.Expr]) -> str:
    """A shape as in a sketch: `[TM, N]`."""
    return f"[{', '.join(show(extent) for extent in extents)}]"


def interval(context: Context, value: ir.Expr) -> Interval:
    """The (lowest, highest) value that an integer expression can have."""
    return context.ask(lambda values: bounds(values, value))


def signs(context: Context, value: ir.Expr) -> Interval:
    """The interval of an integer expression as far as it tells the sign: a bound below -1 is -1,
    one above 1 is 1. For decisions that hold whatever the size."""

    def clamped(bound: float) -> float:
        return bound if bound in _UNKNOWN else max(-1, min(bound, 1))

    def question(values: Context) -> Interval:
        low, high = bounds(values, value)
        return clamped(low), clamped(high)

    return context.ask(question)


def bounds(context: Context, value: ir.Expr) -> Interval:
    """The (lowest, highest) value of an integer expression, in a question (see `Context.ask`)."""
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
            return -high, -low
        case ir.Binary(operator, left, right):
            return _combined(operator, bounds(context, left), bounds(context, right))
        case ir.Choice(_, then, otherwise):
            return _join(bounds(context, then), bounds(context, otherwise))
        case _:
            return _UNKNOWN


def _combined(operator: str, left: Interval, right: Interval) -> Interval:
    (a, b), (c, d) = left, right
    match operator:
        case "+":
            return a + c, b + d
        case "-":
            return a - d, b - c
        case "*" if a >= 0 and c >= 0:
            return a * c, inf if inf in (b, d) else b * d
        case "//" if a >= 0 and c >= 0:
            return _quotient(a, d), _quotient(b, max(c, 1))
        case "cdiv" if a >= 0 and c >= 0:
            return -_quotient(-a, d), -_quotient(-b, max(c, 1))
        case "%" if c >= 0:
            return 0, max(d - 1, 0)
        case "min":
            return min(a, c), min(b, d)
        case "max":
            return max(a, c), max(b, d)
        case _:
            return _UNKNOWN


def _quotient(dividend: float, divisor: float) -> float:
    """The floor quotient of two ends of intervals; a divisor of 0 is excluded at launch."""
    if divisor in (0, inf):
        return 0
    return dividend if dividend in _UNKNOWN else dividend // divisor


def _join(left: Interval, right: Interval) -> Interval:
    """The least interval that contains `left` and `right`."""
    return min(left[0], right[0]), max(left[1], right[1])


def _meet(left: Interval, right: Interval) -> Interval:
    """The intersection of two intervals."""
    return max(left[0], right[0]), min(left[1], right[1])


_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "=="}


def learn(context: Context, conditions: tuple[ir.Expr, ...]) -> None:
    """Narrow the known intervals of the names that `conditions` bound by numbers, then those of the
    host values made from them. A bound of a symbol at every tuning point counts as declared
    (`symbols: D <= 128`); one of a `let` bounds the tiles as wide as the `let`."""
    fixed = tuple(c for c in conditions if context.tunable_in(c) is None)
    lets = tuple(let for let in context.lets if let.dtype.is_integer)
    context.ask(lambda values: _narrow(values, lets, fixed))
    for index, symbol in enumerate(context.symbols):
        high = context.ask(partial(_most, symbol.name))
        if 0 <= high < inf:
            context.symbols[index] = records.evolve(symbol, upper_bound=int(high))
    for index, let in enumerate(context.lets):
        if let.dtype.is_integer and let.name not in context.tunable:
            high = context.ask(partial(_most, let.name))
            if high < inf:
                context.lets[index] = records.evolve(let, upper_bound=int(max(high, 0)))
    context.ask(lambda values: _narrow(values, lets, conditions))


def _most(name: str, context: Context) -> float:
    return context.intervals.get(name, _UNKNOWN)[1]


def _narrow(context: Context, lets: tuple[ir.Let, ...], conditions: tuple[ir.Expr, ...]) -> None:
    _apply(context, conditions)
    for let in lets:
        known = bounds(context, let.value)
        context.intervals[let.name] = _meet(context.intervals.get(let.name, _UNKNOWN), known)
    _apply(context, conditions)


def _apply(context: Context, conditions: tuple[ir.Expr, ...]) -> None:
    for condition in conditions:
        for name, limits in _limits(context, condition):
            context.intervals[name] = _meet(context.intervals.get(name, _UNKNOWN), limits)


def _limits(context: Context, condition: ir.Expr) -> Iterator[tuple[str, Interval]]:
    match condition:
        case ir.Binary("and", left, right):
            yield from _limits(context, left)
            yield from _limits(context, right)
        case ir.Binary("or", left, right):  # what both say, joined
            others = _by_name(context, right)
            for name, limits in _by_name(context, left).items():
                if name in others:
                    yield name, _join(limits, others[name])
        case ir.Binary(operator, ir.Ref(name=name), right) if operator in _TURNED:
            yield name, _limit(operator, bounds(context, right))
        case ir.Binary(operator, left, ir.Ref(name=name)) if operator in _TURNED:
            yield name, _limit(_TURNED[operator], bounds(context, left))
        case _:
            return


def _by_name(context: Context, condition: ir.Expr) -> dict[str, Interval]:
    found: dict[str, Interval] = {}
    for name, limits in _limits(context, condition):
        found[name] = _meet(found.get(name, _UNKNOWN), limits)
    return found


def _limit(operator: str, other: Interval) -> Interval:
    """The interval of a name with `name operator other`, for a value in the interval `other`."""
    low, high = other
    match operator:
        case "<":
            return -inf, high - 1
        case "<=":
            return -inf, high
        case ">":
            return low + 1, inf
        case ">=":
            return low, inf
        case _:
            return other
