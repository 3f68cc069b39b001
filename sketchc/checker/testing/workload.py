"""How long an interpretation takes and what it reaches, before it is tried: a count of statements
and lanes, with the trips of loops and the sides of branches on the way.

Nothing here needs NumPy: proofs ask it whether a test is worth starting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, assert_never

from sketchc.base import records
from sketchc.base.diagnostics import InternalError
from sketchc.checker.facts import budget
from sketchc.checker.testing.settings import Setting
from sketchc.interpreter.violations import RunCoverage
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import Value, evaluate

if TYPE_CHECKING:
    from numpy.random import Generator

    from sketchc.interpreter.api import Result


class TooMuch(Exception):
    """More work than the limit."""


@records.define
class Workload:
    """Counts up to a limit: one statement costs as much as `LANES_PER_STATEMENT` lanes."""

    limit: int
    total: int = 0
    reached: RunCoverage = records.field(factory=RunCoverage)

    def add(self, cost: int) -> None:
        budget.spend(3)
        self.total += cost
        if self.total > self.limit:
            raise TooMuch


#: What the interpreter does for one statement takes as long as this many lanes.
LANES_PER_STATEMENT = 2000
#: So many lanes are one unit of what `budget` counts.
LANES_PER_UNIT = 50


def workload(sketch: ir.Sketch, host: Mapping[str, Value], limit: int) -> int | None:
    """Statements and lanes of one run with these host scalars, counted in lanes; None for more
    than `limit`."""
    counted = rehearse(sketch, host, limit)
    return None if counted is None else counted.total


def executed(
    sketch: ir.Sketch, setting: Setting, limit: int, memory_limit: int, generator: Generator
) -> tuple[int, Result] | None:
    """The work of one run on random inputs that collects what breaks, and its result; None where
    that is more work than `limit`, or no indices exist. Raises `DiagnosticError` and `UsageError`
    where a launch refuses."""
    from sketchc.interpreter.api import Options, interpret
    from sketchc.interpreter.inputs import indices_exist, random_inputs
    from sketchc.interpreter.launch import bind_values, tensor_shapes

    symbols, params = setting.symbols, setting.params
    values = bind_values(sketch, symbols, params)
    shapes = tensor_shapes(sketch, values, memory_limit)
    if not indices_exist(sketch, shapes, params):
        return None
    cost = workload(sketch, values, limit)
    if cost is None:
        return None
    inputs = random_inputs(sketch, shapes, generator, params)
    inputs = {name: array for name, array in inputs.items() if name not in setting.absent}
    budget.spend(cost // LANES_PER_UNIT)
    options = Options(collect=True, shuffle=1, memory_limit=memory_limit)
    return cost, interpret(sketch, inputs, symbols, params, options)


def rehearse(sketch: ir.Sketch, host: Mapping[str, Value], limit: int) -> Workload | None:
    """What one run with these host scalars takes and reaches; None for more than `limit`. Where a
    condition depends on data, nothing is said of it, and its first side is counted (of the host's,
    both); a loop whose bounds depend on data counts once."""
    counted = Workload(limit)
    sizes: dict[str, int] = {}

    def count(
        steps: Sequence[ir.HostStep | ir.Statement], values: dict[str, Value], launched: bool
    ) -> None:
        for step in steps:
            match step:
                case ir.Launch(index):
                    count(sketch.phases[index].body, values, True)
                case ir.For() | ir.HostFor():
                    for place in _range(step, values, counted):
                        counted.add(LANES_PER_STATEMENT // 10)
                        count(step.body, {**values, step.variable: place}, launched)
                case ir.If() | ir.HostIf():
                    holds = _holds(step, values, counted)
                    if holds is not False:
                        count(step.body, values, launched)
                    if holds is False or (holds is None and not launched):
                        count(step.orelse, values, launched)
                case ir.Bind(name, value):
                    values = _bound(name, value, values)
                    if launched and name not in values:
                        counted.add(5 * LANES_PER_STATEMENT)
                case ir.Alloc(tile):
                    counted.add(LANES_PER_STATEMENT + sizes[tile])
                case ir.Load(tile=tile) | ir.Store(tile=tile) | ir.Atomic(tile=tile):
                    counted.add(2 * LANES_PER_STATEMENT + sizes[tile])
                case ir.Compute(destination=tile):
                    counted.add(2 * LANES_PER_STATEMENT + sizes[tile])
                case ir.Fetch():
                    counted.add(LANES_PER_STATEMENT)
                case _:
                    assert_never(step)

    try:
        for tile in sketch.tiles:
            sizes[tile.name] = prod(max(1, _value(e, host, 1)) for e in tile.extents)
        count(sketch.steps, dict(host), False)
    except TooMuch:
        return None
    return counted


def _bound(name: str, value: ir.Expr, values: Mapping[str, Value]) -> dict[str, Value]:
    """The names with one more; without it where it is an index tile, or depends on data."""
    found = {**values}
    try:
        found[name] = evaluate(value, values)
    except (InternalError, KeyError, ArithmeticError):
        found.pop(name, None)
    return found


def _holds(
    branch: ir.If | ir.HostIf, values: Mapping[str, Value], counted: Workload
) -> bool | None:
    """The outcome of a condition; None where it depends on data."""
    try:
        holds = bool(evaluate(branch.condition, values))
    except (KeyError, ArithmeticError, ValueError):
        return None
    counted.reached.branch(branch.span.start, holds)
    return holds


def _range(loop: ir.For | ir.HostFor, values: Mapping[str, Value], counted: Workload) -> range:
    try:
        start, stop, step = (int(evaluate(e, values)) for e in (loop.start, loop.stop, loop.step))
    except (KeyError, ArithmeticError):
        return range(1)
    found = range(start, stop, step) if step else range(0)
    counted.reached.loop(loop.span.start, len(found))
    return found


def _value(expression: ir.Expr, values: Mapping[str, Value], otherwise: int) -> int:
    try:
        return int(evaluate(expression, values))
    except (KeyError, ArithmeticError):
        return otherwise
