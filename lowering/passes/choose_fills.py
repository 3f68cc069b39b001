"""Choose what masked loads put into void lanes, and find where no identity select is needed."""

from __future__ import annotations

from typing import assert_never

import attrs

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.lowering.plan import Plan
from sketchc.ops.table import OPS, Category, Fact, Value, identity_value


@attrs.frozen
class ChooseFills:
    """Fill in `Plan.fills` and `Plan.neutral`.

    Why: the identity fill before a cross-lane operation is a select (LOWERING 4); when the load
    already put the identity into the void lanes, the select is waste.
    Requires: phases mapped, domains inferred. Ensures: an operand is listed as neutral only if
    dataflow within one iteration proves each of its void lanes, padding included, to hold the
    operation's identity; values that flow around a loop or out of a branch count as unknown. Of an
    addition to a tile some lanes of which keep their values, the operand that is this tile is
    listed where the others are zero on these lanes, so that adding them changes nothing. The fill
    of a load with a constant `pad=` is that constant.
    """

    def run(self, plan: Plan) -> Plan:
        """See `Pass`."""
        fills: dict[tuple[int, int], Value] = {}
        neutral: dict[tuple[int, int], frozenset[int]] = {}
        for phase in plan.phases:
            statements = list(walk.statements(phase.body))
            for position, statement in enumerate(statements):
                if isinstance(statement, ir.Load):
                    dtype = plan.sketch.tile(statement.tile).dtype
                    fills[phase.index, position] = (
                        _wanted(statements[position + 1 :], statement, dtype)
                        if statement.pad is None or isinstance(statement.pad, ir.ScalarOperand)
                        else statement.pad
                    )
            flow = _Flow(plan.sketch, phase.index, fills, neutral)
            flow.visit(phase.body, {})
        return attrs.evolve(plan, fills=fills, neutral=neutral)


def _wanted(after: list[ir.Statement], load: ir.Load, dtype: DType) -> Value:
    """The identity of the first operation that has one and reads the loaded tile, or else zero."""
    for statement in after:
        match statement:
            case ir.Compute(operation, operands):
                reads = any(isinstance(o, ir.TileOperand) and o.tile == load.tile for o in operands)
                identity = OPS[operation].identity
                if reads and identity is not None:
                    return identity_value(identity, dtype)
                if load.tile in statement.destinations:
                    break
            case ir.Load(_, tile) if tile == load.tile:
                break
    return identity_value("zero", dtype)


@attrs.frozen
class _Void:
    """What lanes of a tile hold that are void along one of `axes` at least; `domain` says which."""

    value: Value
    domain: ir.Domain
    axes: frozenset[int]

    @property
    def whole(self) -> bool:
        """Whether these are all void lanes."""
        return len(self.axes) == len(self.domain)


@attrs.define
class _Flow:
    """The known value of each tile's void lanes, found statement by statement."""

    sketch: ir.Sketch
    phase: int
    fills: dict[tuple[int, int], Value]
    neutral: dict[tuple[int, int], frozenset[int]]
    position: int = 0

    def visit(self, body: tuple[ir.Statement, ...], known: dict[str, _Void]) -> None:
        for statement in body:
            here = self.position
            self.position += 1
            match statement:
                case ir.Load(_, tile, domain, pad):
                    moving = isinstance(pad, ir.ScalarOperand)
                    if moving or self.sketch.tile(tile).initial is not None:
                        known.pop(tile, None)  # in an `init=` tile void lanes keep what they held
                    else:
                        axes = frozenset(range(len(domain)))
                        known[tile] = _Void(self.fills[self.phase, here], domain, axes)
                case ir.Compute():
                    self._compute(statement, here, known)
                case ir.For(body=inner):
                    for name in _written(inner):
                        known.pop(name, None)
                    self.visit(inner, dict(known))
                case ir.If(_, then, orelse):
                    for branch in (then, orelse):
                        self.visit(branch, dict(known))
                    for name in _written((statement,)):
                        known.pop(name, None)
                case ir.Alloc() | ir.Store() | ir.Bind() | ir.Atomic() | ir.Fetch():
                    pass
                case _:
                    assert_never(statement)

    def _compute(self, statement: ir.Compute, here: int, known: dict[str, _Void]) -> None:
        row = OPS[statement.operation]
        if row.identity is not None:
            found = set()
            for index, operand in enumerate(statement.operands):
                void = known.get(operand.tile) if isinstance(operand, ir.TileOperand) else None
                if void is None or not void.whole:
                    continue
                assert isinstance(operand, ir.TileOperand)
                dtype = self.sketch.tile(operand.tile).dtype
                if void.value == identity_value(row.identity, dtype):
                    found.add(index)
            self.neutral[self.phase, here] = frozenset(found)
        if statement.masked and Fact.ADDS in row.facts:
            self.neutral[self.phase, here] = self._unchanged(statement, known)
        axes = frozenset[int]()
        if (
            row.category is Category.ELEMENTWISE
            and Fact.ZERO_OF_ZERO in row.facts
            and not statement.masked
            and statement.domain
        ):
            every = range(len(statement.domain))
            operands = statement.operands
            axes = frozenset(a for a in every if self._zero(a, statement, operands, known))
        for name in statement.destinations:
            known.pop(name, None)
        if axes:
            known[statement.destination] = _Void(0, statement.domain, axes)

    def _zero(
        self,
        axis: int,
        statement: ir.Compute,
        operands: tuple[ir.Operand, ...],
        known: dict[str, _Void],
    ) -> bool:
        """Whether all `operands` are zero on lanes of the destination that are void on an axis,
        which is also theirs."""
        to = self.sketch.tile(statement.destination).extents
        wanted = (statement.written if statement.masked else statement.domain)[axis]
        for operand in operands:
            if not isinstance(operand, ir.TileOperand):
                return False
            tile, void = self.sketch.tile(operand.tile), known.get(operand.tile)
            own = walk.laid_out(enumerate(tile.extents), operand.layout, (-1, ir.Literal(1)))
            place = axis - len(to) + len(own)
            if void is None or void.value != 0 or place < 0:
                return False
            number, extent = own[place]
            if number not in void.axes or extent != to[axis] or void.domain[number] != wanted:
                return False
        return True

    def _unchanged(self, statement: ir.Compute, known: dict[str, _Void]) -> frozenset[int]:
        """The operand of a masked addition that is its destination, where all others are zero on
        the lanes of the tile that it must not change."""
        tile = self.sketch.tile(statement.destination)
        last = len(statement.operands) - 1
        places = [
            place
            for place, operand in enumerate(statement.operands)
            if isinstance(operand, ir.TileOperand)
            and operand.tile == tile.name
            and operand.layout is None
            and (place == last or Fact.SCALES not in OPS[statement.operation].facts)
        ]
        if len(places) != 1 or not tile.dtype.is_float or statement.dtype is not tile.dtype:
            return frozenset()
        others = tuple(o for place, o in enumerate(statement.operands) if place != places[0])
        for axis, written in enumerate(statement.written):
            lasting = tile.domain[axis] if tile.domain else ir.FULL
            if written != lasting and not self._zero(axis, statement, others, known):
                return frozenset()
        return frozenset(places)


def _written(body: tuple[ir.Statement, ...]) -> set[str]:
    return {tile for statement in walk.statements(body) for tile in walk.writes(statement)}
