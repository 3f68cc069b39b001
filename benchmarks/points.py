"""Points of tuning spaces, for benchmarks that measure several of them."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Collection, Iterator, Mapping

import attrs
import numpy as np

from sketchc.base.diagnostics import DiagnosticError
from sketchc.base.types import Scalar
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.evaluate import host_values
from sketchc.lowering.cost.predict import predict
from sketchc.lowering.launches import loads_ahead, stages_at, warps_of
from sketchc.lowering.passes.descent import strain
from sketchc.lowering.passes.space import Space
from sketchc.lowering.plan import Plan
from sketchc.lowering.sample_sizes import sample_values
from sketchc.runtime.tune.search import spread

#: Seconds for which points are planned.
_PLANNING = 15.0


@attrs.frozen
class Candidate:
    """A planned point: what was decided on each axis, and the seconds that the cost model
    predicts."""

    values: Mapping[str, int]
    plan: Plan
    seconds: float


def own_choice(plan: Plan, axes: Collection[str]) -> dict[str, int]:
    """The constants and launch options among `axes` that a plan has chosen, by name: the rules for
    options may be others once a point is recorded. Options that launches differ in are left out."""
    values = sample_values(plan.sketch)
    point = {c.name: int(c.value) for c in plan.sketch.constants if c.name in axes}
    rules = {
        "num_warps": {warps_of(plan, phase, values) for phase in plan.phases},
        "num_stages": {
            stages_at(plan, phase, loop)
            for phase in plan.phases
            for loop in walk.statements(phase.body)
            if isinstance(loop, ir.For) and loads_ahead(loop)
        },
    }
    for name, found in rules.items():
        if name in axes and len(found) == 1:
            point[name] = int(found.pop() or 0)
    return point


def candidates(
    space: Space, symbols: Mapping[str, int], params: Mapping[str, Scalar], chosen: Plan
) -> Iterator[Candidate]:
    """The plan's own choice, then other points of the space: the best first by the cost model,
    those with more registers or stages than there are last, and of neighbours only one before all
    that are none. As many are planned as there is time for, in random order."""
    axes = [axis.name for axis in space.axes]

    def candidate(plan: Plan) -> Candidate:
        seconds = predict(plan, host_values(plan.sketch, symbols, params)).seconds
        return Candidate(own_choice(plan, axes), plan, seconds)

    first = candidate(chosen)
    found: list[tuple[float, float, Candidate]] = []
    points = list(space.points)
    random.Random(1).shuffle(points)
    end = time.monotonic() + _PLANNING
    for point in points:
        if time.monotonic() > end:
            break
        try:
            plan = space.plan(point).plan
        except DiagnosticError:
            continue
        made = candidate(plan)
        strained = strain(plan, host_values(plan.sketch, symbols, params))
        found.append((strained, made.seconds, made))
    ranked = [first, *(each for _, _, each in sorted(found, key=lambda one: one[:2]))]
    rows = [[math.log2(max(one.values.get(axis, 0), 0.5)) for axis in axes] for one in ranked]
    vectors = np.array(rows, np.float64).reshape(len(rows), len(axes))
    yield from (ranked[place] for place in spread(range(len(ranked)), vectors))
