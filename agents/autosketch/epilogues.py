"""Elementwise operations on a matrix product are computed where the product is stored.

A reduction of the result (a maximum, then the sum of exponentials) then loads that result in each
of its passes, instead of the product and all that is added to it or multiplied with it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from typing import TypeAlias

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
    row_major,
)
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic
from sketchc.ir.walk import names

#: A value that is read more than once and takes more operations than this is stored.
_MUCH = 200

#: So is one that is put together from more parts than this: a reader loads an element of each.
_MANY = 4


#: The most maps that are computed of one value until they come together.
_STEPS = 12

#: By the name of a value, those that read it, each with the elements.
_Readers: TypeAlias = dict[str, dict[str, list[Element]]]


def with_epilogues(loops: Loops) -> Loops:
    """The loops with those maps marked `stored` that memory is to hold in place of a product."""
    readers: _Readers = defaultdict(dict)
    sources: dict[str, set[str]] = defaultdict(set)
    for name, value in loops.values.items():
        for element in (e for scalar in computed_from(value) for e in elements(scalar)):
            readers[element.source].setdefault(name, []).append(element)
            sources[name].add(element.source)
    reduced: set[str] = set()  # what a reduction or scan reads, through maps or not
    for name in reversed([*loops.values]):
        if any(not isinstance(loops.values[r], Map) or r in reduced for r in readers[name]):
            reduced.add(name)
    values = dict(loops.values)
    outputs = {name for _, name in loops.outputs}
    known = _with_computed({t.name for t in loops.declared.tensors}, values, sources)
    for product in filter(is_product, loops.values.values()):
        steps: list[Value] = [product]
        while steps[-1].name not in outputs:
            step = _next(loops, steps[-1], readers, known, outputs)
            if step is None:
                break
            steps.append(step)
        while isinstance(steps[-1].body, Element):  # a view computes nothing
            steps.pop()
        last = steps[-1]
        if isinstance(last, Map) and last.name not in outputs and last.name in reduced:
            values[last.name] = attrs.evolve(last, stored=True)
            known = _with_computed(known | {last.name}, values, sources)
    return attrs.evolve(loops, values=values)


def _with_computed(
    known: Set[str], values: Mapping[str, Value], sources: Mapping[str, Set[str]]
) -> set[str]:
    """The names `known`, and those of maps that are computed from nothing else."""
    found = {*known}
    for name, value in values.items():
        if isinstance(value, Map) and sources[name] <= found:
            found.add(name)
    return found


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


def _next(
    loops: Loops, value: Value, readers: _Readers, known: Set[str], outputs: Set[str]
) -> Map | None:
    """The first map in which all that is computed of `value` comes together, element by element and
    else of what is `known` only: computed from the task's tensors, or in memory. None where there
    is none within `_STEPS` maps."""
    inside: dict[str, Value] = {value.name: value}
    for _ in range(_STEPS):
        reading = {name for each in inside for name in readers[each] if name not in inside}
        step = next((loops.values[name] for name in loops.values if name in reading), None)
        if not isinstance(step, Map) or not _is_step(step, inside, readers, known | inside.keys()):
            return None
        inside[step.name] = step
        left = [n for n in inside if n in outputs or readers[n].keys() - inside.keys()]
        if left == [step.name] or not left:
            return step if step.dtype.is_float else None
    return None


def _is_step(step: Map, inside: Mapping[str, Value], readers: _Readers, known: Set[str]) -> bool:
    """Whether a map reads the values `inside` elementwise (both may have other axes, with the
    elements in the same order) and else only what is `known`."""
    if not {element.source for element in elements(step.body)} <= known:
        return False
    number = _number([axis.ref for axis in step.axes], step.axes)
    for value in inside.values():
        read = readers[value.name].get(step.name, [])
        if read and not symbolic.equal(_size(value), _size(step)):
            return False
        for element in read:
            if not symbolic.equal(_number(element.index, value.axes), number):
                return False
            if element.pad is not None or element.where is not None or element.fetched:
                return False
    return True


def _number(index: Sequence[ir.Expr], axes: Sequence[Axis]) -> ir.Expr:
    """The row-major number of an index, in which an axis of extent 1 has only the index 0."""
    held = [(e, a.extent) for e, a in zip(index, axes, strict=True) if a.extent != ir.Literal(1)]
    return symbolic.simplify(row_major([e for e, _ in held], [extent for _, extent in held]))


def _size(value: Value) -> ir.Expr:
    return symbolic.product([axis.extent for axis in value.axes])
