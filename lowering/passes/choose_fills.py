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
    operation's identity; values that flow around a loop or out of a branch count as unknown. The
    fill of a load with a constant `pad=` is that constant.
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


@attrs.define
class _Flow:
    """The known value of each tile's void lanes, found statement by statement."""

    sketch: ir.Sketch
    phase: int
    fills: dict[tuple[int, int], Value]
    neutral: dict[tuple[int, int], frozenset[int]]
    position: int = 0

    def visit(
        self, body: tuple[ir.Statement, ...], known: dict[str, tuple[Value, ir.Domain]]
    ) -> None:
        for statement in body:
            here = self.position
            self.position += 1
            match statement:
                case ir.Load(_, tile, domain, pad):
                    moving = isinstance(pad, ir.ScalarOperand)
                    if moving or self.sketch.tile(tile).initial is not None:
                        known.pop(tile, None)  # in an `init=` tile void lanes keep what they held
                    else:
                        known[tile] = (self.fills[self.phase, here], domain)
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

    def _compute(
        self, statement: ir.Compute, here: int, known: dict[str, tuple[Value, ir.Domain]]
    ) -> None:
        row = OPS[statement.operation]
        operands = [o for o in statement.operands if isinstance(o, ir.TileOperand)]
        if row.identity is not None:
            found = set()
            for index, operand in enumerate(statement.operands):
                if not isinstance(operand, ir.TileOperand) or operand.tile not in known:
                    continue
                dtype = self.sketch.tile(operand.tile).dtype
                if known[operand.tile][0] == identity_value(row.identity, dtype):
                    found.add(index)
            self.neutral[self.phase, here] = frozenset(found)
        keeps = (
            row.category is Category.ELEMENTWISE
            and Fact.ZERO_OF_ZERO in row.facts
            and not statement.masked
            and len(operands) == len(statement.operands)
            and all(known.get(o.tile, (None,))[0] == 0 for o in operands)
            and len({o.domain for o in operands}) == 1
            and len({self.sketch.tile(o.tile).extents for o in operands}) == 1
            and self.sketch.tile(statement.destination).extents
            == self.sketch.tile(operands[0].tile).extents
        )
        if keeps:
            known[statement.destination] = (0, statement.domain)
        else:
            for name in statement.destinations:
                known.pop(name, None)


def _written(body: tuple[ir.Statement, ...]) -> set[str]:
    return {tile for statement in walk.statements(body) for tile in walk.writes(statement)}
