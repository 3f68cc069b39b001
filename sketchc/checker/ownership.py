"""Tiles and parallel loops: a tile allocated outside a parallel loop is read-only inside (R7)."""

from __future__ import annotations

from typing import assert_never

import attrs

from sketchc import ir
from sketchc.checker import concrete
from sketchc.checker.affine import Fact, add, constant
from sketchc.checker.prover import Prover, Verdict, counters
from sketchc.checker.scope import Scope
from sketchc.checker.verdicts import Finding, assignments, for_sizes, loop_values
from sketchc.diagnostics import Diagnostic, Label, Severity
from sketchc.source import Span


@attrs.frozen
class _SharedWrite:
    """A write inside `loop`, which is parallel, to a tile from outside it."""

    tile: ir.Tile
    loop: ir.For
    scope: Scope
    span: Span


def findings(prover: Prover) -> list[Finding]:
    """A refutation for each tile that parallel iterations share and write; nothing when fine."""
    tiles = {tile.name: tile for tile in prover.sketch.tiles}
    born: dict[str, int] = {}
    shared: dict[str, _SharedWrite] = {}

    def write(name: str, scope: Scope, span: Span) -> None:
        inner = scope.loops[born.get(name, 0) :]
        loop = next((loop for loop in inner if loop.parallel), None)
        if loop is not None:
            shared.setdefault(name, _SharedWrite(tiles[name], loop, scope, span))

    def visit(body: tuple[ir.Statement, ...], scope: Scope) -> None:
        for statement in body:
            match statement:
                case ir.Alloc(tile):
                    born[tile] = len(scope.loops)
                case ir.Load(_, tile):
                    write(tile, scope, statement.span)
                case ir.Compute():
                    write(statement.destination, scope, statement.span)
                case ir.Bind(name, value):
                    scope = scope.bind(name, value)
                case ir.For():
                    visit(statement.body, scope.enter(statement))
                case ir.Store():
                    pass
                case _:
                    assert_never(statement)

    for phase in prover.sketch.phases:
        visit(phase.body, prover.root)
    return [_refuted(prover, found) for found in shared.values()]


def _refuted(prover: Prover, write: _SharedWrite) -> Finding:
    name = write.tile.source_name
    text = f"iterations of the loop over `{write.loop.variable}` all write `{name}`"
    example = _example(prover, write)
    if example is not None:
        text = example.text
    diagnostic = Diagnostic(
        "SK0523",
        Severity.ERROR,
        f"`{name}` is written by several parallel iterations",
        write.span,
        text,
        (
            Label(write.tile.span, "allocated outside the parallel loop"),
            Label(write.loop.span, "these iterations run in parallel"),
        ),
        notes=("a tile from outside a parallel loop is read-only inside it (R7)",),
        help="allocate the tile inside the loop, or make the loop sequential",
    )
    proof = ir.Proof("independent", name, ir.Tier.REFUTED, text, example, span=write.span)
    return Finding(proof, (diagnostic,))


def _example(prover: Prover, write: _SharedWrite) -> ir.CounterExample | None:
    """Two iterations of the parallel loop, one after the other, within the same outer ones."""
    first = write.scope
    second = attrs.evolve(prover.root, suffix="'")
    for loop in first.loops:
        second = second.enter(loop)
    place = first.loops.index(write.loop)
    gaps = [
        add(second.forms[loop.variable], first.forms[loop.variable], -1) for loop in first.loops
    ]
    outer = [Fact(gap, equality=True) for gap in gaps[:place]]
    ahead = Fact(add(gaps[place], constant(-1)))
    facts = (*first.facts, *second.facts, *outer, ahead)
    outcome = prover.search(facts, (*counters(first), *counters(second)))
    if outcome.verdict is not Verdict.REFUTED:
        return None
    symbols = prover.sizes(outcome.point)
    host = concrete.host_values(prover.sketch, symbols)
    one = loop_values(first, outcome.point, host)
    two = loop_values(second, outcome.point, host)
    text = (
        f"{for_sizes(symbols)}iterations {assignments(one)} and {assignments(two)} "
        f"both write `{write.tile.source_name}`"
    )
    return ir.CounterExample(symbols, (one, two), (), text)
