"""The search for the choice that the cost model predicts to be fastest at given sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from sketchc.base.types import Scalar
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.lowering.cost.predict import predicted, sized_values
from sketchc.lowering.cost.work import LaunchWork, work_of
from sketchc.lowering.crowding import crowding
from sketchc.lowering.launches import loads_ahead, stages_fit, warps_of, worth_trying
from sketchc.lowering.passes.place_tiles import PlaceTiles, overflows, too_wide
from sketchc.lowering.plan import LaunchOption, Plan, with_constants
from sketchc.lowering.sample_sizes import Values

#: Values of constants by name, and of options of launches, of which 0 is left to a rule.
Choice = dict[str, int]

#: As `Capabilities.trusted_below`, of options of launches in place of what their rules say: rules
#: were measured, too, and smaller differences were as often wrong as right on an H200.
_OPTIONS_BELOW = 0.7


def placed(plan: Plan, choice: Mapping[str, int]) -> Plan:
    """The mapped `plan` with the constants in `choice`, its tiles placed."""
    return PlaceTiles().run(attrs.evolve(plan, sketch=with_constants(plan.sketch, choice)))


def excess(plan: Plan, values: Values) -> float:
    """By how much the tiles of a plan with placed tiles exceed the memories and the largest tile,
    in bytes and elements."""
    over = sum(use.bytes - use.capacity for use in overflows(plan))
    limit = plan.capabilities.maximum_elements
    return float(over + sum(elements - limit for _, elements in too_wide(plan, values)))


def strain(plan: Plan, values: Values) -> float:
    """By how much the launches of a plan with placed tiles exceed the stages that fit in shared
    memory, and the registers that are good for products."""
    found = 0.0
    for phase in plan.phases:
        warps = warps_of(plan, phase, values)
        found += not stages_fit(plan, phase)
        found += crowding(plan, phase.body, values, warps) if warps else 0.0
    return found


def open_options(plan: Plan, options: tuple[LaunchOption, ...]) -> tuple[LaunchOption, ...]:
    """Those of a target's `options` of launches that mean something for `plan`, and that neither
    the user nor the sketch has set."""
    loops = [s for s in walk.in_phases(plan.phases) if isinstance(s, ir.For)]
    ahead = any(map(loads_ahead, loops)) and all(loop.stages is None for loop in loops)
    return tuple(o for o in options if o.name not in plan.options and (ahead or not o.of_loops))


class Descent:
    """Walks from one choice to the next better one by the cost model, until none is better: one
    constant at a time, to the neighbours in its domain; to the points of several constants that are
    `listed`; one of the `options` of launches at a time. Choices that exceed the memories, or the
    registers that are good for products, are left as soon as there is one that does so by less."""

    def __init__(
        self,
        mapped: Plan,
        sizes: Mapping[str, int],
        domains: Mapping[str, tuple[int, ...]],
        options: tuple[LaunchOption, ...] = (),
        listed: tuple[Mapping[str, int], ...] = (),
    ) -> None:
        self._mapped, self._sizes, self._domains, self._listed = mapped, sizes, domains, listed
        self._options = {option.name: worth_trying(mapped, option) for option in options}
        self._known: dict[tuple[int, ...], tuple[float, float]] = {}
        self._placed: dict[tuple[int, ...], tuple[Plan, dict[str, Scalar], float]] = {}
        self._works: dict[tuple[int, ...], tuple[LaunchWork, ...]] = {}

    def from_points(self, *choices: Choice) -> Choice:
        """The cheapest choice at which a walk from one of `choices` ends; the first of several."""

        if all(choice == choices[0] for choice in choices):
            return self.from_point(choices[0])

        def cost(found: Choice) -> tuple[float, float]:
            return self._cost({name: found.get(name, 0) for name in (*choices[0], *self._options)})

        return min(map(self.from_point, choices), key=cost)

    def from_point(self, choice: Choice) -> Choice:
        """The choice that the walk from `choice` ends at: constants, and the options that differ
        from what their rules say."""
        best = {**choice, **dict.fromkeys(self._options, 0)}
        better = True
        while better:
            before = best
            for moves in (self._with_options, self._listed_points, self._beside):
                for move in moves(best):
                    if self._is_worth({**best, **move}, best, moves == self._with_options):
                        best = {**best, **move}
            better = best != before
        return {name: value for name, value in best.items() if value or name in choice}

    def _with_options(self, _: Choice) -> Iterator[Choice]:
        for name, values in self._options.items():
            yield from ({name: value} for value in values)

    def _listed_points(self, _: Choice) -> Iterator[Choice]:
        """The points of constants that the sketch lists."""
        return map(dict, self._listed)

    def _beside(self, choice: Choice) -> Iterator[Choice]:
        """The neighbours of each constant that has a domain."""
        for name, domain in self._domains.items():
            place = domain.index(choice[name])
            yield from ({name: value} for value in domain[max(place - 1, 0) : place + 2])

    def _is_worth(self, other: Choice, best: Choice, options: bool) -> bool:
        (over, seconds), (least, so_far) = self._cost(other), self._cost(best)
        share = _OPTIONS_BELOW if options else self._mapped.capabilities.trusted_below or 0.0
        return over < least or (over == least and seconds < so_far * share)

    def _cost(self, choice: Choice) -> tuple[float, float]:
        """(excess over memory, tile limits and stages, predicted seconds)."""
        key = tuple(choice.values())
        if key not in self._known:
            self._known[key] = self._found(choice)
        return self._known[key]

    def _found(self, choice: Choice) -> tuple[float, float]:
        constants = {name: value for name, value in choice.items() if name not in self._options}
        key = tuple(constants.values())
        if key not in self._placed:
            made = placed(self._mapped, constants)
            values = sized_values(made.sketch, self._sizes)
            self._placed[key] = made, values, excess(made, values)
        made, values, over = self._placed[key]
        asked = {name: choice[name] for name in self._options if choice[name]}
        made = attrs.evolve(made, options={**made.options, **asked})
        over += strain(made, values)
        # The number of warps changes nothing in what is counted of a program's work.
        key = (*key, *(value for name, value in asked.items() if name != "num_warps"))
        if key not in self._works:
            self._works[key] = work_of(made, values)
        works = self._works[key]
        if warps := asked.get("num_warps"):
            works = tuple(attrs.evolve(work, warps=warps) for work in works)
        elif "num_warps" in self._options:
            works = tuple(
                attrs.evolve(work, warps=warps_of(made, phase, values))
                for work, phase in zip(works, made.phases, strict=True)
            )
        return over, predicted(made, works).seconds
