"""Definite assignment of tiles as proofs with counter-examples (LANGUAGE R12).

A tile is assigned by `init=`, a load, or an operation. What a loop alone assigns does not count
after it: the loop may run no iteration. One verdict per tile that is read.
"""

from __future__ import annotations

from typing import assert_never

from sketchc.base import records
from sketchc.base.diagnostics import Diagnostic, Label, Severity, Span
from sketchc.checker.facts import concrete
from sketchc.checker.facts.affine import Fact, add
from sketchc.checker.facts.answers import Finding, assignments, contested, for_sizes, proved
from sketchc.checker.facts.prover import Prover, Verdict, counters, iteration
from sketchc.checker.facts.scope import Branch, Scope, Step, host_path, phase_scope
from sketchc.ir import nodes as ir
from sketchc.ir.walk import tiles_read
from sketchc.ops.table import OPS


@records.frozen
class _Place:
    """A place in a phase: what is known there, and the steps that lead there, the host's first."""

    scope: Scope
    path: tuple[Step, ...]

    def after(self, step: Step) -> _Place:
        return _Place(self.scope.after(step), (*self.path, step))


@records.frozen
class _Gap:
    """A read of a tile that may not be assigned. `loop`: the one that assigns it, if any does."""

    tile: ir.Tile
    place: _Place
    span: Span
    loop: ir.For | None


def findings(prover: Prover) -> list[Finding]:
    """A verdict for every tile that is read."""
    walk = _Walk(prover)
    for index, phase in enumerate(prover.sketch.phases):
        scope = phase_scope(prover.sketch, prover.root, index)
        walk.body(phase.body, _Place(scope, host_path(prover.sketch, index)))
    result = [_refuted(prover, gap) for gap in walk.gaps.values()]
    for name, span in walk.read.items():
        if name not in walk.gaps:
            tile = walk.tiles[name]
            words = "initialised by `init=`" if tile.initial is not None else "assigned before read"
            result.append(proved("initialised", tile.source_name, words, span))
    return result


class _Walk:
    """Tracks which tiles are assigned, and which loops assign the others."""

    def __init__(self, prover: Prover) -> None:
        self.tiles = {tile.name: tile for tile in prover.sketch.tiles}
        self.assigned: set[str] = set()
        self.lost: dict[str, ir.For] = {}
        self.read: dict[str, Span] = {}
        self.gaps: dict[str, _Gap] = {}

    def body(self, body: tuple[ir.Statement, ...], place: _Place) -> None:
        for statement in body:
            match statement:
                case ir.Alloc(tile):
                    self.assigned.discard(tile)
                    self.lost.pop(tile, None)
                    if self.tiles[tile].initial is not None:
                        self.assigned.add(tile)
                case ir.Bind(value=value):
                    for tile in tiles_read(value):
                        self._use(tile, place, statement.span)
                    place = place.after(statement)
                case ir.Fetch():
                    place = place.after(statement)
                case ir.Load(access, tile):
                    self._indices(access, statement.where, place)
                    self.assigned.add(tile)
                case ir.Store(tile, access) | ir.Atomic(_, tile, access):
                    self._use(tile, place, statement.span)
                    self._indices(access, statement.where, place)
                case ir.Compute():
                    self._compute(statement, place)
                case ir.For():
                    self._loop(statement, place)
                case ir.If():
                    self._branch(statement, place)
                case _:
                    assert_never(statement)

    def _indices(self, access: ir.Access, where: ir.Expr | None, place: _Place) -> None:
        """Tiles whose lanes are indices, or decide which lanes take part, are read."""
        values = [part.value for part in access.subscripts if isinstance(part, ir.IndexSubscript)]
        for value in (*values, *(() if where is None else (where,))):
            for tile in tiles_read(value):
                self._use(tile, place, access.span)

    def _branch(self, branch: ir.If, place: _Place) -> None:
        """What both branches assign is assigned after them."""
        before = set(self.assigned)
        ends = []
        for body, holds in ((branch.body, True), (branch.orelse, False)):
            self.assigned = set(before)
            self.body(body, place.after(Branch(branch.condition, holds)))
            ends.append(self.assigned)
        self.assigned = ends[0] & ends[1]

    def _compute(self, compute: ir.Compute, place: _Place) -> None:
        for operand in compute.operands:
            if isinstance(operand, ir.TileOperand):
                self._use(operand.tile, place, operand.span)
            elif isinstance(operand, ir.IndexOperand):
                for tile in tiles_read(operand.value):
                    self._use(tile, place, operand.span)
        if OPS[compute.operation].accumulates:
            for name in compute.destinations:
                self._use(name, place, compute.span)
        self.assigned.update(compute.destinations)

    def _loop(self, loop: ir.For, place: _Place) -> None:
        before = set(self.assigned)
        self.body(loop.body, place.after(loop))
        for tile in self.assigned - before:
            self.lost[tile] = loop
        self.assigned = before

    def _use(self, tile: str, place: _Place, span: Span) -> None:
        self.read.setdefault(tile, span)
        if tile not in self.assigned:
            self.gaps.setdefault(tile, _Gap(self.tiles[tile], place, span, self.lost.get(tile)))


def _refuted(prover: Prover, gap: _Gap) -> Finding:
    """Sizes at which the read is reached and the assigning loop (if any) runs no iteration."""
    name, scope = gap.tile.source_name, gap.place.scope
    facts = scope.facts
    if gap.loop is not None:
        facts = (*facts, Fact(add(scope.form(gap.loop.start), scope.form(gap.loop.stop), -1)))
    outcome = prover.search(facts, counters(scope))
    if outcome.verdict is not Verdict.REFUTED:
        detail = f"`{name}` is assigned only inside a loop that ended before this read"
        return contested("initialised", name, _diagnostic(gap, detail))
    symbols = prover.sizes(outcome.point)
    host = concrete.host_sample(prover.sketch, symbols)
    try:
        where = iteration(gap.place.path, scope, outcome.point, host)
    except (concrete.Untried, ArithmeticError):
        where = {}  # a bound is data, say
    at = f"iteration {assignments(where)} reads" if where else "the sketch reads"
    reason = "which nothing has assigned"
    if gap.loop is not None:
        reason = f"but the loop over `{gap.loop.variable}` that assigns it runs no iteration"
    text = f"{for_sizes(symbols)}{at} `{name}`, {reason}"
    example = ir.CounterExample(symbols, (where,) if where else (), (), text)
    return contested("initialised", name, _diagnostic(gap, text), example)


def _diagnostic(gap: _Gap, text: str) -> Diagnostic:
    """For a caller that skipped the elaborator's own check, which reports the same reads."""
    after_loop = gap.loop is not None
    return Diagnostic(
        "SK0402" if after_loop else "SK0401",
        Severity.ERROR,
        f"`{gap.tile.source_name}` is read before it is assigned",
        gap.span,
        text,
        (Label(gap.tile.span, "allocated here without `init=`"),),
        notes=(
            "a loop may run no iteration, so what it alone assigns does not count after it (R12)",
        ),
        help="give the alloc an `init=`, or assign the tile first",
    )


def explain(sketch: ir.Sketch, found: tuple[Diagnostic, ...]) -> tuple[Diagnostic, ...]:
    """Adds to the elaborator's reports of unassigned tiles the sizes at which they happen."""
    examples = {
        finding.proof.span: finding.proof.counter_example.text
        for finding in findings(Prover.of(sketch))
        if finding.proof.counter_example is not None
    }
    return tuple(
        records.evolve(one, notes=(*one.notes, examples[one.span]))
        if one.severity is Severity.ERROR and one.span in examples
        else one
        for one in found
    )
