"""Passes over the same data that one pass could do: independent ones (SK0655), and the maximum
before a sum of exponentials (SK0656)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from sketchc.base.diagnostics import Diagnostic, Label, Severity, Span
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.walk import bodies, writes
from sketchc.lints.regions import Space, region
from sketchc.lints.uses import exposed, stored
from sketchc.parsing import syntax


def run(sketch: ir.Sketch, tree: syntax.Sketch) -> Iterator[Diagnostic]:
    """Pairs of sibling loops with equal ranges that load the same elements."""
    del tree
    for phase in sketch.phases:
        for body in bodies(phase.body):
            loops = [
                (position, statement)
                for position, statement in enumerate(body)
                if isinstance(statement, ir.For) and not statement.parallel
            ]
            for (start, first), (end, second) in pairwise(loops):
                yield from _pair(sketch, first, second, body[start + 1 : end])


def _pair(
    sketch: ir.Sketch, first: ir.For, second: ir.For, between: tuple[ir.Statement, ...]
) -> Iterator[Diagnostic]:
    one, other = Space().within(first), Space().within(second)
    if one.counts != other.counts:
        return
    common = _common(first, one, second, other)
    if common is None or stored(sketch, first.body) & _loaded(sketch, second.body):
        return
    made = {
        tile for statement in walk.statements((*first.body, *between)) for tile in writes(statement)
    }
    needed = exposed(second.body) & made
    if not needed:
        yield report_passes(first.span, second.span, common.span)
    elif not stored(sketch, second.body) and needed <= _maxima(first) and _sums(second):
        yield _report_online(first, second, common)


def _loaded(sketch: ir.Sketch, body: tuple[ir.Statement, ...]) -> set[str]:
    return {
        sketch.tensor(statement.access.tensor).name
        for statement in walk.statements(body)
        if isinstance(statement, ir.Load)
    }


def _common(first: ir.For, one: Space, second: ir.For, other: Space) -> ir.Load | None:
    """A load of the second loop that the first does, too."""
    known = {region(each.access, one) for each in first.body if isinstance(each, ir.Load)}
    loads = (each for each in second.body if isinstance(each, ir.Load))
    return next((load for load in loads if region(load.access, other) in known), None)


def _maxima(loop: ir.For) -> set[str]:
    """Tiles that the loop updates with `max` of themselves."""
    return {
        statement.destination
        for statement in walk.statements(loop.body)
        if isinstance(statement, ir.Compute)
        and statement.operation == "max"
        and any(
            isinstance(operand, ir.TileOperand) and operand.tile == statement.destination
            for operand in statement.operands
        )
    }


def _sums(loop: ir.For) -> bool:
    names = {each.operation for each in walk.statements(loop.body) if isinstance(each, ir.Compute)}
    return "reduce_sum" in names and bool(names & {"exp", "exp2"})


def report_passes(first: Span, second: Span, common: Span) -> Diagnostic:
    """Two passes, and what the second loads again (SK0655)."""
    return Diagnostic(
        "SK0655",
        Severity.WARNING,
        "two passes over the same data could be one",
        common,
        "loaded again",
        labels=(
            Label(first, "the first pass"),
            Label(second, "the second needs nothing that the first computes"),
        ),
        help="do the work of both in one loop: the elements are then moved once",
    )


def _report_online(first: ir.For, second: ir.For, common: ir.Load) -> Diagnostic:
    return Diagnostic(
        "SK0656",
        Severity.WARNING,
        "the maximum and the sum of exponentials can be taken in one pass",
        common.span,
        "loaded again",
        labels=(Label(first.span, "finds the maximum"), Label(second.span, "sums with it")),
        notes=(
            "carry both: with the new maximum m' of a block, s' = s*exp(m - m') + sum(exp(x - m')) "
            "(online softmax, Milakov and Gimelshein 2018)",
        ),
        help="see examples/online_softmax.sketch",
    )
