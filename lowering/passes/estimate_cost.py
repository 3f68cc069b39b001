"""Count the bytes that must move and the operations that must be done, as host expressions."""

from __future__ import annotations

import functools
from typing import assert_never

import attrs

from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.show import show
from sketchc.ir.symbolic import product
from sketchc.ir.walk import references, substitute
from sketchc.lowering.abi import passed
from sketchc.lowering.passes.map_grid import (
    Range,
    extreme,
    loop_range,
    negative_constants,
    resolved,
    simplest,
    trip_count,
    varies,
)
from sketchc.lowering.plan import Plan
from sketchc.ops.table import OPS, Category


@attrs.frozen
class EstimateCost:
    """Fill in `Plan.bytes_moved`, `Plan.traffic` and `Plan.flops`.

    Why: a time means something beside the floor that physics sets. Bytes are the compulsory
    traffic: each input read once, each output written once, in-out both; workspace is not
    compulsory. `traffic` counts whole tiles, each time that a statement loads or stores one, so
    that a plan which reads its inputs over and over shows. Operations count one per lane of an
    element-wise result, one per lane read by a reduction, two per multiply-add of a matrix product,
    at logical extents. Both branches of an `if` count, a triangular loop as its hull, and a loop
    whose bounds are fetched once.
    Requires: phases mapped.
    """

    def run(self, plan: Plan) -> Plan:
        """See `Pass`."""
        sketch = plan.sketch
        moved: list[ir.Expr] = []
        for tensor in passed(sketch):
            ways = 2 if tensor.role is ir.Role.INOUT else 1
            moved.append(_product((*tensor.extents, ir.Literal(tensor.dtype.bytes * ways))))
        cost = _Cost([], [])
        for index, phase in enumerate(sketch.phases):
            ranges: dict[str, Range] = {}
            trips: tuple[ir.Expr, ...] = ()
            for step in walk.around(sketch.steps, index):
                if isinstance(step, ir.HostFor):
                    loop = resolved(step, negative_constants(sketch))
                    trips = (*trips, *_trips(loop, ranges))
                    _enter(loop, ranges)
            _count(sketch, phase.body, trips, ranges, cost)
        return attrs.evolve(
            plan,
            bytes_moved=simplest(_sum(moved)),
            traffic=simplest(_sum(cost.traffic)),
            flops=simplest(_sum(cost.operations)),
        )


@attrs.frozen
class _Cost:
    """The costs of a sketch's statements, one term for each: bytes of traffic, and operations."""

    traffic: list[ir.Expr]
    operations: list[ir.Expr]


def _count(
    sketch: ir.Sketch,
    body: tuple[ir.Statement, ...],
    trips: tuple[ir.Expr, ...],
    ranges: dict[str, Range],
    cost: _Cost,
) -> None:
    for statement in body:
        match statement:
            case ir.For():
                loop = resolved(statement, negative_constants(sketch))
                inner = (*trips, *_trips(loop, ranges))
                _enter(loop, ranges)
                _count(sketch, statement.body, inner, ranges, cost)
            case ir.If(_, then, orelse):
                _count(sketch, then, trips, ranges, cost)
                _count(sketch, orelse, trips, ranges, cost)
            case ir.Compute():
                cost.operations.append(_product((*trips, *_work(sketch, statement))))
            case ir.Load() | ir.Store() | ir.Atomic():
                tile = sketch.tile(statement.tile)
                lanes, size = (*trips, *tile.extents), tile.dtype.bytes
                if isinstance(statement, ir.Atomic):
                    cost.operations.append(_product(lanes))
                    size *= 2
                cost.traffic.append(_product((*lanes, ir.Literal(size))))
            case ir.Fetch():
                cost.traffic.append(_product((*trips, ir.Literal(statement.dtype.bytes))))
            case ir.Bind(name, value):
                value = substitute(value, negative_constants(sketch))
                low, high = (extreme(value, ranges, upper) for upper in (False, True))
                if low is not None and high is not None:
                    ranges[name] = Range(low, high)
            case ir.Alloc():
                pass
            case _:
                assert_never(statement)


def _trips(loop: ir.For | ir.HostFor, ranges: dict[str, Range]) -> tuple[ir.Expr, ...]:
    """The most iterations of a loop, as factors; none where the host knows no bound."""
    count = trip_count(loop)
    zero = ir.Literal(0)
    if loop.step != ir.Literal(1) and loop.start != zero:
        count = ir.Binary("max", count, zero)
    most = extreme(count, ranges, upper=True) if varies(count, ranges) else count
    return () if most is None or _fetched(most, ranges) else (most,)


def _enter(loop: ir.For | ir.HostFor, ranges: dict[str, Range]) -> None:
    span = loop_range(loop, ranges)
    if span is not None:
        ranges[loop.variable] = span


def _fetched(count: ir.Expr, ranges: dict[str, Range]) -> bool:
    """True where a count depends on a name that host steps fetch or bind without a known range."""
    return any(
        reference.kind is ir.NameKind.HOST and reference.name not in ranges
        for reference in references(count)
    )


def _work(sketch: ir.Sketch, statement: ir.Compute) -> tuple[ir.Expr, ...]:
    row = OPS[statement.operation]
    extents = sketch.tile(statement.destination).extents
    operand = statement.operands[0] if statement.operands else None
    if isinstance(operand, ir.TileOperand):
        source = sketch.tile(operand.tile).extents
        if row.category is Category.MATRIX:
            depth = source[-2 if statement.attributes.get("trans_a") else -1]
            return (*extents, depth, ir.Literal(2))
        if row.category is Category.REDUCTION:
            return source
    return extents


def _product(factors: tuple[ir.Expr, ...]) -> ir.Expr:
    return product([factor for factor in factors if factor != ir.Literal(1)])


def _sum(terms: list[ir.Expr]) -> ir.Expr:
    """The sum, equal terms gathered into one with a factor."""
    alike: dict[str, list[ir.Expr]] = {}
    for term in terms:
        alike.setdefault(show(term), []).append(term)
    gathered = [
        same[0] if len(same) == 1 else _product((ir.Literal(len(same)), same[0]))
        for same in alike.values()
    ]
    return functools.reduce(functools.partial(ir.Binary, "+"), gathered or [ir.Literal(0)])
