"""Which scans a phase computes as such, and how they run along its axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from sketchc.agents.autosketch.loops import (
    Axis,
    Best,
    Element,
    Loops,
    Rank,
    Scan,
    Value,
    at,
    below,
    elements,
    resolved,
)
from sketchc.agents.autosketch.phase import Running
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic
from sketchc.ir.walk import names

#: What a scan has come to before its first term.
_BEFORE = {"sum": 0, "prod": 1}


def find_running(
    loops: Loops,
    value: Value | None,
    element: Element,
    axes: Sequence[Axis],
    extents: Mapping[str, ir.Expr],
) -> Running | None:
    """The scan `value` as an element reads it, where the element's index is that of these axes,
    that of the axes with the scanned one from its end, or that of the place before; else None.
    `extents`: of all indices."""
    if not isinstance(value, Scan):
        return None
    plain, reverse, exclusive = _read_along(value, element, axes)
    if not is_of_axes(value, plain, axes):
        return None
    axis = axis_along(value, plain, axes)
    replaced = dict(zip((axis.name for axis in value.axes), plain.index, strict=True))
    if reverse:
        replaced[value.along.name] = _from_end(axis)
    body = resolved(loops, at(value.body, replaced), extents)
    if exclusive and not all(_is_inside(loops, each, extents) for each in elements(body)):
        return None  # there is no term at the last place, where none is needed
    return Running("running", value.operation, value.dtype, axis, body, reverse, exclusive)


def _read_along(value: Scan, element: Element, axes: Sequence[Axis]) -> tuple[Element, bool, bool]:
    """The element with the scanned axis at its own place; whether it was read from its end, and
    whether one place before."""
    place = value.axes.index(value.along)
    subscript = element.index[place]
    for axis in (each for each in axes if each.name in names(subscript)):
        index = (*element.index[:place], axis.ref, *element.index[place + 1 :])
        before = ir.Binary("-", axis.ref, ir.Literal(1))
        shorter = ir.Binary("-", axis.extent, ir.Literal(1))
        same = symbolic.equal(axis.extent, value.along.extent)
        if same and symbolic.equal(subscript, _from_end(axis)):
            return attrs.evolve(element, index=index), True, False
        starts = element.pad == _BEFORE[value.operation] and element.where is None
        room = symbolic.constant_value(ir.Binary("-", value.along.extent, shorter))
        if starts and symbolic.equal(subscript, before) and room is not None and room >= 0:
            return attrs.evolve(element, index=index, pad=None), False, True
    return element, False, False


def _from_end(axis: Axis) -> ir.Expr:
    """The index along an axis that counts from its end."""
    return ir.Binary("-", ir.Binary("-", axis.extent, ir.Literal(1)), axis.ref)


def _is_inside(loops: Loops, element: Element, extents: Mapping[str, ir.Expr]) -> bool:
    """Whether an element is one of its source at all indices."""
    pairs = zip(element.index, loops.shape(element.source), strict=True)
    plain = element.pad is None and element.where is None and not element.fetched
    return plain and all(below(each, extent, extents) for each, extent in pairs)


def is_of_axes(value: Scan | Best | Rank, element: Element, axes: Sequence[Axis]) -> bool:
    """Whether the index of an element has all of these axes, each by itself, and nothing else."""
    own = {axis.name for axis in axes}
    index = [e for a, e in zip(value.axes, element.index, strict=True) if a.extent != ir.Literal(1)]
    if element.pad is not None or len(set(index)) < len(index):
        return False
    if not all(isinstance(e, ir.Ref) and e.name in own for e in index):
        return False
    return len(index) == len([axis for axis in axes if axis.extent != ir.Literal(1)])


def axis_along(value: Scan | Best | Rank, element: Element, axes: Sequence[Axis]) -> Axis:
    """The axis, of those of a phase, by which an element runs along `value.along`."""
    index = element.index[value.axes.index(value.along)]
    return next((axis for axis in axes if axis.ref == index), value.along)
