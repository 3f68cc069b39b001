"""How many terms are added up behind one output element, read off the plan.

The tolerance of a comparison follows from it: see `sums`, which runs a plan in the abstract.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.evaluate import Value, evaluate, host_values
from sketchc.launch.index_inputs import MOST_TRIPS
from sketchc.lowering.plan import Plan
from sketchc.runtime.cases.binding import Binding
from sketchc.runtime.cases.sums import INPUT, Sums

if TYPE_CHECKING:
    from sketchc.runtime.cases.reach import Reach


def adds_in_any_order(plan: Plan) -> bool:
    """Whether the order in which floating-point numbers are added is left to chance."""
    return any(
        isinstance(statement, ir.Atomic)
        and statement.operation == "add"
        and plan.sketch.tensor(statement.access.tensor).dtype.is_float
        for statement in walk.in_phases(plan.phases)
    )


def host_scope(
    sketch: ir.Sketch, phase: int, values: Mapping[str, Value]
) -> tuple[dict[str, Value], int]:
    """The host's names at a launch, loops at their first trip, and how often it is launched. What
    the host fetches is taken as `MOST_TRIPS`, the most that a random input says."""
    scope = dict(values)
    trips = 1
    for step in walk.around(sketch.steps, phase):
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


def reduction_lengths(
    plan: Plan, binding: Binding, symbols: Mapping[str, int], reach: Reach | None = None
) -> dict[str, int]:
    """An upper bound of the number of terms behind one element of each output. A signature says
    nothing about additions: there it is how many elements of an input reach one of an output, or
    the size of the largest input where `reach` does not say."""
    shapes = binding.shapes(symbols)
    names = [tensor.name for tensor in binding.outputs]
    if not plan.phases and reach is not None:
        return dict.fromkeys(names, reach.length(shapes))
    sizes = [math.prod(shapes[source.tensor.name]) for source in binding.tensors]
    largest = max(sizes, default=1) or 1
    if not plan.phases:
        return dict.fromkeys(names, largest)
    host = host_values(plan.sketch, symbols, binding.params)
    host |= {tensor.name: True for tensor in plan.sketch.tensors if tensor.optional}
    amounts = Sums(plan, float(largest)).run(host)
    return {name: max(1, math.ceil(amounts.get(name, INPUT).total)) for name in names}


def reduction_length(
    plan: Plan, binding: Binding, symbols: Mapping[str, int], reach: Reach | None = None
) -> int:
    """The most of `reduction_lengths`."""
    return max(reduction_lengths(plan, binding, symbols, reach).values(), default=1)
