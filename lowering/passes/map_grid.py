"""Map the outermost chain of parallel loops of each phase onto the launch grid.

An inner parallel loop may run to an outer one's variable (`for j in range(i + 1)`); a launch grid
is a box, so an axis takes the hull, and so does a count of operations. Names of constants stand for
values of 0 or more: numbers replace the others (`negative_constants`, `resolved`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TypeVar

import attrs

from sketchc.ir import nodes as ir
from sketchc.ir.symbolic import simplify
from sketchc.ir.walk import names, on_host, references, substitute
from sketchc.launch.magnitudes import never_negative
from sketchc.lowering.passes.place_tiles import live_intervals
from sketchc.lowering.plan import GridAxis, PhasePlan, Plan, stores

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


@attrs.frozen
class MapGrid:
    """Fill in `Plan.phases`, and the live intervals of tiles in each.

    Why: every target launches a flat set of independent programs; which loops become that set is
    decided once, here (LOWERING 10).
    Requires: an elaborated sketch. Ensures: the grid of a phase is its outermost chain of parallel
    loops; statements between two levels of the chain run in every program, which is only right if
    they neither store nor hold another loop nest with a store, so the chain ends before a level
    with such statements; every loop that remains in the body is sequential. An inner loop whose
    bounds depend on outer variables of the chain takes the hull: its `count` is the greatest over
    all outer iterations, its `start` may name outer variables of the grid, and an `If` around its
    body skips the iterations in excess; where no hull is found the chain ends before it. A phase
    that stores nothing is left out: it has no effect, since no tile outlives it.
    """

    def run(self, plan: Plan) -> Plan:
        """See `Pass`."""
        several = len(plan.sketch.phases) > 1
        initialised = frozenset(t.name for t in plan.sketch.tiles if t.initial is not None)
        phases = []
        for index, phase in enumerate(plan.sketch.phases):
            name = f"{plan.sketch.name}_phase_{index + 1}" if several else plan.sketch.name
            axes, body = _chain(phase.body, (), {}, {}, negative_constants(plan.sketch))
            phases.append(PhasePlan(index, name, axes, body, live_intervals(body, initialised)))
        seen = [phase for phase in phases if stores(phase.body)]
        if not seen or len(seen) == len(phases):
            return attrs.evolve(plan, phases=tuple(phases))
        idle = ", ".join(phase.name for phase in phases if phase not in seen)
        notes = (*plan.notes, f"not launched, since it stores nothing: {idle}")
        return attrs.evolve(plan, phases=tuple(seen), notes=notes)


def _chain(
    body: tuple[ir.Statement, ...],
    axes: tuple[GridAxis, ...],
    ranges: dict[str, Range],
    bindings: dict[str, ir.Expr],
    negative: dict[str, ir.Expr],
) -> tuple[tuple[GridAxis, ...], tuple[ir.Statement, ...]]:
    """Peel parallel loops off `body`; returns the grid axes and what each program runs.

    `ranges` are those of the variables of the chain so far, `bindings` the names bound between its
    levels, resolved to these variables; `negative` the constants below 0.
    """
    parallel = [s for s in body if isinstance(s, ir.For) and s.parallel]
    if len(parallel) != 1 or stores(s for s in body if s is not parallel[0]):
        return axes, body
    loop = parallel[0]
    before = body[: body.index(loop)]
    for statement in before:
        if isinstance(statement, ir.Bind):
            bindings[statement.name] = substitute(statement.value, bindings)
    written = resolved(loop, bindings)
    found = _axis(written, ranges, negative)
    span = loop_range(resolved(written, negative), ranges)
    if found is None:
        return axes, body
    axis, guard = found
    inside = dict(ranges) if span is None else {**ranges, loop.variable: span}
    inner_axes, inner = _chain(loop.body, (*axes, axis), inside, bindings, negative)
    if guard is not None:
        inner = (ir.If(guard, inner, text=loop.text, span=loop.span),)
    # Whatever follows the loop at this level has no effect that anyone could see (no stores).
    return inner_axes, (*before, *inner)


def _axis(
    loop: ir.For, ranges: dict[str, Range], negative: dict[str, ir.Expr]
) -> tuple[GridAxis, ir.Expr | None] | None:
    """The grid axis of a parallel loop, and the guard that its body needs; None without a hull."""
    loop = attrs.evolve(loop, step=substitute(loop.step, negative))
    count = trip_count(loop)
    if not any(varies(bound, ranges) for bound in (loop.start, loop.stop, loop.step)):
        return GridAxis(loop.variable, loop.start, loop.step, count, loop.text, loop.span), None
    hull = extreme(substitute(count, negative), ranges, upper=True)
    if hull is None or is_downward(loop.step) is None or varies(loop.step, {}):
        return None
    if not _reaches(loop.start, ranges):
        return None
    variable = ir.Ref(loop.variable, ir.NameKind.LOOP)
    guard = ir.Binary(">" if is_downward(loop.step) else "<", variable, loop.stop)
    return GridAxis(loop.variable, loop.start, loop.step, hull, loop.text, loop.span), guard


def _reaches(start: ir.Expr, ranges: dict[str, Range]) -> bool:
    """True where `start` names nothing but host scalars and names in `ranges`."""
    return all(
        reference.name in ranges
        for reference in references(start)
        if reference.kind in (ir.NameKind.LOOP, ir.NameKind.BINDING)
    )
