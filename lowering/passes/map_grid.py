"""Map the outermost chain of parallel loops of each phase onto the launch grid.

An inner parallel loop may run to an outer one's variable (`for j in range(i + 1)`); a launch grid
is a box, so an axis takes the hull, and so does a count of operations. Names of constants stand for
values of 0 or more: numbers replace the others (`negative_constants`, `resolved`).
"""

from __future__ import annotations

import attrs

from sketchc.ir import nodes as ir
from sketchc.ir.walk import references, substitute
from sketchc.lowering.loop_bounds import (
    Range,
    extreme,
    is_downward,
    loop_range,
    negative_constants,
    resolved,
    trip_count,
    varies,
)
from sketchc.lowering.passes.place_tiles import live_intervals
from sketchc.lowering.plan import GridAxis, PhasePlan, Plan, stores


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
