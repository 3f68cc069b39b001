"""Terms of a reduction that take reductions themselves, one row for each, are computed apart.

A loss is mostly such a mean: of each row's loss, which is made of a maximum and a sum over the row.
A program that adds up terms cannot reduce the rows of them all; so memory would hold each of a
row's reductions, and each would be computed by a launch of its own, which reads the row again.
Where memory holds the terms instead, one launch computes all that a row takes.
"""

from __future__ import annotations

import attrs

from sketchc.agents.autosketch.loops import (
    Element,
    Loops,
    Map,
    Reduction,
    Value,
    elements,
    is_product,
    names_in,
    resolved,
)
from sketchc.ir import nodes as ir
from sketchc.ir.walk import free_name


def with_stored_terms(loops: Loops) -> Loops:
    """The loops; reductions whose terms take a reduction for each read them from memory."""
    values: dict[str, Value] = {}
    for name, value in loops.values.items():
        if isinstance(value, Reduction) and _takes_rows(loops, value):
            axes = (*value.axes, *value.over)
            own = free_name(f"{name}_terms", {*loops.values, *values})
            values[own] = Map(own, axes, value.dtype, value.body, stored=True)
            body = Element(own, tuple(axis.ref for axis in axes), value.dtype)
            value = attrs.evolve(value, body=body)
        values[name] = value
    return attrs.evolve(loops, values=values)


def _takes_rows(loops: Loops, value: Reduction) -> bool:
    """Whether each term of a reduction takes another reduction, which no other term takes."""
    if value.part is not None or is_product(value):
        return False
    axes = (*value.axes, *value.over)
    wide = {axis.name for axis in axes if axis.extent != ir.Literal(1)}
    over = {axis.name for axis in value.over} & wide
    body = resolved(loops, value.body, {axis.name: axis.extent for axis in axes})
    for each in elements(body):
        source = loops.values.get(each.source)
        plain = all(isinstance(e, ir.Ref | ir.Literal) for e in each.index)
        plain = plain and each.pad is None and not each.fetched and wide <= names_in(each.index)
        if isinstance(source, Reduction) and not is_product(source) and plain and over:
            return True
    return False
