"""Data flow over tiles: definite assignment (R12), and what loops carry (LOWERING 6).

Runs on the IR of a sketch without other errors. A loop may run zero times, so nothing is assigned
after it that was not assigned before; a tile that was may be written in the loop and read after it,
for at the loop's header its valid lanes do not change (`domains`). After an `if` a tile is assigned
where both branches leave it so. A loop carries a tile that is live at its header and written in its
body, an `if` one that a branch writes and that is read afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from sketchc.base import records
from sketchc.base.diagnostics import Diagnostic, Fix, Label, Severity, Span
from sketchc.checker.context.fixits import init_fix
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.walk import expressions
from sketchc.ops.table import OPS
from sketchc.parsing import syntax


def check_assignment(
    phases: tuple[ir.Phase, ...],
    tiles: Mapping[str, ir.Tile],
    allocs: Mapping[str, syntax.Alloc],
) -> tuple[Diagnostic, ...]:
    """Report every read of a tile that some path has not assigned, once per tile."""
    checker = _Assignment(tiles, allocs)
    for phase in phases:
        checker.block(phase.body)
    return tuple(checker.found)


@records.define(eq=False)
class _Assignment:
    tiles: Mapping[str, ir.Tile]
    allocs: Mapping[str, syntax.Alloc]
    assigned: set[str] = records.field(factory=set)
    writers: dict[str, ir.For] = records.field(factory=dict)  # loop that alone wrote a tile
    branches: dict[str, Span] = records.field(factory=dict)  # `if` that left a tile unassigned
    reported: set[str] = records.field(factory=set)
    found: list[Diagnostic] = records.field(factory=list)

    def block(self, body: tuple[ir.Statement, ...]) -> None:
        """Check a block, and note what it assigns."""
        for statement in body:
            for value in expressions(statement):
                for lanes in walk.lanes(value):
                    self.read(lanes.tile, lanes.span)
            match statement:
                case ir.Alloc(tile=name):
                    self.assigned.discard(name)
                    self.writers.pop(name, None)
                    self.branches.pop(name, None)
                    if self.tiles[name].initial is not None:
                        self.assigned.add(name)
                case ir.Load(tile=name):
                    self.assigned.add(name)
                case ir.Store(tile=name) | ir.Atomic(tile=name):
                    self.read(name, statement.span)
                case ir.Compute():
                    self.compute(statement)
                case ir.For():
                    self.loop(statement)
                case ir.If():
                    self.branch(statement)
                case ir.Bind() | ir.Fetch():
                    pass
                case _:
                    assert_never(statement)

    def compute(self, statement: ir.Compute) -> None:
        for operand in statement.operands:
            if isinstance(operand, ir.TileOperand):
                self.read(operand.tile, operand.span)
        for name in statement.destinations:
            if OPS[statement.operation].accumulates:
                self.read(name, statement.span, accumulates=statement.operation)
            self.assigned.add(name)

    def branch(self, statement: ir.If) -> None:
        before = set(self.assigned)
        self.block(statement.body)
        after = self.assigned
        self.assigned = before
        self.block(statement.orelse)
        for name in after ^ self.assigned:
            self.branches[name] = statement.span
        self.assigned &= after

    def loop(self, loop: ir.For) -> None:
        before = set(self.assigned)
        self.block(loop.body)
        for name in self.assigned - before:
            self.writers[name] = loop
        self.assigned = before

    def read(self, name: str, span: Span, accumulates: str = "") -> None:
        if name in self.assigned or name in self.reported:
            return
        self.reported.add(name)
        tile = self.tiles[name]
        source = tile.source_name
        labels = [Label(tile.span, "allocated here, without `init=`")]
        fixes: tuple[Fix, ...] = (init_fix(self.allocs[name]),)
        if accumulates:
            code = "SK0403"
            message = f"`{accumulates}` adds to `{source}`, which is not initialised"
            label = "accumulates into unset lanes"
        elif name in self.writers:
            code = "SK0402"
            message = f"`{source}` is read after the loop that wrote it"
            loop = self.writers[name]
            runs = _surely_runs(loop.start, loop.stop, loop.step)
            label = (
                "what only a loop assigns ends with it" if runs else "not assigned on every path"
            )
            what = "assigned in this loop alone" if runs else "this loop may run zero times"
            labels.append(Label(loop.span, what))
        elif name in self.branches:
            code = "SK0404"
            message = f"`{source}` is read after an `if` that writes it in one branch only"
            label = "not assigned on every path"
            labels.append(Label(self.branches[name], "the other branch leaves it as it is"))
        else:
            code = "SK0401"
            message = f"`{source}` is read before anything is written to it"
            label = "not assigned yet"
            fixes = ()
        self.found.append(
            Diagnostic(
                code,
                Severity.ERROR,
                message,
                span,
                label,
                tuple(labels),
                help="" if not fixes else "a tile with `init=` has a value from the start",
                fixes=fixes,
            )
        )


def _surely_runs(start: ir.Expr, stop: ir.Expr, step: ir.Expr) -> bool:
    """Whether literal bounds say that a loop runs."""
    match start, stop, step:
        case ir.Literal(int(first)), ir.Literal(int(end)), ir.Literal(int(by)):
            return first < end if by > 0 else first > end
        case _:
            return False


# ---------------------------------------------------------------- carried tiles


def add_carried(phase: ir.Phase, tiles: Mapping[str, ir.Tile]) -> ir.Phase:
    """Fill in `carried` of every loop and branch."""
    body, _ = _carry(phase.body, frozenset(), tiles)
    return records.evolve(phase, body=body)


def _exposed(
    body: tuple[ir.Statement, ...], live: frozenset[str], tiles: Mapping[str, ir.Tile]
) -> frozenset[str]:
    """The tiles live before a block, from those live after it."""
    for statement in reversed(body):
        match statement:
            case ir.For(body=inner):
                live |= _exposed(inner, frozenset(), tiles)
            case ir.If(body=inner, orelse=orelse):
                live = _exposed(inner, live, tiles) | _exposed(orelse, live, tiles)
            case _:
                live = _before(statement, live, tiles)
    return live


def _carry(
    body: tuple[ir.Statement, ...], live: frozenset[str], tiles: Mapping[str, ir.Tile]
) -> tuple[tuple[ir.Statement, ...], frozenset[str]]:
    """Rewrite a block backwards from the tiles live after it; gives those live before it too.

    Live at a loop's header is what is live after the loop and what its body exposes: a body only
    takes away what it writes first, and the loop may run zero times.
    """
    result: list[ir.Statement] = []
    for statement in reversed(body):
        match statement:
            case ir.For():
                live |= _exposed(statement.body, frozenset(), tiles)
                inner, _ = _carry(statement.body, live, tiles)
                carried = _kept(statement.body, live)
                result.append(records.evolve(statement, body=inner, carried=carried))
            case ir.If():
                carried = _kept((*statement.body, *statement.orelse), live)
                inner, first = _carry(statement.body, live, tiles)
                orelse, second = _carry(statement.orelse, live, tiles)
                live = first | second
                result.append(records.evolve(statement, body=inner, orelse=orelse, carried=carried))
            case _:
                live = _before(statement, live, tiles)
                result.append(statement)
    return tuple(reversed(result)), live


def _kept(body: tuple[ir.Statement, ...], live: frozenset[str]) -> tuple[str, ...]:
    """The live tiles that a block writes, in order of first write."""
    written = (tile for each in walk.statements(body) for tile in walk.writes(each))
    return tuple(name for name in dict.fromkeys(written) if name in live)


def _before(
    statement: ir.Statement, live: frozenset[str], tiles: Mapping[str, ir.Tile]
) -> frozenset[str]:
    """The tiles live before a simple statement."""
    if isinstance(statement, ir.Alloc):
        return live - {statement.tile}
    written = walk.writes(statement)
    # writing a tile with `init=` is a masked update: it reads what it keeps
    kept = {name for name in written if tiles[name].initial is not None}
    return live.difference(written).union(kept, walk.reads(statement))
