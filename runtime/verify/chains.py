"""How many terms are added up behind one output element, read off the plan.

The tolerance of a comparison follows from it. Reduced axes are multiplied with the trips of the
loops around that carry a tile, loops of the host included. Loops whose bounds follow from outer
variables are looked at where these begin and where they end. What only memory knows counts as
unbounded; nothing adds up more terms than the largest input has elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from sketchc import ir
from sketchc.evaluate import Value, evaluate, host_values
from sketchc.index_ranges import MOST_TRIPS
from sketchc.lowering.plan import GridAxis, Plan, is_product
from sketchc.runtime.frontends.binding import Binding

if TYPE_CHECKING:
    from sketchc.runtime.verify.reach import Reach


def adds_in_any_order(plan: Plan) -> bool:
    """Whether the order in which floating-point numbers are added is left to chance."""
    return any(
        isinstance(statement, ir.Atomic)
        and statement.operation == "add"
        and plan.sketch.tensor(statement.access.tensor).dtype.is_float
        for phase in plan.phases
        for statement in ir.walk(phase.body)
    )


def host_scope(
    sketch: ir.Sketch, phase: int, values: Mapping[str, Value]
) -> tuple[dict[str, Value], int]:
    """The host's names at a launch, loops at their first trip, and how often it is launched. What
    the host fetches is taken as `MOST_TRIPS`, the most that a random input says."""
    scope = dict(values)
    trips = 1
    for step in sketch.around(phase):
        match step:
            case ir.HostFor(variable, start, stop, by):
                bounds = [int(evaluate(bound, scope)) for bound in (start, stop, by)]
                scope[variable] = bounds[0]
                trips *= len(range(*bounds))
            case ir.Fetch(name):
                scope[name] = MOST_TRIPS
            case ir.Bind(name, value):
                scope[name] = evaluate(value, scope)
            case ir.HostIf():
                pass
    return scope, trips


def reduction_length(
    plan: Plan, binding: Binding, symbols: Mapping[str, int], reach: Reach | None = None
) -> int:
    """An upper bound of the number of terms behind one output element. A signature says nothing
    about additions: there it is how many elements of an input reach one of an output, or the size
    of the largest input where `reach` does not say."""
    shapes = binding.shapes(symbols)
    if not plan.phases and reach is not None:
        return reach.length(shapes)
    sizes = [math.prod(shapes[source.tensor.name]) for source in binding.tensors]
    largest = max(sizes, default=1) or 1
    if not plan.phases or adds_in_any_order(plan):
        return largest
    longest = 1.0
    repeated = 1
    host = host_values(plan.sketch, symbols, binding.params)
    host |= {tensor.name: True for tensor in plan.sketch.tensors if tensor.optional}
    for phase in plan.phases:
        values, trips = host_scope(plan.sketch, phase.index, host)
        repeated = max(repeated, trips)
        for scope in _grid_scopes(phase.grid, values):
            longest = max(longest, _longest(plan.sketch, phase.body, scope, 1.0))
    return max(1, int(min(longest, largest))) * repeated


def _grid_scopes(
    axes: tuple[GridAxis, ...], values: Mapping[str, Value]
) -> Iterator[dict[str, Value]]:
    """The first and the last iteration of every axis, combined."""
    if not axes:
        yield dict(values)
        return
    axis = axes[0]
    start, step = int(evaluate(axis.start, values)), int(evaluate(axis.step, values))
    last = start + step * max(int(evaluate(axis.count, values)) - 1, 0)
    for place in {start, last}:
        yield from _grid_scopes(axes[1:], {**values, axis.variable: place})


def _longest(
    sketch: ir.Sketch, body: tuple[ir.Statement, ...], values: Mapping[str, Value], trips: float
) -> float:
    """The longest chain in `body`, which runs `trips` times."""
    inner = dict(values)
    longest = trips
    for statement in body:
        match statement:
            case ir.For():
                longest = max(longest, _loop(sketch, statement, inner, trips))
            case ir.If():
                for branch in (statement.body, statement.orelse):
                    longest = max(longest, _longest(sketch, branch, inner, trips))
            case ir.Bind(name, value):
                if (known := _known(value, inner)) is not None:
                    inner[name] = known
            case ir.Compute():
                longest = max(longest, trips * _reduced(sketch, statement, inner))
            case _:
                pass
    return longest


def _loop(sketch: ir.Sketch, loop: ir.For, values: Mapping[str, Value], trips: float) -> float:
    bounds = [_known(bound, values) for bound in (loop.start, loop.stop, loop.step)]
    if None in bounds:
        return math.inf if loop.carried else _longest(sketch, loop.body, values, trips)
    places = range(*(int(bound or 0) for bound in bounds))
    count = max(len(places), 1) if loop.carried else 1
    scopes = {places[0], places[-1]} if places else {places.start}
    return max(
        _longest(sketch, loop.body, {**values, loop.variable: place}, trips * count)
        for place in scopes
    )


def _known(value: ir.Expr, values: Mapping[str, Value]) -> Value | None:
    """The value of a scalar expression; None for index tiles and for what memory decides."""
    from sketchc.diagnostics import InternalError

    try:
        return evaluate(value, values)
    except (KeyError, InternalError, ArithmeticError):
        return None


def _reduced(sketch: ir.Sketch, statement: ir.Compute, values: Mapping[str, Value]) -> float:
    """How many lanes of the first operand meet in one lane of the destination."""
    source = statement.operands[0] if statement.operands else None
    if not isinstance(source, ir.TileOperand):
        return 1
    extents = [_known(extent, values) for extent in sketch.tile(source.tile).extents]
    lanes = [math.inf if extent is None else float(extent) for extent in extents]
    if is_product(statement):
        return lanes[-2] if statement.attributes.get("trans_a") else lanes[-1]
    axes = statement.attributes.get("axis")
    return math.prod(lanes[axis] for axis in axes) if isinstance(axes, tuple) else 1
