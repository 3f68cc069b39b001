"""Data flow over tiles: definite assignment (R12), and what loops carry (LOWERING 6).

Runs on the IR of a sketch without other errors. A loop may run zero times, so nothing is assigned
after it that was not assigned before; a tile without `init=` that a loop writes cannot be read
after it, because its valid lanes would be those of the last iteration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from sketchc import ir, syntax
from sketchc import records as attrs
from sketchc.checker.quirks import init_fix
from sketchc.diagnostics import Diagnostic, Fix, Label, Severity
from sketchc.ops import OPS
from sketchc.source import Span


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


@attrs.define(eq=False)
class _Assignment:
    tiles: Mapping[str, ir.Tile]
    allocs: Mapping[str, syntax.Alloc]
    assigned: set[str] = attrs.field(factory=set)
    writers: dict[str, Span] = attrs.field(factory=dict)  # loop that left a tile unreadable
    reported: set[str] = attrs.field(factory=set)
    found: list[Diagnostic] = attrs.field(factory=list)

    def block(self, body: tuple[ir.Statement, ...]) -> set[str]:
        """Check a block; returns the tiles it writes."""
        written: set[str] = set()
        for statement in body:
            match statement:
                case ir.Alloc(tile=name):
                    self.assigned.discard(name)
                    self.writers.pop(name, None)
                    if self.tiles[name].initial is not None:
                        self.assigned.add(name)
                case ir.Load(tile=name):
                    written.add(name)
                    self.assigned.add(name)
                case ir.Store(tile=name):
                    self.read(name, statement.span)
                case ir.Compute():
                    self.compute(statement)
                    written.add(statement.destination)
                case ir.For():
                    written |= self.loop(statement)
                case ir.Bind():
                    pass
                case _:
                    assert_never(statement)
        return written

    def compute(self, statement: ir.Compute) -> None:
        for operand in statement.operands:
            if isinstance(operand, ir.TileOperand):
                self.read(operand.tile, operand.span)
        if OPS[statement.operation].accumulates:
            self.read(statement.destination, statement.span, accumulates=statement.operation)
        self.assigned.add(statement.destination)

    def loop(self, loop: ir.For) -> set[str]:
        before = set(self.assigned)
        written = self.block(loop.body)
        lost = {name for name in written if self.tiles[name].initial is None}
        self.assigned = before - lost
        for name in lost:
            self.writers[name] = loop.span
        return written

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
            label = "not assigned on every path"
            labels.append(Label(self.writers[name], "this loop may run zero times"))
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


# ---------------------------------------------------------------- carried tiles


def add_carried(phase: ir.Phase, tiles: Mapping[str, ir.Tile]) -> ir.Phase:
    """Fill in `carried` of every loop: tiles live at its header and written in its body."""
    exposed: dict[int, frozenset[str]] = {}
    _expose(phase.body, tiles, exposed)
    return ir.Phase(_carry(phase.body, frozenset(), tiles, exposed))


def _expose(
    body: tuple[ir.Statement, ...],
    tiles: Mapping[str, ir.Tile],
    exposed: dict[int, frozenset[str]],
) -> frozenset[str]:
    """The tiles that a block reads before it writes them; kept for every loop, by `id`."""
    live: frozenset[str] = frozenset()
    for statement in reversed(body):
        if isinstance(statement, ir.For):
            exposed[id(statement)] = _expose(statement.body, tiles, exposed)
            live |= exposed[id(statement)]
        else:
            live = _before(statement, live, tiles)
    return live


def _carry(
    body: tuple[ir.Statement, ...],
    live: frozenset[str],
    tiles: Mapping[str, ir.Tile],
    exposed: Mapping[int, frozenset[str]],
) -> tuple[ir.Statement, ...]:
    """Rewrite a block backwards from the tiles live after it.

    Live at a loop's header is what is live after the loop and what its body exposes: a body only
    takes away what it writes first, and the loop may run zero times.
    """
    result: list[ir.Statement] = []
    for statement in reversed(body):
        if isinstance(statement, ir.For):
            live |= exposed[id(statement)]
            written = dict.fromkeys(_written(statement.body))
            result.append(
                attrs.evolve(
                    statement,
                    body=_carry(statement.body, live, tiles, exposed),
                    carried=tuple(name for name in written if name in live),
                )
            )
        else:
            live = _before(statement, live, tiles)
            result.append(statement)
    return tuple(reversed(result))


def _before(
    statement: ir.Alloc | ir.Load | ir.Store | ir.Compute | ir.Bind,
    live: frozenset[str],
    tiles: Mapping[str, ir.Tile],
) -> frozenset[str]:
    match statement:
        case ir.Alloc(tile=name):
            return live - {name}
        case ir.Load(tile=name):
            return live | {name} if tiles[name].initial is not None else live - {name}
        case ir.Store(tile=name):
            return live | {name}
        case ir.Compute(operation=operation, operands=operands, destination=name):
            # writing a tile with `init=` is a masked update: it reads what it keeps
            keeps = OPS[operation].accumulates or tiles[name].initial is not None
            live = live | {name} if keeps else live - {name}
            return live | {o.tile for o in operands if isinstance(o, ir.TileOperand)}
        case ir.Bind():
            return live
        case _:
            assert_never(statement)


def _written(body: tuple[ir.Statement, ...]) -> list[str]:
    """The tiles that a block writes, in order, repeats included."""
    result: list[str] = []
    for statement in body:
        match statement:
            case ir.Load(tile=name) | ir.Compute(destination=name):
                result.append(name)
            case ir.For(body=inner):
                result.extend(_written(inner))
            case _:
                pass
    return result
