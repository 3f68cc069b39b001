"""What preconditions say about the range of single names, as `require: S >= 1` does."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from sketchc.base import records
from sketchc.checker.context.context import Context, Interval
from sketchc.checker.context.shapes import bounds
from sketchc.ir import nodes as ir

_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "=="}


def learn(context: Context, conditions: tuple[ir.Expr, ...]) -> None:
    """Narrow the known intervals of the names that the conditions bound by numbers, then those of
    the host values made from them. What bounds a symbol at every tuning point is a bound of it as
    if it were declared (`symbols: D <= 128`); what bounds a `let` sizes tiles as wide as it."""
    fixed = tuple(c for c in conditions if context.tunable_in(c) is None)
    lets = tuple(let for let in context.lets if let.dtype.is_integer)
    context.ask(lambda values: _narrow(values, lets, fixed))
    for index, symbol in enumerate(context.symbols):
        high = context.ask(partial(_most, symbol.name))
        if high is not None and high >= 0:
            context.symbols[index] = records.evolve(symbol, upper_bound=high)
    for index, let in enumerate(context.lets):
        if let.dtype.is_integer and let.name not in context.tunable:
            high = context.ask(partial(_most, let.name))
            if high is not None:
                context.lets[index] = records.evolve(let, upper_bound=max(high, 0))
    context.ask(lambda values: _narrow(values, lets, conditions))


def _most(name: str, context: Context) -> int | None:
    return context.intervals.get(name, (0, None))[1]


def _narrow(context: Context, lets: tuple[ir.Let, ...], conditions: tuple[ir.Expr, ...]) -> None:
    _apply(context, conditions)
    for let in lets:
        known = bounds(context, let.value)
        context.intervals[let.name] = _meet(context.intervals.get(let.name), known)
    _apply(context, conditions)


def _apply(context: Context, conditions: tuple[ir.Expr, ...]) -> None:
    for condition in conditions:
        for name, limits in _limits(context, condition):
            context.intervals[name] = _meet(context.intervals.get(name), limits)


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
        found[name] = _meet(found.get(name), limits)
    return found


def _join(left: Interval, right: Interval) -> Interval:
    """The least interval around both."""
    (a, b), (c, d) = left, right
    return (
        None if a is None or c is None else min(a, c),
        None if b is None or d is None else max(b, d),
    )


def _limit(operator: str, other: Interval) -> Interval:
    """What `name operator other` says about the name."""
    low, high = other
    match operator:
        case "<":
            return (None, None if high is None else high - 1)
        case "<=":
            return (None, high)
        case ">":
            return (None if low is None else low + 1, None)
        case ">=":
            return (low, None)
        case _:
            return other


def _meet(left: Interval | None, right: Interval) -> Interval:
    if left is None:
        return right
    lows = [low for low in (left[0], right[0]) if low is not None]
    highs = [high for high in (left[1], right[1]) if high is not None]
    return (max(lows, default=None), min(highs, default=None))
