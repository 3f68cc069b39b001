"""What follows a matrix product element by element is computed where the product is stored.

A reduction behind it (a maximum, then the sum of exponentials) then loads what it needs, instead of
the product and all that is added to it or multiplied with it, in each of its passes.
"""

from __future__ import annotations

from collections import defaultdict

import attrs

from sketchc.agents.autosketch.loops import (
    Element,
    Loops,
    Map,
    Reduction,
    Value,
    computed_from,
    elements,
    is_product,
    operations,
)
from sketchc.ir import nodes as ir

#: Operations from which on a value that is read more than once is computed once.
_MUCH = 200


def with_epilogues(loops: Loops) -> Loops:
    """The values; those that memory is to hold in the place of a product are marked."""
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
    """The values; those are marked, for memory to hold, that are read more than once and take much
    to compute from what memory holds: of a norm behind a norm behind a norm, each would take the
    one before three times."""
    readers: dict[str, int] = defaultdict(int)
    for value in loops.values.values():
        for source in {e.source for s in computed_from(value) for e in elements(s)}:
            readers[source] += 1
    values = dict(loops.values)
    outputs = {name for _, name in loops.outputs}
    sizes: dict[str, int] = {}
    for name, value in loops.values.items():
        size = operations(value, sizes)
        if isinstance(value, Map) and not value.stored:
            if size > _MUCH and readers[name] > 1 and name not in outputs:
                values[name] = attrs.evolve(value, stored=True)
                size = 0
            sizes[name] = size
        elif isinstance(value, Reduction) and not is_product(value):
            sizes[name] = size
    return attrs.evolve(loops, values=values)


def _step(
    loops: Loops, value: Value, name: str, read: list[Element], plain: set[str]
) -> Map | None:
    """The only value that reads another, where it takes its elements one by one, and nothing else
    but what follows from the task's tensors."""
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
