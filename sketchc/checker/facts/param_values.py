"""Values of params that runs and counter-examples try, beside their defaults.

What a sketch accesses may depend on params: `if alpha > 0.0` around a store, say. No size shows
what happens on the other side.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeAlias, assert_never

from sketchc.base.types import DType
from sketchc.checker.facts import concrete
from sketchc.checker.facts.scope import Branch, Step
from sketchc.checker.facts.sites import Computation, Site
from sketchc.ir import nodes as ir
from sketchc.ir.walk import expressions, names

ParamValues: TypeAlias = dict[str, int | float | bool]

#: Mixed assignments, where there are several params.
_MIXED = 4

_LARGE_FLOAT = {DType.F16: 60_000.0}
_LARGE = {DType.I8: 100, DType.U8: 200, DType.I16: 30_000}
_UNSIGNED = (DType.U8, DType.U32)


def _values(param: ir.Param) -> tuple[int | float | bool, ...]:
    """Zero, negative, positive and large values; both truth values."""
    if param.dtype is DType.BOOL:
        return (False, True)
    if param.dtype.is_float:
        return (0.0, -1.5, 2.5, 1.0, _LARGE_FLOAT.get(param.dtype, 1e30))
    negative = () if param.dtype in _UNSIGNED else (-1,)
    return (0, *negative, 3, 1, 2, _LARGE.get(param.dtype, 1_000_000))


def other_params(sketch: ir.Sketch, names: Collection[str]) -> tuple[ParamValues, ...]:
    """Assignments to the params named that differ from their defaults: all changed together and one
    by one, then mixed at random."""
    defaults = {param.name: param.default for param in sketch.params}
    values = {param.name: _values(param) for param in sketch.params if param.name in names}
    chosen: list[ParamValues] = []
    for place in range(max(map(len, values.values()), default=0)):
        some = {name: options[place % len(options)] for name, options in values.items()}
        chosen.append(some)
        chosen.extend({name: value} for name, value in some.items())
    generator = random.Random(0)
    for _ in range(_MIXED if len(values) > 1 else 0):
        chosen.append({name: generator.choice(options) for name, options in values.items()})
    kept = [some for some in chosen if any(defaults[n] != value for n, value in some.items())]
    return tuple(some for place, some in enumerate(kept) if some not in kept[:place])


def deciding_params(
    sketch: ir.Sketch, sites: Sequence[Site], computed: Sequence[Computation] = ()
) -> tuple[str, ...]:
    """The params that decide which elements are accessed, other than through data; and what is
    `computed` from indices."""
    used: set[str] = set()
    for site in sites:
        for expression in accessed(site):
            used |= concrete.names_behind(expression, site.scope)
    for one in computed:
        for expression in computed_from(one):
            used |= concrete.names_behind(expression, one.scope)
    shapes = [tensor.extents for tensor in sketch.tensors] + [v.extents for v in sketch.views]
    for extents in shapes:
        used.update(name for extent in extents for name in names(extent))
    for let in reversed(sketch.lets):
        if let.name in used:
            used |= names(let.value)
    return tuple(param.name for param in sketch.params if param.name in used)


def named_params(
    sketch: ir.Sketch, sites: Sequence[Site], params: Mapping[str, int | float | bool]
) -> ParamValues:
    """The params that a counter-example must name, with their values in it: those that differ from
    their defaults, and all that decide what these sites access."""
    deciding = deciding_params(sketch, sites)
    return {
        param.name: params.get(param.name, 1 if param.default is None else param.default)
        for param in sketch.params
        if param.name in params or param.name in deciding
    }


def accessed(site: Site) -> Iterator[ir.Expr]:
    """The expressions that decide whether a site is reached, and what it touches."""
    yield from expressions(site.statement)
    yield from site.tile.extents
    for step in site.path:
        yield from _deciding(step)


def computed_from(computation: Computation) -> Iterator[ir.Expr]:
    """The expressions that decide whether a computation is reached, and what it takes from indices
    and from the host."""
    for operand in computation.statement.operands:
        if not isinstance(operand, ir.TileOperand):
            yield operand.value
    for step in computation.path:
        yield from _deciding(step)


def _deciding(step: Step) -> tuple[ir.Expr, ...]:
    """The expressions that decide whether a step is taken, and how often."""
    match step:
        case Branch(condition):
            return (condition,)
        case (
            ir.For(start=start, stop=stop, step=stride)
            | ir.HostFor(start=start, stop=stop, step=stride)
        ):
            return (start, stop, stride)
        case ir.Bind() | ir.Fetch():  # what is bound is found where it is used
            return ()
        case _:
            assert_never(step)
