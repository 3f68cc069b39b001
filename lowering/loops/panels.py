"""Which panels that products pack are kept, so that later programs of a launch find them packed.

A thread runs the programs of a launch one after the other, the last axis of the grid fastest. An
operand that comes straight from a tensor is the same in all programs along an axis that its place
does not depend on: `A[i, k]` along `j`, `B[k, j]` along `i`. `keep_panels` gives such an operand a
slot of memory for each turn of the loops inside of that axis that its place does depend on. What is
in a slot is known when the kernel runs, so the slots are a matter of speed alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from sketchc.ir import nodes as ir
from sketchc.ir.walk import names
from sketchc.lowering.loops import nodes
from sketchc.lowering.loops.nests import ZERO

_ONE = ir.Literal(1)


def keep_panels(launch: nodes.Launch, sketch: ir.Sketch) -> nodes.Launch:
    """The launch with products that keep the panels of what no program of it writes."""
    groups = (sketch.symbols, sketch.params, sketch.constants, sketch.lets)
    host = frozenset(each.name for group in groups for each in group)
    body = launch.program.body
    written = {buffer for each in nodes.walk(body) for buffer in _written(each)}
    steady = frozenset(tensor.name for tensor in sketch.tensors) - written
    depths = {each.name: each.extents[0] for each in launch.program.storages if each.extents}
    keeper = _Keeper(launch.grid, host, steady, depths)
    program = attrs.evolve(launch.program, body=keeper.changed(body, launch.grid))
    return attrs.evolve(launch, program=program)


def _written(statement: nodes.Statement) -> set[str]:
    """The buffers that a statement may write."""
    found = {
        part.buffer
        for part in nodes.parts(statement)
        if isinstance(part, nodes.MatrixView | nodes.TileView) and part.writable
    }
    match statement:
        case nodes.Write(buffer) | nodes.AtomicUpdate(buffer=buffer):
            found.add(buffer)
        case nodes.Accumulate(target=nodes.Element(buffer=buffer)):
            found.add(buffer)
        case nodes.LaneLoop(rows=rows):
            found |= {row.buffer for row in rows if row.writable}
    return found


@attrs.frozen
class _Keeper:
    """Looks for operands of products that are met again; `host` are the names that have one value
    in a launch, `steady` the tensors that it does not write, `depths` the first extents of the
    storages: the terms that panels have room for, or as many as a block has."""

    grid: tuple[nodes.SerialLoop, ...]
    host: frozenset[str]
    steady: frozenset[str]
    depths: Mapping[str, ir.Expr]

    def changed(
        self, body: Iterable[nodes.Statement], around: tuple[nodes.SerialLoop, ...]
    ) -> tuple[nodes.Statement, ...]:
        """The statements inside of the loops `around` with panels kept."""
        found: list[nodes.Statement] = []
        for statement in body:
            match statement:
                case nodes.Call(packs=packs) if packs:
                    kept = map(self._kept, packs, statement.views[: len(packs)], [around] * 2)
                    chosen = tuple(each for each in kept if each is not None)
                    found.append(attrs.evolve(statement, kept=chosen))
                case nodes.SerialLoop():
                    inside = self.changed(statement.body, (*around, statement))
                    found.append(attrs.evolve(statement, body=inside))
                case _:
                    found.append(nodes.with_bodies(statement, lambda b: self.changed(b, around)))
        return tuple(found)

    def _kept(
        self,
        pack: str,
        view: nodes.MatrixView | nodes.TileView,
        around: tuple[nodes.SerialLoop, ...],
    ) -> nodes.Keeping | None:
        """How the panels of an operand are kept; None where they are not met again, or where
        nothing tells their places apart before the launch."""
        if not isinstance(view, nodes.MatrixView) or view.buffer not in self.steady:
            return None
        own = {*names(view.origin), *names(view.row), *names(view.column)} - self.host
        if not own <= {loop.variable for loop in around}:
            return None
        fixed = [n for n, loop in enumerate(around) if loop.variable not in own]
        if not fixed:
            return None
        inner = around[fixed[0] + 1 :]
        slots: ir.Expr = _ONE
        number: ir.Expr = ZERO
        for loop in inner:
            if loop.variable not in own:
                continue
            bounds = {*names(loop.start), *names(loop.stop), *names(loop.step)}
            if not bounds <= self.host or loop.direction != 1:
                return None
            before = ir.Binary("*", number, _turns(loop))
            number = _turn(loop) if number == ZERO else ir.Binary("+", before, _turn(loop))
            slots = _product(slots, _turns(loop))
        between: ir.Expr = _ONE
        for loop in self.grid[fixed[-1] + 1 :]:
            between = _product(between, _turns(loop))
        if fixed[-1] >= len(self.grid):
            between = ZERO
        depth = self.depths[pack]
        if isinstance(depth, ir.Binary) and depth.operator == "min":
            depth = depth.left
        return nodes.Keeping(pack, depth, slots, number, between)


def programs(grid: Iterable[nodes.SerialLoop]) -> ir.Expr:
    """How many programs a grid has."""
    count: ir.Expr = _ONE
    for loop in grid:
        count = _product(count, _turns(loop))
    return count


def _turns(loop: nodes.SerialLoop) -> ir.Expr:
    return _steps(loop.stop, loop, "cdiv")


def _turn(loop: nodes.SerialLoop) -> ir.Expr:
    return _steps(ir.Ref(loop.variable, ir.NameKind.LOOP), loop, "//")


def _steps(end: ir.Expr, loop: nodes.SerialLoop, divide: str) -> ir.Expr:
    """How many steps of a loop there are from its start to `end`."""
    distance = end if loop.start == ZERO else ir.Binary("-", end, loop.start)
    return distance if loop.step == _ONE else ir.Binary(divide, distance, loop.step)


def _product(left: ir.Expr, right: ir.Expr) -> ir.Expr:
    return right if left == _ONE else ir.Binary("*", left, right)
