"""Pick the tile sizes that the sketch leaves open, for the hardware at hand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import attrs

from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.evaluate import evaluate
from sketchc.lowering.aims import Aims
from sketchc.lowering.cost.predict import COMPARED, predict, sized_values
from sketchc.lowering.passes.map_grid import MapGrid
from sketchc.lowering.passes.place_tiles import (
    PlaceTiles,
    overflows,
    too_wide,
)
from sketchc.lowering.plan import Plan, is_product, with_constants
from sketchc.lowering.sample_sizes import Values, sample_values

Choice = dict[str, int]

#: Candidate values of a constant without `in [...]`: powers of two.
POWERS = tuple(1 << exponent for exponent in range(13))


@attrs.frozen
class ChooseConstants:
    """Bind the open constants to the cheapest candidates that fit, with the reason in words.

    Why: "with no value: one that shapes tiles is picked by the plan for the hardware, and said".
    The cost is the distance, in powers of two, from what suits the chip (`aims`): tile elements
    (with or without a sequential loop around) and innermost extent; rows, columns and depth for
    matrix products. Where `sizes` of symbols are given, and the cost model has been compared with
    times on such chips, its prediction at these sizes decides instead (`_Descent`).
    Requires: an elaborated sketch. Ensures: the choice is deterministic and fits the scratch, or,
    where nothing fits, is the smallest (CheckScratch then reports the account).
    """

    sizes: Mapping[str, int] | None = None

    def run(self, plan: Plan) -> Plan:
        """See `Pass`."""
        open_constants = [c for c in plan.sketch.constants if c.chosen_by == "plan"]
        if not open_constants:
            return plan
        mapped = MapGrid().run(plan)
        domains = [tuple(map(int, constant.choices)) or POWERS for constant in open_constants]
        names = [constant.name for constant in open_constants]
        while math.prod(len(domain) for domain in domains) > 4096:
            widest = max(range(len(domains)), key=lambda index: len(domains[index]))
            domains[widest] = domains[widest][::2]
        best: tuple[tuple[float, ...], Choice] | None = None
        for values in itertools.product(*domains):
            choice = dict(zip(names, values, strict=True))
            score = self._score(mapped, choice)
            key = (*score, *(float(-value) for value in values))
            if best is None or key < best[0]:
                best = (key, choice)
        assert best is not None  # every constant has at least one candidate
        chosen, why = best[1], plan.hardware.name
        if self.sizes is not None and plan.hardware.family in COMPARED:
            from sketchc.checker.api import infer_domains

            sketch, _ = infer_domains(plan.sketch)  # which lanes are valid counts, too
            mapped = MapGrid().run(attrs.evolve(plan, sketch=sketch))
            descent = _Descent(mapped, self.sizes, dict(zip(names, domains, strict=True)))
            chosen, why = descent.from_point(chosen), f"{why} at these sizes"
        elif self.sizes is not None:
            why += ", whatever the sizes: the cost model does not choose there yet"
        said = ", ".join(f"{name} = {value}" for name, value in chosen.items())
        notes = (*plan.notes, f"{said}: picked for {why}")
        return attrs.evolve(plan, sketch=with_constants(plan.sketch, chosen), notes=notes)

    def _score(self, plan: Plan, choice: Choice) -> tuple[float, ...]:
        """(excess over memory and tile limits, cost) of a choice: smaller is better."""
        placed = _placed(plan, choice)
        return (_excess(placed, sample_values(placed.sketch)), _plan_cost(placed))


def _plan_cost(plan: Plan) -> float:
    """The distance, in powers of two, of a plan with placed tiles from what suits its chip."""
    values, aims = sample_values(plan.sketch), plan.hardware.aims
    matrix = [s for s in walk.in_phases(plan.phases) if is_product(s)]
    if matrix:
        return math.fsum(_matrix_cost(plan, s, values, aims) for s in matrix)
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


def _placed(plan: Plan, choice: Choice) -> Plan:
    return PlaceTiles().run(attrs.evolve(plan, sketch=with_constants(plan.sketch, choice)))


def _excess(placed: Plan, values: Values) -> float:
    """By how much the tiles exceed the memories and the largest tile, in bytes and elements."""
    over = sum(use.bytes - use.capacity for use in overflows(placed))
    limit = placed.capabilities.maximum_elements
    return float(over + sum(elements - limit for _, elements in too_wide(placed, values)))


class _Descent:
    """Walks from one choice to the next better one by the cost model, one constant at a time, to
    the neighbours in its domain, until none is better."""

    def __init__(
        self, mapped: Plan, sizes: Mapping[str, int], domains: Mapping[str, tuple[int, ...]]
    ) -> None:
        self._mapped, self._sizes, self._domains = mapped, sizes, domains
        self._known: dict[tuple[int, ...], tuple[float, float]] = {}

    def from_point(self, choice: Choice) -> Choice:
        """The choice that the walk from `choice` ends at."""
        best, better = choice, True
        while better:
            better = False
            for name, domain in self._domains.items():
                place = domain.index(best[name])
                for value in domain[max(place - 1, 0) : place + 2]:
                    other = {**best, name: value}
                    if self._cost(other) < self._cost(best):
                        best, better = other, True
        return best

    def _cost(self, choice: Choice) -> tuple[float, float]:
        """(excess over memory and tile limits, predicted seconds)."""
        key = tuple(choice.values())
        if key not in self._known:
            placed = _placed(self._mapped, choice)
            values = sized_values(placed.sketch, self._sizes)
            self._known[key] = (_excess(placed, values), predict(placed, values).seconds)
        return self._known[key]


def _distance(actual: int, aim: int) -> float:
    return abs(math.log2(max(actual, 1) / aim))
