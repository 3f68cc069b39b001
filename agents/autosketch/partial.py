"""Reductions of very many terms to few results are computed in parts.

One program would compute each result, and few programs leave a chip idle: the mean of a loss is one
number. So the outermost axes that are reduced become axes of a value of its own, whose elements
programs compute side by side, and which memory holds; the result combines these. How many programs
there are, and terms for each, is that of the task's own sizes; the sketch is right at any.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import attrs

from sketchc.agents.autosketch.loops import Axis, Element, Loops, Reduction, Value, is_product
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import evaluate
from sketchc.ir.walk import free_name, names

#: A reduction with fewer results than this is computed in at least so many parts.
_FEW, _PARTS = 128, 1024
#: The fewest terms of all results that are worth launches of their own.
_TERMS = 1 << 20


def with_partial_results(loops: Loops, sizes: Mapping[str, int]) -> tuple[Loops, frozenset[str]]:
    """The loops, with long reductions in parts, and the names of those results that memory is to
    hold: what programs without number read of each other's rows. `sizes`: of the symbols, in the
    task's own inputs."""
    largest = max(_elements(loops.values[value].axes, sizes) for _, value in loops.outputs)
    values: dict[str, Value] = {}
    kept = set()
    for name, value in loops.values.items():
        parts = _parts(value, sizes) if isinstance(value, Reduction) else ()
        if not isinstance(value, Reduction) or not parts:
            values[name] = value
            continue
        inner = tuple(axis for axis in value.over if axis not in parts)
        own = free_name(f"{name}_parts", {*loops.values, *values})
        axes = (*value.axes, *parts)
        values[own] = attrs.evolve(value, name=own, axes=axes, over=inner)
        body = Element(own, tuple(axis.ref for axis in axes), value.dtype)
        values[name] = attrs.evolve(value, over=parts, body=body)
        if largest > _elements(value.axes, sizes):
            kept.add(name)
    return attrs.evolve(loops, values=values), frozenset(kept)


def _parts(value: Reduction, sizes: Mapping[str, int]) -> tuple[Axis, ...]:
    """The axes over which a reduction is in parts; none where it is in one."""
    programs = _elements(value.axes, sizes)
    terms = programs * _elements(value.over, sizes)
    if is_product(value) or not 0 < programs < _FEW or terms < _TERMS:
        return ()
    wide = [axis for axis in value.over if axis.extent != ir.Literal(1)]
    found: tuple[Axis, ...] = ()
    for axis in wide[:-1]:
        if programs * _elements(found, sizes) >= _PARTS:
            break
        found = (*found, axis)
    return found if _elements(found, sizes) > 1 else ()


def _elements(axes: Sequence[Axis], sizes: Mapping[str, int]) -> int:
    """How many elements axes have; 0 where that is open."""
    if not all(sizes.keys() >= set(names(axis.extent)) for axis in axes):
        return 0
    return math.prod(int(evaluate(axis.extent, sizes)) for axis in axes)
