"""Pick the tile sizes that the sketch leaves open, for the hardware at hand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import attrs

from sketchc.base.types import Scalar
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.evaluate import evaluate
from sketchc.lowering.aims import Aims
from sketchc.lowering.cost.predict import sized_values
from sketchc.lowering.crowding import crowding
from sketchc.lowering.launches import warps_of
from sketchc.lowering.passes.descent import Choice, Descent, excess, open_options, placed
from sketchc.lowering.passes.map_grid import MapGrid
from sketchc.lowering.plan import (
    LaunchOption,
    PhasePlan,
    Plan,
    has_product,
    is_product,
    with_constants,
)
from sketchc.lowering.sample_sizes import Values, sample_values

#: Candidate values of a constant without `in [...]`: powers of two.
POWERS = tuple(1 << exponent for exponent in range(13))
#: The most choices that are looked at one by one.
_MOST_CHOICES = 4096


@attrs.frozen
class ChooseConstants:
    """Bind the open constants to the cheapest candidates that fit, with the reason in words.

    Why: "with no value: one that shapes tiles is picked by the plan for the hardware, and said".
    The cost is the distance, in powers of two, from what suits the chip (`aims`): tile elements
    (with or without a sequential loop around) and innermost extent; rows, columns and depth for
    matrix products. Where `sizes` of symbols are given, and the cost model has been compared with
    times of the target's kernels, its prediction at these sizes decides instead, also on
    `free_options` of launches and between the points that an `available_tiling` has `listed`
    (`Descent`). Requires: an elaborated sketch. Ensures: the choice is deterministic and fits the
    scratch, or, where nothing fits, is the smallest (CheckScratch then reports the account).
    """

    sizes: Mapping[str, int] | None = None
    free_options: tuple[LaunchOption, ...] = ()
    listed: tuple[Mapping[str, Scalar], ...] = ()

    def run(self, plan: Plan) -> Plan:
        """See `Pass`."""
        compared = self.sizes is not None and plan.capabilities.trusted_below is not None
        names = [c.name for c in plan.sketch.constants if c.chosen_by == "plan"]
        if not names and not compared:
            return plan
        domains = _domains(plan, names)
        chosen, why = self._for_chip(plan, domains), plan.hardware.name
        options: Choice = {}
        if compared:
            plan, chosen, options = self._at_sizes(plan, domains, chosen)
            why += " at these sizes"
        elif self.sizes is not None:
            why += ", whatever the sizes: the cost model does not choose there yet"
        said = ", ".join(f"{name} = {value}" for name, value in (chosen | options).items())
        notes = (*plan.notes, f"{said}: picked for {why}") if said else plan.notes
        sketch = with_constants(plan.sketch, chosen)
        return attrs.evolve(plan, sketch=sketch, notes=notes, options={**plan.options, **options})

    def _for_chip(self, plan: Plan, domains: Mapping[str, tuple[int, ...]]) -> Choice:
        """The constants that suit the chip, whatever the sizes."""
        if not domains:
            return {}
        mapped = MapGrid().run(plan)
        best: tuple[tuple[float, ...], Choice] | None = None
        for values in itertools.product(*domains.values()):
            choice = dict(zip(domains, values, strict=True))
            score = self._score(mapped, choice)
            key = (*score, *(float(-value) for value in values))
            if best is None or key < best[0]:
                best = (key, choice)
        assert best is not None  # every constant has at least one candidate
        return best[1]

    def _at_sizes(
        self, plan: Plan, domains: Mapping[str, tuple[int, ...]], start: Choice
    ) -> tuple[Plan, Choice, Choice]:
        """The constants and the options of launches that the walk from `start` ends at; and the
        plan, in which constants that vary over listed points have these as choices."""
        from sketchc.checker.api import infer_domains

        plan, points = _with_listed(plan, self.listed)
        sketch, _ = infer_domains(plan.sketch)  # which lanes are valid counts, too
        mapped = MapGrid().run(attrs.evolve(plan, sketch=sketch))
        options = open_options(mapped, self.free_options)
        longest = _axes(sketch, self.sizes or {}, domains)
        free = {c.name for c in sketch.constants if not c.choices}
        shorter = {name: _no_longer(domains[name], longest[name]) for name in longest}
        domains = {**domains, **{name: shorter[name] for name in shorter if name in free}}
        start = {name: min(value, domains[name][-1]) for name, value in start.items()}
        walk_from = {**start, **(points[0] if points else {})}
        descent = Descent(mapped, self.sizes or {}, domains, options, points)
        # Step by step, a walk would not leave blocks that are longer than their axes: each step
        # gains too little to be trusted.
        short = {name: min(walk_from[name], max(shorter[name])) for name in shorter}
        found = descent.from_points(walk_from, {**walk_from, **short})
        asked = {name: found.pop(name) for name in list(found) if name not in walk_from}
        return plan, found, asked

    def _score(self, plan: Plan, choice: Choice) -> tuple[float, ...]:
        """(excess over memory and tile limits, cost) of a choice: smaller is better."""
        made = placed(plan, choice)
        return (excess(made, sample_values(made.sketch)), _plan_cost(made))


def _with_listed(
    plan: Plan, listed: tuple[Mapping[str, Scalar], ...]
) -> tuple[Plan, tuple[Choice, ...]]:
    """The points of tile sizes that the sketch lists, as far as what the user has set is in them,
    those that the plan has now first; and the plan with these as choices of its constants."""
    values = {c.name: c.value for c in plan.sketch.constants}
    fixed = {c.name: c.value for c in plan.sketch.constants if c.chosen_by == "user"}
    names = dict.fromkeys(name for point in listed for name in point)
    points = [{name: values[name] for name in names}, *({**values, **p} for p in listed)]
    open_points = [
        {name: int(point[name]) for name in names if name not in fixed}
        for point in points
        if all(point[name] == fixed[name] for name in names if name in fixed)
    ]
    if not listed or not open_points[0]:
        return plan, ()
    constants = tuple(
        attrs.evolve(c, choices=tuple(dict.fromkeys(p[c.name] for p in open_points)))
        if c.name in open_points[0]
        else c
        for c in plan.sketch.constants
    )
    sketch = attrs.evolve(plan.sketch, constants=constants)
    return attrs.evolve(plan, sketch=sketch), tuple(open_points)


def _domains(plan: Plan, names: list[str]) -> dict[str, tuple[int, ...]]:
    """The candidates of each constant in `names`: of many, every second one of the longest."""
    found = {
        constant.name: tuple(map(int, constant.choices)) or POWERS
        for constant in plan.sketch.constants
        if constant.name in names
    }
    while math.prod(map(len, found.values())) > _MOST_CHOICES:
        widest = max(found, key=lambda name: len(found[name]))
        found[widest] = found[widest][::2]
    return found


def _axes(
    sketch: ir.Sketch, sizes: Mapping[str, int], domains: Mapping[str, tuple[int, ...]]
) -> dict[str, int]:
    """The longest axis that blocks of each constant in `domains` divide, where there is any."""
    if not domains:
        return {}
    values = sized_values(sketch, sizes)
    longest: dict[str, int] = {}
    for loop in walk.in_phases(sketch.phases):
        match loop:
            case ir.For(stop=ir.Binary("cdiv", extent, ir.Ref(name))) if (
                name in domains and {each.name for each in walk.references(extent)} <= values.keys()
            ):
                longest[name] = max(longest.get(name, 1), int(evaluate(extent, values)))
    return longest


def _no_longer(domain: tuple[int, ...], longest: int) -> tuple[int, ...]:
    """The candidates without blocks that are twice as long as all that they divide, but for the
    shortest: such a block has the programs and the valid lanes of a shorter one."""
    return tuple(value for value in domain if value < 2 * longest or value == min(domain))


def _plan_cost(plan: Plan) -> float:
    """The distance, in powers of two, of a plan with placed tiles from what suits its chip."""
    values, aims = sample_values(plan.sketch), plan.hardware.aims
    matrix = [s for s in walk.in_phases(plan.phases) if is_product(s)]
    if matrix:
        crowded = math.fsum(_crowded(plan, phase, values) for phase in plan.phases)
        return crowded + math.fsum(_matrix_cost(plan, s, values, aims) for s in matrix)
    cost = 0.0
    shapes = {
        tuple(int(evaluate(extent, values)) for extent in tile.tile.extents)
        for tile in plan.tiles.values()
    }
    largest = max((math.prod(shape) for shape in shapes), default=1)
    loops = any(isinstance(s, ir.For) for s in walk.in_phases(plan.phases))
    cost += _distance(largest, aims.loop_elements if loops else aims.tile_elements)
    inner = max((shape[-1] for shape in shapes), default=1)
    return cost + 2.0 * max(math.log2(aims.inner_elements / max(inner, 1)), 0.0)


def _crowded(plan: Plan, phase: PhasePlan, values: Values) -> float:
    """What it costs that a launch needs more registers than its threads have, where a target says
    how many threads these are: twice the powers of two."""
    warps = warps_of(plan, phase, values) if has_product(phase.body) else None
    return 2.0 * crowding(plan, phase.body, values, warps) if warps else 0.0


def _matrix_cost(plan: Plan, statement: ir.Compute, values: Values, aims: Aims) -> float:
    def shape(name: str) -> list[int]:
        return [int(evaluate(e, values)) for e in plan.sketch.tile(name).extents]

    rows, columns = shape(statement.destination)[-2:]
    left = statement.operands[0]
    depth = 1
    if isinstance(left, ir.TileOperand):
        depth = shape(left.tile)[-2 if statement.attributes.get("trans_a") else -1]
    return (
        _distance(rows, aims.matrix_rows)
        + _distance(columns, aims.matrix_columns)
        + _distance(depth, aims.matrix_depth)
    )


def _distance(actual: int, aim: int) -> float:
    return abs(math.log2(max(actual, 1) / aim))
