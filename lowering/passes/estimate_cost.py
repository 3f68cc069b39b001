"""Count the bytes that must move and the operations that must be done, as host expressions."""

from __future__ import annotations

import functools

import attrs

from sketchc import ir
from sketchc.lowering.passes.map_grid import trip_count
from sketchc.lowering.plan import Plan
from sketchc.ops import OPS, Category
from sketchc.symbolic import show, simplify


@attrs.frozen
class EstimateCost:
    """Fill in `Plan.bytes_moved` and `Plan.flops`.

    Why: a time means something beside the floor that physics sets. Bytes are the compulsory
    traffic: each input read once, each output written once, in-out both; workspace is not
    compulsory. Operations count one per lane of an element-wise result, one per lane read by a
    reduction, two per multiply-add of a matrix product, at logical extents.
    Requires: phases mapped.
    """

    def run(self, plan: Plan) -> Plan:
        sketch = plan.sketch
        moved: list[ir.Expr] = []
        for tensor in sketch.tensors:
            if tensor.role is ir.Role.WORKSPACE:
                continue
            passes = 2 if tensor.role is ir.Role.INOUT else 1
            size = _product((*tensor.extents, ir.Literal(tensor.dtype.bytes * passes)))
            moved.append(size)
        operations: list[ir.Expr] = []
        for phase in sketch.phases:
            _count(sketch, phase.body, (), operations)
        return attrs.evolve(
            plan, bytes_moved=simplify(_sum(moved)), flops=simplify(_sum(operations))
        )


def _count(
    sketch: ir.Sketch,
    body: tuple[ir.Statement, ...],
    trips: tuple[ir.Expr, ...],
    found: list[ir.Expr],
) -> None:
    for statement in body:
        match statement:
            case ir.For():
                _count(sketch, statement.body, (*trips, trip_count(statement)), found)
            case ir.Compute():
                found.append(_product((*trips, *_work(sketch, statement))))
            case ir.Load() | ir.Store() | ir.Alloc() | ir.Bind():
                pass


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
    kept = [factor for factor in factors if factor != ir.Literal(1)]
    return functools.reduce(lambda a, b: ir.Binary("*", a, b), kept) if kept else ir.Literal(1)


def _sum(terms: list[ir.Expr]) -> ir.Expr:
    """The sum, equal terms gathered into one with a factor."""
    counts: dict[str, int] = {}
    first: dict[str, ir.Expr] = {}
    for term in terms:
        first.setdefault(show(term), term)
        counts[show(term)] = counts.get(show(term), 0) + 1
    gathered = [
        term if counts[key] == 1 else _product((ir.Literal(counts[key]), term))
        for key, term in first.items()
    ]
    if not gathered:
        return ir.Literal(0)
    return functools.reduce(lambda a, b: ir.Binary("+", a, b), gathered)
