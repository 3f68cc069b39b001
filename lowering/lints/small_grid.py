"""Launches with fewer programs than the chip has cores (SK0658)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress

from sketchc.base.diagnostics import NOWHERE, Diagnostic, warning
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.evaluate import evaluate
from sketchc.ir.walk import references
from sketchc.lowering.plan import PhasePlan, Plan
from sketchc.lowering.sample_sizes import sample_values

#: With unbounded symbols the grid is as large as the launch makes it.
_UNKNOWN = math.inf

#: Lanes that one program loads and stores; from here on, moving them takes longer than a launch.
_MUCH = 2**16

_GROWS = "its work grows with the sizes, its grid does not"


def small_grid(plan: Plan) -> Iterator[Diagnostic]:
    """Phases with much work for each program that cannot fill the chip at any size."""
    for phase in plan.phases:
        programs = _most(plan, phase)
        if programs >= plan.cores(phase):
            continue
        if _grows(plan, phase):
            yield _report(plan, phase, int(programs), _GROWS)
        elif (lanes := _lanes(plan, phase.body, sample_values(plan.sketch))) >= _MUCH:
            work = f"each program loads and stores {lanes:,} lanes"
            yield _report(plan, phase, int(programs), work)


def _most(plan: Plan, phase: PhasePlan) -> float:
    """The most programs that a launch can have, at the symbols' upper bounds."""
    bounded = {s.name for s in plan.sketch.symbols if s.upper_bound is not None}
    known = {c.name for c in plan.sketch.constants} | bounded
    values = sample_values(plan.sketch)
    total = 1
    for axis in phase.grid:
        if any(ref.name not in known for ref in references(axis.count)):
            return _UNKNOWN
        total *= max(int(evaluate(axis.count, values)), 0)
    return total


def _grows(plan: Plan, phase: PhasePlan) -> bool:
    """Whether the phase's work grows with a symbol that has no bound."""
    free = {s.name for s in plan.sketch.symbols if s.upper_bound is None}
    grows: list[ir.Expr] = []
    for statement in walk.statements(phase.body):
        match statement:
            case ir.For(start=start, stop=stop):
                grows += [start, stop]
            case ir.Load(access=access) | ir.Store(access=access):
                for part in access.subscripts:
                    if isinstance(part, ir.SliceSubscript):
                        grows += [part.lower, part.upper]
    return any(ref.name in free for part in grows for ref in references(part))


def _lanes(
    plan: Plan, body: tuple[ir.Statement, ...], values: Mapping[str, int | float | bool]
) -> int:
    """At least how many lanes one program loads and stores: loops and tiles whose sizes depend on
    names that `values` does not have (loop variables, bound or fetched names) count as nothing."""
    total = 0
    for statement in body:
        with suppress(KeyError):
            match statement:
                case ir.For(start=start, stop=stop, step=step, body=inner):
                    ends = (int(evaluate(end, values)) for end in (start, stop, step))
                    total += len(range(*ends)) * _lanes(plan, inner, values)
                case ir.If(body=inner, orelse=other):
                    total += min(_lanes(plan, inner, values), _lanes(plan, other, values))
                case ir.Load(tile=tile) | ir.Store(tile=tile):
                    extents = plan.tiles[tile].tile.extents
                    total += math.prod(int(evaluate(extent, values)) for extent in extents)
    return total


def _report(plan: Plan, phase: PhasePlan, programs: int, work: str) -> Diagnostic:
    count = "one program" if programs == 1 else f"at most {programs} programs"
    return warning(
        # The first statement of the phase that stands in the file.
        next((s.span for s in walk.statements(phase.body) if s.span != NOWHERE), NOWHERE),
        "SK0658",
        f"{count} for the {plan.cores(phase)} cores of {plan.hardware.name}",
        "the launch that this belongs to",
        notes=(work,),
        help="split the long axis over a parallel loop: partial results in a workspace and a "
        "second phase, or atomics",
    )
