"""Map the outermost chain of parallel loops of each phase onto the launch grid."""

from __future__ import annotations

import attrs

from sketchc import ir
from sketchc.lowering.plan import GridAxis, PhasePlan, Plan, walk


@attrs.frozen
class MapGrid:
    """Fill in `Plan.phases`.

    Why: every target launches a flat set of independent programs; which loops become that set is
    decided once, here (LOWERING 10).
    Requires: an elaborated sketch. Ensures: the grid of a phase is its outermost chain of parallel
    loops; statements between two levels of the chain run in every program, which is only right if
    they neither store nor hold another loop nest with a store, so the chain ends before a level
    with such statements; every loop that remains in the body is sequential. A phase that stores
    nothing has no effect, since no tile outlives it: it is left out.
    """

    def run(self, plan: Plan) -> Plan:
        several = len(plan.sketch.phases) > 1
        phases = []
        for index, phase in enumerate(plan.sketch.phases):
            name = f"{plan.sketch.name}_phase_{index + 1}" if several else plan.sketch.name
            axes, body = _chain(phase.body, ())
            phases.append(_phase_plan(plan.sketch, index, name, axes, body))
        seen = [phase for phase in phases if phase.stores]
        if not seen or len(seen) == len(phases):
            return attrs.evolve(plan, phases=tuple(phases))
        idle = ", ".join(phase.name for phase in phases if not phase.stores)
        notes = (*plan.notes, f"not launched, since it stores nothing: {idle}")
        return attrs.evolve(plan, phases=tuple(seen), notes=notes)


def _chain(
    body: tuple[ir.Statement, ...], axes: tuple[GridAxis, ...]
) -> tuple[tuple[GridAxis, ...], tuple[ir.Statement, ...]]:
    """Peel parallel loops off `body`; returns the grid axes and what each program runs."""
    parallel = [s for s in body if isinstance(s, ir.For) and s.parallel]
    if len(parallel) != 1 or not _replicable([s for s in body if s is not parallel[0]]):
        return axes, body
    loop = parallel[0]
    before = body[: body.index(loop)]
    axis = GridAxis(loop.variable, loop.start, loop.step, trip_count(loop), loop.text)
    inner_axes, inner = _chain(loop.body, (*axes, axis))
    # Whatever follows the loop at this level has no effect that anyone could see (no stores).
    return inner_axes, (*before, *inner)


def _replicable(statements: list[ir.Statement]) -> bool:
    """True if running these once per program instead of once changes nothing visible."""
    return not any(isinstance(s, ir.Store) for s in walk(tuple(statements)))


def trip_count(loop: ir.For) -> ir.Expr:
    """The number of iterations: cdiv(stop - start, step), without empty parts."""
    span = loop.stop
    if loop.start != ir.Literal(0):
        span = ir.Binary("-", loop.stop, loop.start)
    if loop.step == ir.Literal(1):
        return span if loop.start == ir.Literal(0) else ir.Binary("max", span, ir.Literal(0))
    return ir.Binary("cdiv", span, loop.step)


def _phase_plan(
    sketch: ir.Sketch,
    index: int,
    name: str,
    axes: tuple[GridAxis, ...],
    body: tuple[ir.Statement, ...],
) -> PhasePlan:
    statements = walk(body)
    return PhasePlan(
        index=index,
        name=name,
        grid=axes,
        body=body,
        loads=frozenset(
            sketch.tensor(s.access.tensor).name for s in statements if isinstance(s, ir.Load)
        ),
        stores=frozenset(
            sketch.tensor(s.access.tensor).name for s in statements if isinstance(s, ir.Store)
        ),
    )
