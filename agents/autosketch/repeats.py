"""Removes repeated computations: of reductions that combine the same elements, as a mean and the
deviation from it do, and of what several passes over a row compute of each element."""

from __future__ import annotations

import attrs

from sketchc.agents.autosketch.loops import (
    Axis,
    Element,
    Loops,
    Map,
    Reduction,
    Value,
    at,
    resolved,
)
from sketchc.agents.autosketch.phase import Pass, Phase


def without_repeats(loops: Loops) -> Loops:
    """The loops in which, of two reductions that combine the same elements, the later one is a map
    of the first."""
    values: dict[str, Value] = {}
    known: dict[object, Reduction] = {}
    for name, value in loops.values.items():
        values[name] = value
        if isinstance(value, Reduction):
            first = known.setdefault(_meaning(attrs.evolve(loops, values=values), value), value)
            if first is not value:
                index = tuple(axis.ref for axis in value.axes)
                body = Element(first.name, index, first.dtype)
                values[name] = Map(name, value.axes, value.dtype, body)
    return attrs.evolve(loops, values=values)


def _meaning(loops: Loops, value: Reduction) -> object:
    """A key that is equal for reductions that differ only in the names of their indices."""
    own = (*value.axes, *value.over)
    axes = [Axis(f"'{number}", axis.extent) for number, axis in enumerate(own)]
    names = {old.name: new.ref for old, new in zip(own, axes, strict=True)}
    extents = {axis.name: axis.extent for axis in axes}
    body = resolved(loops, at(value.body, names), extents)
    return value.operation, value.dtype, len(value.axes), tuple(extents.items()), body


def along_columns(phase: Phase) -> Phase:
    """The phase with its passes along the axes of its columns, where they have the same extents:
    what both compute of an element is the same scalar then."""
    return attrs.evolve(phase, passes=tuple(_along(each, phase.columns) for each in phase.passes))


def _along(each: Pass, columns: tuple[Axis, ...]) -> Pass:
    if [axis.extent for axis in each.over] != [axis.extent for axis in columns]:
        return each
    names = {old.name: new.ref for old, new in zip(each.over, columns, strict=True)}
    return attrs.evolve(each, over=columns, body=at(each.body, names))
