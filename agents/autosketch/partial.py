"""Reductions of very many terms to few results are computed in parts.

One program would compute each result, and few programs leave a chip idle: the mean of a loss is one
number. So the outermost axes that are reduced become axes of a value of its own, whose elements
programs compute side by side, and which memory holds; the result combines these. How many programs
there are, and terms for each, is that of the task's own sizes; the sketch is right at any.

Terms that take reductions themselves, one row for each, are computed apart. A loss is mostly a mean
of such: each row's is made of a maximum and a sum over the row. A program that adds up terms cannot
reduce the rows of them all; so memory would hold each of a row's reductions, and each would be
computed by a launch of its own, which reads the row again. Where memory holds the terms instead,
one launch computes all that a row takes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import attrs

from sketchc.agents.autosketch.loops import (
    Axis,
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
from sketchc.ir.evaluate import evaluate
from sketchc.ir.walk import free_name, names

#: A reduction with fewer results than this is computed in at least so many parts.
FEW, _PARTS = 128, 1024
#: The fewest terms of all results that are worth launches of their own; the second number where
#: programs wait for each of their loads, and nothing else reads the terms.
_TERMS = {False: 1 << 20, True: 1 << 14}
#: Blocks of one axis are dealt to at least four parts, each with at least so many terms.
_FEWEST_PARTS, _PART_TERMS = 4, {False: 1 << 13, True: 1 << 11}
#: A matrix product is in parts where there are fewer blocks of so many elements than the second
#: number: each has at least so many terms.
_BLOCK, _FEW_BLOCKS, _BLOCK_TERMS = 128 * 128, 256, 1 << 12


def with_partial_results(
    loops: Loops, sizes: Mapping[str, int], planes: bool
) -> tuple[Loops, frozenset[str]]:
    """The loops, with long reductions in parts, and the names of those results that memory is to
    hold: what programs without number read of each other's rows. `sizes`: of the symbols, in the
    task's own inputs; `planes`: as for `designer.design`."""
    largest = max(_elements(loops.values[value].axes, sizes) for _, value in loops.outputs)
    values: dict[str, Value] = {}
    kept = set()
    for name, value in loops.values.items():
        # A result that a whole row is divided by is the affair of the program that has the row.
        soon = planes and largest <= _elements(value.axes, sizes)
        parts = _parts(value, sizes, soon) if isinstance(value, Reduction) else ()
        blocks = _blocks(value, parts, sizes, soon) if isinstance(value, Reduction) else ()
        if not isinstance(value, Reduction) or not (parts or blocks):
            values[name] = value
            continue
        inner = tuple(axis for axis in value.over if axis not in parts)
        own = free_name(f"{name}_parts", {*loops.values, *values})
        axes = (*blocks, *value.axes, *parts)
        part = blocks[0] if blocks else None
        values[own] = attrs.evolve(value, name=own, axes=axes, over=inner, part=part)
        body = Element(own, tuple(axis.ref for axis in axes), value.dtype)
        values[name] = attrs.evolve(value, over=(*blocks, *parts), body=body)
        if largest > _elements(value.axes, sizes):
            kept.add(name)
    return attrs.evolve(loops, values=values), frozenset(kept)


def _parts(value: Reduction, sizes: Mapping[str, int], soon: bool) -> tuple[Axis, ...]:
    """The axes over which a reduction is in parts; none where it is in one."""
    programs = _elements(value.axes, sizes)
    terms = programs * _elements(value.over, sizes)
    if is_product(value) or not 0 < programs < FEW or terms < _TERMS[soon]:
        return ()
    wide = [axis for axis in value.over if axis.extent != ir.Literal(1)]
    found: tuple[Axis, ...] = ()
    for axis in wide[:-1]:
        if programs * _elements(found, sizes) >= _PARTS:
            break
        found = (*found, axis)
    return found if _elements(found, sizes) > 1 else ()


def _blocks(
    value: Reduction, outer: Sequence[Axis], sizes: Mapping[str, int], soon: bool
) -> tuple[Axis, ...]:
    """The axis of the numbers of parts of the one axis that is left of a reduction, whose blocks go
    to the parts in turn; none where the reduction has programs enough without."""
    wide = [axis for axis in value.over if axis.extent != ir.Literal(1) and axis not in outer]
    results, length = _elements(value.axes, sizes), _elements(wide, sizes)
    if len(wide) != 1 or isinstance(wide[0].extent, ir.Literal) or not results:
        return ()
    if is_product(value):
        programs, enough, block = results / _BLOCK, _FEW_BLOCKS, _BLOCK_TERMS
    elif results < FEW and results * _elements(value.over, sizes) >= _TERMS[soon]:
        programs, enough, block = results * _elements(outer, sizes), _PARTS, _PART_TERMS[soon]
    else:
        return ()
    parts = 1
    while parts * programs < enough and 2 * parts * block <= length:
        parts *= 2
    if parts < _FEWEST_PARTS:
        return ()
    taken = {axis.name for axis in (*value.axes, *value.over)}
    return (Axis(free_name("part", taken), ir.Literal(parts)),)


def _elements(axes: Sequence[Axis], sizes: Mapping[str, int]) -> int:
    """How many elements axes have; 0 where that is open."""
    if not all(sizes.keys() >= set(names(axis.extent)) for axis in axes):
        return 0
    return math.prod(int(evaluate(axis.extent, sizes)) for axis in axes)


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
