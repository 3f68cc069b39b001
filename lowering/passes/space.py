"""The tuning space of a sketch on a chip: which values its tunable constants may take together.

A point maps names to values. The names are the constants that never change results, with their
`in [...]` or, without one, powers of two; an `available_tiling` block lists its points itself. A
point that does not plan is illegal. Options of launches (`Capabilities.launch_options`) are further
axes, on which 0 stands for the emitter's own rule; where there are products, only values that have
been measured with products.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping
from functools import cached_property

import attrs

from sketchc.base.types import Scalar
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.lowering.launches import loads_ahead, worth_trying
from sketchc.lowering.passes.choose_constants import POWERS
from sketchc.lowering.passes.pipeline import PlannedSketch, Planner
from sketchc.lowering.plan import LaunchOption, Plan

Point = Mapping[str, Scalar]

#: The most points of a space; of a larger product so many are drawn.
MOST_POINTS = 16384


@attrs.frozen
class Axis:
    """One tunable constant or option: its name and the values that it may take, in order."""

    name: str
    values: tuple[Scalar, ...]


@attrs.define(eq=False, slots=False)
class Space:
    """The points of one sketch for one chip. `fixed` are constants that do not vary (`--set`).

    Raises `DiagnosticError` where the sketch does not plan with `fixed` alone.
    """

    planner: Planner
    fixed: Mapping[str, Scalar]
    _default: Plan = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._default = self.planner.plan(self.fixed).plan

    @property
    def default(self) -> dict[str, Scalar]:
        """The point that the plan chooses by itself."""
        constants = {constant.name: constant.value for constant in self._tunable}
        return constants | {option.name: 0 for option in self._options}

    def at_sizes(self, sizes: Mapping[str, int]) -> dict[str, Scalar]:
        """The point that the plan chooses where the symbols have these `sizes`: by the cost model,
        as far as it is trusted on this target."""
        found = attrs.evolve(self.planner, sizes=sizes).plan(self.fixed).plan
        default = self.default
        chosen = {c.name: c.value for c in found.sketch.constants if c.name in default}
        asked = {option.name: found.options.get(option.name, 0) for option in self._options}
        return {**default, **chosen, **asked}

    @cached_property
    def _options(self) -> tuple[LaunchOption, ...]:
        """The options that mean something for this sketch."""
        loops = any(map(loads_ahead, walk.in_phases(self._default.phases)))
        return tuple(
            attrs.evolve(option, values=worth_trying(self._default, option)[1:])
            for option in self.planner.launch_options
            if option.name not in self.fixed and (loops or not option.of_loops)
        )

    @property
    def _tunable(self) -> list[ir.Constant]:
        found = self._default.sketch.constants
        return [c for c in found if c.tunable and c.name not in self.fixed]

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """The axes in which points differ; constants with one value are none."""
        if self.planner.tree.tilings:
            listed = self._listed()
            found = [
                Axis(name, tuple(dict.fromkeys(point[name] for point in listed)))
                for name in listed[0]
            ]
        else:
            found = [Axis(c.name, _values(c)) for c in self._tunable]
        found += [Axis(option.name, (0, *option.values)) for option in self._options]
        return tuple(axis for axis in found if len(axis.values) > 1)

    @cached_property
    def points(self) -> tuple[dict[str, Scalar], ...]:
        """All points, the default one first; of a product of more than `MOST_POINTS` a part, always
        the same one."""
        default = self.default
        if self.planner.tree.tilings:
            options = [[(each.name, v) for v in (0, *each.values)] for each in self._options]
            chosen = [dict(values) for values in itertools.product(*options)]
            points = [{**listed, **more} for listed in self._listed() for more in chosen]
        else:
            sizes = [len(axis.values) for axis in self.axes]
            total = math.prod(sizes)
            drawn: list[int] | range = range(total)
            if total > MOST_POINTS:
                numbers, found = random.Random(0), set[int]()
                while len(found) < MOST_POINTS:  # `sample` takes no range beyond 2**63
                    found.add(numbers.randrange(total))
                drawn = sorted(found)
            points = [{**default, **self._numbered(number, sizes)} for number in drawn]
        return (default, *(point for point in points if point != default))

    def _numbered(self, number: int, sizes: list[int]) -> dict[str, Scalar]:
        """Point `number` of the product of all axes."""
        point: dict[str, Scalar] = {}
        for axis, size in zip(reversed(self.axes), reversed(sizes), strict=True):
            number, place = divmod(number, size)
            point[axis.name] = axis.values[place]
        return point

    def _listed(self) -> list[dict[str, Scalar]]:
        """The constants of the points of `available_tiling`."""
        default: dict[str, Scalar] = {c.name: c.value for c in self._tunable}
        others = self.planner.listed_points(self.fixed)
        return [default, *({**default, **point} for point in others)]

    def vector(self, point: Point) -> list[float]:
        """The point as numbers, one for each axis: logarithms to base 2, as sizes double; 0, which
        leaves the choice of an option to a rule, is apart from all others."""
        return [_coordinate(point[axis.name]) for axis in self.axes]

    def plan(self, point: Point) -> PlannedSketch:
        """The plan of one point. Raises `DiagnosticError` for one that is illegal."""
        return self.planner.plan({**self.fixed, **point})


def _values(constant: ir.Constant) -> tuple[Scalar, ...]:
    if constant.choices:
        return tuple(dict.fromkeys((*constant.choices, constant.value)))
    return tuple(sorted({*POWERS, constant.value}))


def _coordinate(value: Scalar) -> float:
    return math.log2(value) if value > 0 else float(value) - 1.0
