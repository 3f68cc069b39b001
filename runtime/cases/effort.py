"""What a run takes where programs are interpreted statement by statement: an estimate in lanes.

Unlike `checker/workload`, nothing is enumerated: a loop counts its trips at the first iteration of
those around it. So it costs as little at large sizes as at small ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from sketchc.base.diagnostics import InternalError
from sketchc.checker.testing.workload import LANES_PER_STATEMENT
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import Value, evaluate, host_sample
from sketchc.lowering.plan import Plan
from sketchc.runtime.cases.chains import host_scope
from sketchc.runtime.cases.sizes import elements, tensor_shapes

_NO_VALUE = (KeyError, ArithmeticError, ValueError, InternalError)


def effort(plan: Plan, symbols: Mapping[str, int], params: Mapping[str, Value]) -> int:
    """Statements, of which each counts as many lanes as take as long, and lanes. Of a kernel
    without a sketch nothing is known: as if each symbol were a grid."""
    sketch = plan.sketch
    moved = elements(tensor_shapes(sketch, symbols, params))
    if not plan.phases:
        return moved + LANES_PER_STATEMENT * sum(symbols.values())
    host = host_sample(sketch, symbols, params)
    host |= {tensor.name: True for tensor in sketch.tensors if tensor.optional}
    sizes = {
        tile.name: prod(max(_value(extent, host), 1) for extent in tile.extents)
        for tile in sketch.tiles
    }
    total = moved
    for number, phase in enumerate(sketch.phases):
        try:
            scope, launches = host_scope(sketch, number, host)
        except _NO_VALUE:
            scope, launches = dict(host), 1
        total += launches * _body(phase.body, scope, sizes)
    return total


def _body(
    body: tuple[ir.Statement, ...], values: dict[str, Value], sizes: Mapping[str, int]
) -> int:
    total = 0
    for statement in body:
        match statement:
            case ir.For(variable, start, stop, step):
                bounds = [_value(bound, values) for bound in (start, stop, step)]
                trips = len(range(bounds[0], bounds[1], bounds[2] or 1))
                inner = {**values, variable: bounds[0]}
                each = _body(statement.body, inner, sizes) if trips else 0
                total += trips * (LANES_PER_STATEMENT // 10 + each)
            case ir.If(_, then, orelse):
                total += max(_body(then, values, sizes), _body(orelse, values, sizes))
            case ir.Bind(name, value):
                try:
                    values = {**values, name: evaluate(value, values)}
                except _NO_VALUE:
                    total += LANES_PER_STATEMENT
            case ir.Load(tile=tile) | ir.Store(tile=tile) | ir.Atomic(tile=tile):
                total += LANES_PER_STATEMENT + sizes[tile]
            case ir.Compute(destination=tile):
                total += LANES_PER_STATEMENT + sizes[tile]
            case ir.Alloc() | ir.Fetch():
                total += LANES_PER_STATEMENT
    return total


def _value(expression: ir.Expr, values: Mapping[str, Value]) -> int:
    try:
        return int(evaluate(expression, values))
    except _NO_VALUE:
        return 1
