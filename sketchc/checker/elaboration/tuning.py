"""The tuning points of a sketch: assignments of its tunable constants at which it is proved again.

Every verdict must hold wherever a plan or a search may go, so proofs run at the default values and
at each point given here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

from sketchc.checker.calls.expressions import constant
from sketchc.checker.calls.shorthand import compare
from sketchc.checker.context.context import Context, InvalidError, Value
from sketchc.checker.elaboration.declarations import declare
from sketchc.parsing import syntax
from sketchc.parsing.prepass import prepass

#: Where a tile size that the sketch leaves open is tried, beside `elaborate.DEFAULT_TILE`.
OPEN_TILE_SIZES = (16, 256)

#: Beyond this many points in all, constants vary one at a time around the default.
FULL_PRODUCT = 16


def tuning_points(tree: syntax.Sketch, constants: Mapping[str, Value]) -> list[dict[str, Value]]:
    """The points beside the default one, each as values by constexpr name, without repeats.

    An `available_tiling` block wins over `in [...]`. Otherwise every constant with choices takes
    each of them, one at a time around the default, and in all combinations if these are at most
    `FULL_PRODUCT`. Tile sizes without value are tried together at `OPEN_TILE_SIZES`. Names in
    `constants` are bound and do not vary. A sketch with errors in its declarations has no points.
    """
    context = Context(tree, constants, prepass(tree), compare=compare)
    declare(context)
    points = _tilings(context) if tree.tilings else [*_choices(context), *_open_tiles(context)]
    sources = context.sources
    default = {sources.get(item.name, item.name): item.value for item in context.constants}
    result: list[dict[str, Value]] = []
    seen = [default]
    for point in points:
        free = {name: value for name, value in point.items() if name not in constants}
        whole = {**default, **free}
        if whole not in seen:
            seen.append(whole)
            result.append(free)
    return result


def _tilings(context: Context) -> Iterator[dict[str, Value]]:
    for point in context.tree.tilings:
        try:
            yield {
                name: constant(context, value, "a tile size", tunable=True)
                for name, value in point.values
            }
        except InvalidError:
            continue  # elaboration reports it


def _varying(context: Context) -> dict[str, tuple[Value, tuple[Value, ...]]]:
    """(default, choices) of every constant that varies."""
    return {
        context.sources[item.name]: (item.value, item.choices)
        for item in context.constants
        if item.choices and item.chosen_by != "user"
    }


def _choices(context: Context) -> Iterator[dict[str, Value]]:
    varying = _varying(context)
    for name, (_, choices) in varying.items():
        for choice in choices:
            yield {name: choice}
    values = [tuple(dict.fromkeys((default, *choices))) for default, choices in varying.values()]
    if len(varying) > 1 and math.prod(map(len, values)) <= FULL_PRODUCT:
        for combination in itertools.product(*values):
            yield dict(zip(varying, combination, strict=True))


def _open_tiles(context: Context) -> Iterator[dict[str, Value]]:
    names = [context.sources[item.name] for item in context.constants if item.chosen_by == "plan"]
    if names:
        for size in OPEN_TILE_SIZES:
            yield dict.fromkeys(names, size)


__all__ = ["FULL_PRODUCT", "OPEN_TILE_SIZES", "tuning_points"]
