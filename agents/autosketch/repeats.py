"""Each reduction once: a mean and the deviation from it add up the same numbers."""

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


def without_repeats(loops: Loops) -> Loops:
    """The values; of two reductions that combine the same, the later one is the first by another
    name."""
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
    """What a reduction combines, whatever its indices are called."""
    own = (*value.axes, *value.over)
    axes = [Axis(f"'{number}", axis.extent) for number, axis in enumerate(own)]
    names = {old.name: new.ref for old, new in zip(own, axes, strict=True)}
    extents = {axis.name: axis.extent for axis in axes}
    body = resolved(loops, at(value.body, names), extents)
    return value.operation, value.dtype, len(value.axes), tuple(extents.items()), body
