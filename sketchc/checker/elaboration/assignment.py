"""Definite assignment of tiles: which tiles are read where some path has not assigned them (R12).

A tile is assigned by `init=`, a load, or an operation. An assignment inside a loop does not count
after the loop, which may run no iteration. After an `if`, a tile counts that both branches assign.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from sketchc.base import records
from sketchc.base.diagnostics import Diagnostic, Fix, Label, Span, error
from sketchc.checker.context.fixits import init_fix
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.parsing import syntax

#: What leads to a statement of a launch; of an `if`, its condition and whether it holds.
Step: TypeAlias = ir.For | ir.Bind | ir.Fetch | tuple[ir.Expr, bool]


@records.frozen
class Gap:
    """The first read of a tile that may not be assigned. `place` is the operand, access or
    statement that reads the tile, `span` the part of `place` that names it; `accumulates` the
    operation that adds to the tile; `loop` the loop that alone wrote it, `branch` the `if` that
    wrote it in one branch only."""

    tile: ir.Tile
    phase: int
    path: tuple[Step, ...]
    place: Span
    span: Span
    accumulates: str
    loop: ir.For | None
    branch: Span | None


class Assignment:
    """Follows which tiles are assigned. By tile, `read` is where it is read first, and `gaps` its
    first read that some path reaches without assigning it."""

    def __init__(self, phases: tuple[ir.Phase, ...], tiles: Mapping[str, ir.Tile]) -> None:
        self.tiles = tiles
        self.read: dict[str, Span] = {}
        self.gaps: dict[str, Gap] = {}
        self._assigned: set[str] = set()
        self._loops: dict[str, ir.For] = {}
        self._branches: dict[str, Span] = {}
        for index, phase in enumerate(phases):
            self._block(phase.body, index, ())

    def _block(self, body: tuple[ir.Statement, ...], phase: int, path: tuple[Step, ...]) -> None:
        for statement in body:
            self._reads(statement, phase, path)
            match statement:
                case ir.Alloc(tile):
                    self._assigned.discard(tile)
                    self._loops.pop(tile, None)
                    self._branches.pop(tile, None)
                    if self.tiles[tile].initial is not None:
                        self._assigned.add(tile)
                case ir.For():
                    before = set(self._assigned)
                    self._block(statement.body, phase, (*path, statement))
                    self._loops |= dict.fromkeys(self._assigned - before, statement)
                    self._assigned = before
                case ir.If(condition, then, orelse):
                    before, ends = self._assigned, []
                    for inner, holds in ((then, True), (orelse, False)):
                        self._assigned = set(before)
                        self._block(inner, phase, (*path, (condition, holds)))
                        ends.append(self._assigned)
                    self._branches |= dict.fromkeys(ends[0] ^ ends[1], statement.span)
                    self._assigned = ends[0] & ends[1]
                case ir.Bind() | ir.Fetch():
                    path = (*path, statement)
                case _:
                    self._assigned.update(walk.writes(statement))

    def _reads(self, statement: ir.Statement, phase: int, path: tuple[Step, ...]) -> None:
        """Note the tiles that a statement reads itself."""
        lanes: dict[str, Span] = {}
        for value in walk.expressions(statement):
            for part in walk.lanes(value):
                lanes.setdefault(part.tile, part.span)
        for name in walk.reads(statement):
            place = _place(statement, name)
            self.read.setdefault(name, place or statement.span)
            if name in self._assigned or name in self.gaps:
                continue
            adds = statement.operation if isinstance(statement, ir.Compute) and not place else ""
            place = place or statement.span
            loop, branch = self._loops.get(name), self._branches.get(name)
            span = lanes.get(name, place)
            self.gaps[name] = Gap(self.tiles[name], phase, path, place, span, adds, loop, branch)


def _place(statement: ir.Statement, tile: str) -> Span | None:
    """The span of the operand or access that reads a tile; None where the statement itself does."""
    match statement:
        case ir.Compute(operands=operands):
            for operand in operands:
                if tile in walk.operand_tiles(operand):
                    return operand.span
        case ir.Load(access) | ir.Store(_, access) | ir.Atomic(_, _, access):
            if isinstance(statement, ir.Load) or statement.tile != tile:
                return access.span
    return None


def check_assignment(
    phases: tuple[ir.Phase, ...],
    tiles: Mapping[str, ir.Tile],
    allocs: Mapping[str, syntax.Alloc],
) -> tuple[Diagnostic, ...]:
    """Report every read of a tile that some path has not assigned, once per tile."""
    gaps = Assignment(phases, tiles).gaps
    return tuple(_reported(gap, init_fix(allocs[name])) for name, gap in gaps.items())


def _reported(gap: Gap, fix: Fix) -> Diagnostic:
    tile, source = gap.tile, gap.tile.source_name
    labels: tuple[Label, ...] = (Label(tile.span, "allocated here, without `init=`"),)
    fixes: tuple[Fix, ...] = (fix,)
    label = "not assigned on every path"
    if gap.accumulates:
        code = "SK0403"
        message = f"`{gap.accumulates}` adds to `{source}`, which is not initialised"
        label = "accumulates into unset lanes"
    elif gap.loop is not None:
        code = "SK0402"
        message = f"`{source}` is read after the loop that wrote it"
        what = "this loop may run zero times"
        if _surely_runs(gap.loop):
            label, what = "what only a loop assigns ends with it", "assigned in this loop alone"
        labels += (Label(gap.loop.span, what),)
    elif gap.branch is not None:
        code = "SK0404"
        message = f"`{source}` is read after an `if` that writes it in one branch only"
        labels += (Label(gap.branch, "the other branch leaves it as it is"),)
    else:
        code = "SK0401"
        message = f"`{source}` is read before anything is written to it"
        label, fixes = "not assigned yet", ()
    advice = "a tile with `init=` has a value from the start" if fixes else ""
    return error(gap.span, code, message, label, labels=labels, help=advice, fixes=fixes)


def _surely_runs(loop: ir.For) -> bool:
    """Whether literal bounds say that a loop runs."""
    match loop.start, loop.stop, loop.step:
        case ir.Literal(int(first)), ir.Literal(int(end)), ir.Literal(int(by)):
            return first < end if by > 0 else first > end
        case _:
            return False
