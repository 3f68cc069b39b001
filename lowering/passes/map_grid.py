"""Map the outermost chain of parallel loops of each phase onto the launch grid."""

from __future__ import annotations

import attrs

from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.walk import references, substitute
from sketchc.lowering.passes.hulls import (
    Range,
    extreme,
    is_downward,
    loop_range,
    negative_constants,
    resolved,
    trip_count,
    varies,
)
from sketchc.lowering.plan import GridAxis, PhasePlan, Plan


@attrs.frozen
class MapGrid:
    """Fill in `Plan.phases`.

    Why: every target launches a flat set of independent programs; which loops become that set is
    decided once, here (LOWERING 10).
    Requires: an elaborated sketch. Ensures: the grid of a phase is its outermost chain of parallel
    loops; statements between two levels of the chain run in every program, which is only right if
    they neither store nor hold another loop nest with a store, so the chain ends before a level
    with such statements; every loop that remains in the body is sequential. An inner loop whose
    bounds depend on outer variables of the chain takes the hull: its `count` is the greatest over
    all outer iterations, its `start` may name outer variables of the grid, and an `If` around what
    stands in it leaves out the rest; where no hull is found the chain ends before it. A phase that
    stores nothing has no effect, since no tile outlives it: it is left out.
    """

    def run(self, plan: Plan) -> Plan:
        several = len(plan.sketch.phases) > 1
        phases = []
        for index, phase in enumerate(plan.sketch.phases):
            name = f"{plan.sketch.name}_phase_{index + 1}" if several else plan.sketch.name
            axes, body = _chain(phase.body, (), {}, {}, negative_constants(plan.sketch))
            phases.append(_phase_plan(plan.sketch, index, name, axes, body))
        seen = [phase for phase in phases if phase.stores]
        if not seen or len(seen) == len(phases):
            return attrs.evolve(plan, phases=tuple(phases))
        idle = ", ".join(phase.name for phase in phases if not phase.stores)
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

    `ranges` are those of the variables of the chain so far, `bindings` what stands between its
    levels, over these variables; `negative` the constants below 0.
    """
    parallel = [s for s in body if isinstance(s, ir.For) and s.parallel]
    if len(parallel) != 1 or not _replicable([s for s in body if s is not parallel[0]]):
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
    """The grid axis of a parallel loop, and the guard that its body needs."""
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
    """True where a start names nothing but host scalars and variables of the chain."""
    return all(
        reference.name in ranges
        for reference in references(start)
        if reference.kind in (ir.NameKind.LOOP, ir.NameKind.BINDING)
    )


def _replicable(statements: list[ir.Statement]) -> bool:
    """True if running these once per program instead of once changes nothing visible."""
    return not any(isinstance(s, ir.Store | ir.Atomic) for s in walk.statements(statements))


def _phase_plan(
    sketch: ir.Sketch,
    index: int,
    name: str,
    axes: tuple[GridAxis, ...],
    body: tuple[ir.Statement, ...],
) -> PhasePlan:
    statements = list(walk.statements(body))
    return PhasePlan(
        index=index,
        name=name,
        grid=axes,
        body=body,
        loads=frozenset(
            sketch.tensor(s.access.tensor).name
            for s in statements
            if isinstance(s, ir.Load | ir.Fetch)
        ),
        stores=frozenset(
            sketch.tensor(s.access.tensor).name
            for s in statements
            if isinstance(s, ir.Store | ir.Atomic)
        ),
    )
