"""Launches with fewer programs than the chip has cores (SK0658)."""

from __future__ import annotations

import math
from collections.abc import Iterator

from sketchc import ir
from sketchc.diagnostics import Diagnostic, Severity
from sketchc.evaluate import evaluate
from sketchc.lowering.passes.place_tiles import sample_values
from sketchc.lowering.plan import PhasePlan, Plan, walk
from sketchc.source import NOWHERE, Span
from sketchc.symbolic import references

#: With unbounded symbols the grid is as large as the launch makes it.
_UNKNOWN = math.inf


def run(plan: Plan) -> Iterator[Diagnostic]:
    """Phases that load in a loop or many lanes at once, and cannot fill the chip at any size."""
    for phase in plan.phases:
        programs = _most(plan, phase)
        if programs < plan.cores(phase) and _heavy(plan, phase):
            yield _report(plan, phase, int(programs))


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


def _heavy(plan: Plan, phase: PhasePlan) -> bool:
    """Whether the phase's work grows with a symbol that has no bound."""
    free = {s.name for s in plan.sketch.symbols if s.upper_bound is None}
    grows: list[ir.Expr] = []
    for statement in walk(phase.body):
        match statement:
            case ir.For(start=start, stop=stop):
                grows += [start, stop]
            case ir.Load(access=access) | ir.Store(access=access):
                for part in access.subscripts:
                    if isinstance(part, ir.SliceSubscript):
                        grows += [part.lower, part.upper]
            case _:
                pass
    return any(ref.name in free for part in grows for ref in references(part))


def _report(plan: Plan, phase: PhasePlan, programs: int) -> Diagnostic:
    count = "one program" if programs == 1 else f"at most {programs} programs"
    return Diagnostic(
        "SK0658",
        Severity.WARNING,
        f"{count} for the {plan.cores(phase)} cores of {plan.hardware.name}",
        _span(phase),
        "the launch that this belongs to",
        notes=("its work grows with the sizes, its grid does not",),
        help="split the long axis over a parallel loop: partial results in a workspace and a "
        "second phase, or atomics",
    )


def _span(phase: PhasePlan) -> Span:
    """The first statement of the phase that stands in the file."""
    return next((s.span for s in walk(phase.body) if s.span != NOWHERE), NOWHERE)
