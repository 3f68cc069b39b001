"""Definite assignment of tiles as proofs with counter-examples (LANGUAGE R12).

`elaboration.assignment` finds the tiles that are read before they are assigned. One verdict per
tile that is read.
"""

from __future__ import annotations

from sketchc.base import records
from sketchc.base.diagnostics import Diagnostic, Severity, error
from sketchc.checker.elaboration.assignment import Assignment, Gap
from sketchc.checker.facts import (
    Branch,
    Fact,
    Finding,
    Prover,
    Verdict,
    add,
    concrete,
    contested,
    counter_example,
    host_path,
    in_iteration,
    iteration,
    proved,
)
from sketchc.ir import nodes as ir


def findings(prover: Prover) -> list[Finding]:
    """A verdict for every tile that is read."""
    seen = _assignment(prover.sketch)
    result = [_refuted(prover, gap) for gap in seen.gaps.values()]
    for name, span in seen.read.items():
        if name not in seen.gaps:
            tile = seen.tiles[name]
            words = "initialised by `init=`" if tile.initial is not None else "assigned before read"
            result.append(proved("initialised", tile.source_name, words, span))
    return result


def _assignment(sketch: ir.Sketch) -> Assignment:
    return Assignment(sketch.phases, {tile.name: tile for tile in sketch.tiles})


def _refuted(prover: Prover, gap: Gap) -> Finding:
    """The finding on a read of a tile that some path has not assigned (R12)."""
    name, code = gap.tile.source_name, "SK0401" if gap.loop is None else "SK0402"
    example = _example(prover, gap)
    told = f"`{name}` is assigned only inside a loop that ended before this read"
    label = told if example is None else example.text
    message = f"`{name}` is read before it is assigned"
    diagnostic = error(gap.span, code, message, label)
    return contested("initialised", name, diagnostic, example)


def _example(prover: Prover, gap: Gap) -> ir.CounterExample | None:
    """Sizes at which the read is reached and the assigning loop (if any) runs no iteration."""
    own = (Branch(*step) if isinstance(step, tuple) else step for step in gap.path)
    path = (*host_path(prover.sketch, gap.phase), *own)
    scope = prover.root
    for step in path:
        scope = scope.after(step)
    facts = scope.facts
    if gap.loop is not None:
        facts = (*facts, Fact(add(scope.form(gap.loop.start), scope.form(gap.loop.stop), -1)))
    outcome = prover.search(facts, scope.counters)
    if outcome.verdict is not Verdict.REFUTED:
        return None
    symbols = prover.sizes(outcome.point)
    host = concrete.host_sample(prover.sketch, symbols)
    try:
        where = iteration(path, scope, outcome.point, host)
    except (concrete.Untried, ArithmeticError):
        where = {}  # a bound is data, say
    reason = "which nothing has assigned"
    if gap.loop is not None:
        reason = f"but the loop over `{gap.loop.variable}` that assigns it runs no iteration"
    told = f"{in_iteration(where, 'reads')} `{gap.tile.source_name}`, {reason}"
    return counter_example(symbols, {}, (where,), (), told)


def explain(sketch: ir.Sketch, found: tuple[Diagnostic, ...]) -> tuple[Diagnostic, ...]:
    """Adds to elaboration's reports of unassigned tiles the sizes at which such a read happens."""
    prover = Prover.of(sketch)
    gaps = _assignment(sketch).gaps.values()
    examples = {gap.place: _example(prover, gap) for gap in gaps}
    return tuple(
        records.evolve(one, notes=(*one.notes, example.text))
        if one.severity is Severity.ERROR and (example := examples.get(one.span))
        else one
        for one in found
    )
