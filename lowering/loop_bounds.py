"""Bounds of loops over the host's scalars: how often a loop runs, between which values its variable
stays, and the extremes of expressions over these ranges.

Names of constants stand for values of 0 or more: numbers replace the others (`negative_constants`,
`resolved`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TypeVar

import attrs

from sketchc.ir import nodes as ir
from sketchc.ir.symbolic import simplify
from sketchc.ir.walk import names, on_host, substitute
from sketchc.launch.magnitudes import never_negative

_Loop = TypeVar("_Loop", ir.For, ir.HostFor)


@attrs.frozen
class Range:
    """The least and the greatest value of a variable, as expressions over host scalars."""

    low: ir.Expr
    high: ir.Expr


Ranges = Mapping[str, Range]

#: `simplify` with a cache: results hold constants by name, and so are the same at all points of a
#: tuning space. The spans in a result are those of the first of several equal expressions.
simplest = functools.lru_cache(maxsize=4096)(simplify)


def negative_constants(sketch: ir.Sketch) -> dict[str, ir.Expr]:
    """The values of the constants below 0, by name."""
    return {c.name: ir.Literal(c.value) for c in sketch.constants if c.value < 0}


def resolved(loop: _Loop, definitions: Mapping[str, ir.Expr]) -> _Loop:
    """The loop with the names in its bounds and step replaced as `definitions` says."""
    return attrs.evolve(
        loop,
        start=substitute(loop.start, definitions),
        stop=substitute(loop.stop, definitions),
        step=substitute(loop.step, definitions),
    )


def extreme(expression: ir.Expr, ranges: Ranges, upper: bool) -> ir.Expr | None:
    """A host expression that `expression` never exceeds (`upper`), or never falls below, while the
    names in `ranges` stay within them; None where none is found. (Intervals of the checker end in
    numbers; here a factor's form tells its sign, and what does not vary stays.)"""
    found = _extreme(expression, ranges, upper)
    return None if found is None else simplest(found)


def _extreme(expression: ir.Expr, ranges: Ranges, upper: bool) -> ir.Expr | None:
    match expression:
        case ir.Ref(name=name) if name in ranges:
            return ranges[name].high if upper else ranges[name].low
        case ir.Literal() | ir.Ref() if on_host(expression):
            return expression
        case ir.Unary("-", operand):
            inner = _extreme(operand, ranges, not upper)
            return None if inner is None else ir.Unary("-", inner)
        case ir.Binary():
            return _binary(expression, ranges, upper)
        case _:
            return None


def _binary(expression: ir.Binary, ranges: Ranges, upper: bool) -> ir.Expr | None:
    operator, left, right = expression.operator, expression.left, expression.right
    if not varies(expression, ranges):
        return expression
    match operator:
        case "+" | "min" | "max":
            a, b = _extreme(left, ranges, upper), _extreme(right, ranges, upper)
        case "-":
            a, b = _extreme(left, ranges, upper), _extreme(right, ranges, not upper)
        case "*" if not varies(right, ranges) and never_negative(right, {}):
            a, b = _extreme(left, ranges, upper), right
        case "*" if not varies(left, ranges) and never_negative(left, {}):
            a, b = left, _extreme(right, ranges, upper)
        case "//" | "cdiv" if not varies(right, ranges) and never_negative(right, {}):
            a, b = _extreme(left, ranges, upper), right
        case "%" if not varies(right, ranges) and never_negative(right, {}):
            # Digits lie between 0 and the divisor, whatever is divided.
            return ir.Binary("-", right, ir.Literal(1)) if upper else ir.Literal(0)
        case _:
            return None
    return None if a is None or b is None else ir.Binary(operator, a, b)


def varies(expression: ir.Expr, ranges: Ranges) -> bool:
    """True where `expression` is no host expression, or uses a name in `ranges`."""
    return not on_host(expression) or not names(expression).isdisjoint(ranges)


def loop_range(loop: ir.For | ir.HostFor, ranges: Ranges) -> Range | None:
    """The values of a loop's variable inside the loop; None where no bounds are found."""
    one = ir.Literal(1)
    downward = is_downward(loop.step)
    if downward is None:
        return None
    first, last = (loop.stop, loop.start) if downward else (loop.start, loop.stop)
    low, high = extreme(first, ranges, upper=False), extreme(last, ranges, upper=True)
    if low is None or high is None:
        return None
    if downward:
        return Range(simplest(ir.Binary("+", low, one)), high)
    return Range(low, simplest(ir.Binary("-", high, one)))


def is_downward(step: ir.Expr) -> bool | None:
    """Whether a loop with this step counts down; None where that is known at run time only."""
    match step:
        case ir.Literal(value):
            return value < 0
        case ir.Unary("-", operand):
            return True if never_negative(operand, {}) else None
        case _:
            return False if never_negative(step, {}) else None


def trip_count(loop: ir.For | ir.HostFor) -> ir.Expr:
    """The number of iterations; where the bounds make the loop empty, it may come out negative."""
    zero, one = ir.Literal(0), ir.Literal(1)
    span: ir.Expr
    if loop.step == one:
        if loop.start == zero:
            return loop.stop
        return ir.Binary("max", ir.Binary("-", loop.stop, loop.start), zero)
    if is_downward(loop.step):
        span = ir.Binary("-", loop.start, loop.stop)
        step = simplest(ir.Unary("-", loop.step))
        return span if step == one else ir.Binary("cdiv", span, step)
    span = loop.stop if loop.start == zero else ir.Binary("-", loop.stop, loop.start)
    if is_downward(loop.step) is None:
        # Whatever the sign of the step: the ceiling of a quotient.
        return ir.Unary("-", ir.Binary("//", ir.Unary("-", span), loop.step))
    return ir.Binary("cdiv", span, loop.step)
