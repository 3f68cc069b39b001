"""Definite assignment of tiles as proofs with counter-examples (LANGUAGE R12).

A tile is assigned by `init=`, a load, or an operation. What a loop alone assigns does not count
after it: the loop may run no iteration. One verdict per tile that is read.
"""

from __future__ import annotations

from typing import assert_never

from sketchc.base import records
from sketchc.base.diagnostics import Diagnostic, Severity, Span
from sketchc.checker.facts import concrete
from sketchc.checker.facts.affine import Fact, add
from sketchc.checker.facts.answers import Finding, contested, counter_example, in_iteration, proved
from sketchc.checker.facts.prover import Prover, Verdict, iteration
from sketchc.checker.facts.scope import Branch, Step, host_path
from sketchc.ir import nodes as ir
from sketchc.ir.walk import tiles_read
from sketchc.ops.table import OPS


@records.frozen
class _Gap:
    """A read of a tile that may not be assigned, with the steps that lead there, the host's first.
    `loop`: the one that assigns the tile, if any does."""

    tile: ir.Tile
    path: tuple[Step, ...]
    span: Span
    loop: ir.For | None


def findings(prover: Prover) -> list[Finding]:
    """A verdict for every tile that is read."""
    walk = _Walk(prover.sketch)
    result = [_refuted(prover, gap) for gap in walk.gaps.values()]
    for name, span in walk.read.items():
        if name not in walk.gaps:
            tile = walk.tiles[name]
            words = "initialised by `init=`" if tile.initial is not None else "assigned before read"
            result.append(proved("initialised", tile.source_name, words, span))
    return result


class _Walk:
    """Tracks which tiles are assigned, and which loops assign the others."""

    def __init__(self, sketch: ir.Sketch) -> None:
        self.tiles = {tile.name: tile for tile in sketch.tiles}
        self.assigned: set[str] = set()
        self.lost: dict[str, ir.For] = {}
        self.read: dict[str, Span] = {}
        self.gaps: dict[str, _Gap] = {}
        for index, phase in enumerate(sketch.phases):
            self._body(phase.body, host_path(sketch, index))

    def _body(self, body: tuple[ir.Statement, ...], path: tuple[Step, ...]) -> None:
        for statement in body:
            match statement:
                case ir.Alloc(tile):
                    self.assigned.discard(tile)
                    self.lost.pop(tile, None)
                    if self.tiles[tile].initial is not None:
                        self.assigned.add(tile)
                case ir.Bind(value=value):
                    for tile in tiles_read(value):
                        self._use(tile, path, statement.span)
                    path = (*path, statement)
                case ir.Fetch():
                    path = (*path, statement)
                case ir.Load(access, tile):
                    self._indices(access, statement.where, path)
                    self.assigned.add(tile)
                case ir.Store(tile, access) | ir.Atomic(_, tile, access):
                    self._use(tile, path, statement.span)
                    self._indices(access, statement.where, path)
                case ir.Compute():
                    self._compute(statement, path)
                case ir.For():
                    self._loop(statement, path)
                case ir.If():
                    self._branch(statement, path)
                case _:
                    assert_never(statement)

    def _indices(self, access: ir.Access, where: ir.Expr | None, path: tuple[Step, ...]) -> None:
        """Tiles whose lanes are indices, or decide which lanes take part, are read."""
        values = [part.value for part in access.subscripts if isinstance(part, ir.IndexSubscript)]
        for value in (*values, *(() if where is None else (where,))):
            for tile in tiles_read(value):
                self._use(tile, path, access.span)

    def _branch(self, branch: ir.If, path: tuple[Step, ...]) -> None:
        """What both branches assign is assigned after them."""
        before = set(self.assigned)
        ends = []
        for body, holds in ((branch.body, True), (branch.orelse, False)):
            self.assigned = set(before)
            self._body(body, (*path, Branch(branch.condition, holds)))
            ends.append(self.assigned)
        self.assigned = ends[0] & ends[1]

    def _compute(self, compute: ir.Compute, path: tuple[Step, ...]) -> None:
        for operand in compute.operands:
            if isinstance(operand, ir.TileOperand):
                self._use(operand.tile, path, operand.span)
            elif isinstance(operand, ir.IndexOperand):
                for tile in tiles_read(operand.value):
                    self._use(tile, path, operand.span)
        if OPS[compute.operation].accumulates:
            for name in compute.destinations:
                self._use(name, path, compute.span)
        self.assigned.update(compute.destinations)

    def _loop(self, loop: ir.For, path: tuple[Step, ...]) -> None:
        before = set(self.assigned)
        self._body(loop.body, (*path, loop))
        for tile in self.assigned - before:
            self.lost[tile] = loop
        self.assigned = before

    def _use(self, tile: str, path: tuple[Step, ...], span: Span) -> None:
        self.read.setdefault(tile, span)
        if tile not in self.assigned:
            self.gaps.setdefault(tile, _Gap(self.tiles[tile], path, span, self.lost.get(tile)))


def _refuted(prover: Prover, gap: _Gap) -> Finding:
    """The verdict on such a read, as elaboration reports it (R12)."""
    name, code = gap.tile.source_name, "SK0401" if gap.loop is None else "SK0402"
    example = _example(prover, gap)
    told = f"`{name}` is assigned only inside a loop that ended before this read"
    label = told if example is None else example.text
    message = f"`{name}` is read before it is assigned"
    diagnostic = Diagnostic(code, Severity.ERROR, message, gap.span, label)
    return contested("initialised", name, diagnostic, example)


def _example(prover: Prover, gap: _Gap) -> ir.CounterExample | None:
    """Sizes at which the read is reached and the assigning loop (if any) runs no iteration."""
    scope = prover.root
    for step in gap.path:
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
        where = iteration(gap.path, scope, outcome.point, host)
    except (concrete.Untried, ArithmeticError):
        where = {}  # a bound is data, say
    reason = "which nothing has assigned"
    if gap.loop is not None:
        reason = f"but the loop over `{gap.loop.variable}` that assigns it runs no iteration"
    told = f"{in_iteration(where, 'reads')} `{gap.tile.source_name}`, {reason}"
    return counter_example(symbols, {}, (where,), (), told)


def explain(sketch: ir.Sketch, found: tuple[Diagnostic, ...]) -> tuple[Diagnostic, ...]:
    """Adds to the elaborator's reports of unassigned tiles the sizes at which they happen."""
    prover = Prover.of(sketch)
    examples = {gap.span: _example(prover, gap) for gap in _Walk(sketch).gaps.values()}
    return tuple(
        records.evolve(one, notes=(*one.notes, example.text))
        if one.severity is Severity.ERROR and (example := examples.get(one.span))
        else one
        for one in found
    )
