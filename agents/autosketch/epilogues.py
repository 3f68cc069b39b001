"""Elementwise operations on a matrix product are computed where the product is stored.

A reduction of the result (a maximum, then the sum of exponentials) then loads that result in each
of its passes, instead of the product and all that is added to it or multiplied with it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence, Set

import attrs

from sketchc.agents.autosketch.loops import (
    Axis,
    Element,
    Loops,
    Map,
    Reduction,
    Scalar,
    Value,
    combined_over,
    computed_from,
    elements,
    is_product,
    names_in,
    operations,
)
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic
from sketchc.ir.walk import names

#: A value that is read more than once and takes more operations than this is stored.
_MUCH = 200

#: So is one that is put together from more parts than this: a reader loads an element of each.
_MANY = 4


def with_epilogues(loops: Loops) -> Loops:
    """The loops with those maps marked `stored` that memory is to hold in place of a product."""
    readers: dict[str, dict[str, list[Element]]] = defaultdict(lambda: defaultdict(list))
    plain: set[str] = set()
    for name, value in loops.values.items():
        sources = [e for scalar in computed_from(value) for e in elements(scalar)]
        for element in sources:
            readers[element.source][name].append(element)
        known = all(e.source in plain or e.source not in loops.values for e in sources)
        if isinstance(value, Map) and known:
            plain.add(name)
    reduced: set[str] = set()  # what a reduction or scan reads, through maps or not
    for name in reversed([*loops.values]):
        if any(not isinstance(loops.values[r], Map) or r in reduced for r in readers[name]):
            reduced.add(name)
    values = dict(loops.values)
    outputs = {name for _, name in loops.outputs}
    for product in filter(is_product, loops.values.values()):
        last: Value = product
        steps: list[Map] = []
        while (
            last.name not in outputs
            and len(readers[last.name]) == 1
            and (step := _step(loops, last, *next(iter(readers[last.name].items())), plain))
        ):
            last = step
            steps.append(step)
        if steps and last.name not in outputs and last.name in reduced:
            values[last.name] = attrs.evolve(steps[-1], stored=True)
    return attrs.evolve(loops, values=values)


def with_held(loops: Loops) -> Loops:
    """The loops with those maps marked `stored` that are read more than once and take many
    operations (each of several norms in a row would compute the one before three times) or
    concatenate many parts, and those that concatenate rows which a reduction or scan combines."""
    readers: dict[str, int] = defaultdict(int)
    for value in loops.values.values():
        for source in {e.source for s in computed_from(value) for e in elements(s)}:
            readers[source] += 1
    values = dict(loops.values)
    outputs = {name for _, name in loops.outputs}
    sizes: dict[str, int] = {}
    rows = _joined_rows(loops)
    parts: dict[str, int] = {}
    for name, value in loops.values.items():
        size = operations(value, sizes)
        if isinstance(value, Map) and not value.stored:
            parts[name] = sum(parts.get(e.source, 0) or e.ignored for e in elements(value.body))
            much = size > _MUCH or parts[name] > _MANY
            much = much and readers[name] > 1 and name not in outputs
            if much or name in rows:
                values[name] = attrs.evolve(value, stored=True)
                size = parts[name] = 0
            sizes[name] = size
        elif isinstance(value, Reduction) and not is_product(value):
            sizes[name] = size
    return attrs.evolve(loops, values=values)


def _joined_rows(loops: Loops) -> set[str]:
    """The names of the maps that concatenate parts, or pad rows, along an axis over which a
    reduction, scan or choice runs: there it would read padding outside of a part or row, which
    counts as nothing in a sketch. Windows and products read rows with their padding."""
    found: set[str] = set()
    seen: set[tuple[str, frozenset[str], bool]] = set()

    def look(scalar: Scalar, over: Set[str], padded: bool) -> None:
        for element in elements(scalar):
            value = loops.values.get(element.source)
            if not isinstance(value, Map) or value.stored:
                continue
            pairs = zip(value.axes, element.index, strict=True)
            lanes = frozenset(axis.name for axis, each in pairs if names(each) & over)
            along = padded and all(
                isinstance(each, ir.Ref) or not names(each) for each in element.index
            )
            if not lanes or (value.name, lanes, along) in seen:
                continue
            seen.add((value.name, lanes, along))
            parts = [each for each in elements(value.body) if each.ignored]
            if along and isinstance(value.body, Element) and value.body.pad is not None:
                parts.append(value.body)
            if any(_beyond(loops, part, value.axes) & lanes for part in parts):
                found.add(value.name)
            else:
                look(value.body, lanes, along)

    for value in loops.values.values():
        for scalar in computed_from(value):
            look(scalar, {axis.name for axis in combined_over(value)}, not is_product(value))
    return found


def _beyond(loops: Loops, element: Element, axes: Sequence[Axis]) -> set[str]:
    """The axes along which the index of `element` may leave its source: all that do not run through
    an extent of it from end to end."""
    own = {axis.ref: axis.extent for axis in axes}
    extents = loops.shape(element.source)
    moved = (
        each
        for each, extent in zip(element.index, extents, strict=True)
        if each not in own or not symbolic.equal(own[each], extent)
    )
    return names_in(moved)


def _step(
    loops: Loops, value: Value, name: str, read: list[Element], plain: set[str]
) -> Map | None:
    """The value `name`, the only reader of `value`, where it is a map that reads it elementwise (by
    the elements `read`) and else only what is computed from the task's tensors; None otherwise."""
    reader = loops.values[name]
    if not isinstance(reader, Map) or reader.dtype is not value.dtype:
        return None
    if [axis.extent for axis in reader.axes] != [axis.extent for axis in value.axes]:
        return None
    one = ir.Literal(1)
    own = tuple(ir.Literal(0) if axis.extent == one else axis.ref for axis in reader.axes)
    for element in read:
        index = tuple(
            ir.Literal(0) if axis.extent == one else each
            for axis, each in zip(reader.axes, element.index, strict=True)
        )
        if index != own or element.pad is not None or element.where is not None or element.fetched:
            return None
    others = {element.source for element in elements(reader.body)} - {value.name}
    if not all(other in plain or other not in loops.values for other in others):
        return None
    return reader
