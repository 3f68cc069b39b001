"""How long an interpretation takes, before it is tried: a count of statements and lanes.

Nothing here needs NumPy: proofs ask it whether a test is worth starting.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from sketchc import ir
from sketchc import records as attrs
from sketchc.checker import budget
from sketchc.diagnostics import InternalError
from sketchc.evaluate import Value, evaluate


class TooMuch(Exception):
    """More work than the limit."""


@attrs.define
class Workload:
    """Counts up to a limit: one statement costs as much as `LANES_PER_STATEMENT` lanes."""

    limit: int
    total: int = 0

    def add(self, cost: int) -> None:
        budget.spend(3)
        self.total += cost
        if self.total > self.limit:
            raise TooMuch


#: What the interpreter does for one statement takes as long as this many lanes.
LANES_PER_STATEMENT = 2000


def workload(sketch: ir.Sketch, host: Mapping[str, Value], limit: int) -> int | None:
    """Statements and lanes of one run with these host scalars, counted in lanes; None for more
    than `limit`. A branch counts its longer side, a loop whose bounds depend on data once."""
    counted = Workload(limit)
    sizes = {}
    try:
        for tile in sketch.tiles:
            sizes[tile.name] = 1
            for extent in tile.extents:
                sizes[tile.name] *= max(1, _value(extent, host, 1))
        _host(sketch, sketch.steps, dict(host), sizes, counted)
    except TooMuch:
        return None
    return counted.total


def _host(
    sketch: ir.Sketch,
    steps: tuple[ir.HostStep, ...],
    values: dict[str, Value],
    sizes: Mapping[str, int],
    counted: Workload,
) -> None:
    for step in steps:
        match step:
            case ir.Launch(index):
                _body(sketch.phases[index].body, values, sizes, counted)
            case ir.HostFor():
                for place in _range(step, values):
                    counted.add(LANES_PER_STATEMENT // 10)
                    _host(sketch, step.body, {**values, step.variable: place}, sizes, counted)
            case ir.HostIf():
                _host(sketch, step.body, values, sizes, counted)
                _host(sketch, step.orelse, values, sizes, counted)
            case ir.Bind(name, value):
                values = {**values, name: _value(value, values, 1)}
            case ir.Fetch():
                counted.add(LANES_PER_STATEMENT)
            case _:
                assert_never(step)


def _body(
    body: tuple[ir.Statement, ...],
    values: dict[str, Value],
    sizes: Mapping[str, int],
    counted: Workload,
) -> None:
    for statement in body:
        match statement:
            case ir.For():
                for place in _range(statement, values):
                    counted.add(LANES_PER_STATEMENT // 10)
                    _body(statement.body, {**values, statement.variable: place}, sizes, counted)
            case ir.If(condition, then, orelse):
                try:
                    taken = then if evaluate(condition, values) else orelse
                except (KeyError, ArithmeticError):
                    taken = then
                _body(taken, values, sizes, counted)
            case ir.Bind(name, value):
                values = {**values}
                try:
                    values[name] = evaluate(value, values)
                except (InternalError, KeyError, ArithmeticError):  # an index tile, or data
                    counted.add(5 * LANES_PER_STATEMENT)
                    values.pop(name, None)
            case ir.Alloc(tile):
                counted.add(LANES_PER_STATEMENT + sizes[tile])
            case ir.Load(tile=tile) | ir.Store(tile=tile) | ir.Atomic(tile=tile):
                counted.add(2 * LANES_PER_STATEMENT + sizes[tile])
            case ir.Compute(destination=tile):
                counted.add(2 * LANES_PER_STATEMENT + sizes[tile])
            case ir.Fetch():
                counted.add(LANES_PER_STATEMENT)
            case _:
                assert_never(statement)


def _range(loop: ir.For | ir.HostFor, values: Mapping[str, Value]) -> range:
    try:
        start, stop, step = (int(evaluate(e, values)) for e in (loop.start, loop.stop, loop.step))
    except (KeyError, ArithmeticError):
        return range(1)
    return range(start, stop, step) if step else range(0)


def _value(expression: ir.Expr, values: Mapping[str, Value], otherwise: int) -> int:
    try:
        return int(evaluate(expression, values))
    except (KeyError, ArithmeticError):
        return otherwise
