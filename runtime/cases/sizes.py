"""Sizes at which a sketch may be launched: bounds, requires, and extents that make sense.

Used to pick example sizes (a launch that only compiles, a sketch that stands as its own task) and
to leave out the sizes at which a kernel rightly refuses to run.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

from sketchc.base.memo import per_sketch
from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic, walk
from sketchc.ir.evaluate import Value, evaluate, host_sample, host_values, sample_extents
from sketchc.launch.conditions import Kind, broken, launch_conditions

#: Combinations that `choose` looks at before it gives up.
_MOST_TRIES = 50_000
#: ... and that `nearest` looks at for each condition.
_MOST_STEPS = 4_000
#: An expression, such as what must hold at a launch, with the symbols that it depends on.
Condition = tuple[tuple[str, ...], ir.Expr]


def tensor_shapes(
    sketch: ir.Sketch, symbols: Mapping[str, int], params: Mapping[str, Value]
) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor that is no workspace; an extent is 0 where a launch has none
    (`D//H` with H = 0) and is to be refused."""
    values = host_sample(sketch, symbols, params)
    return {
        tensor.name: tuple(sample_extents(tensor, values))
        for tensor in sketch.tensors
        if tensor.role is not ir.Role.WORKSPACE
    }


def fixed_elements(tensor: ir.Tensor) -> int:
    """The product of a tensor's extents that are numbers; 0 counts as 1."""
    numbers = (int(e.value) for e in tensor.extents if isinstance(e, ir.Literal))
    return math.prod(max(number, 1) for number in numbers)


def refusal(sketch: ir.Sketch, symbols: Mapping[str, int], params: Mapping[str, Value]) -> str:
    """Why a launch at these sizes must be refused, in words; "" when nothing speaks against it."""
    return broken(sketch, symbols, params) or ""


def example_params(
    sketch: ir.Sketch, settings: Mapping[str, Value] | None = None
) -> dict[str, Value]:
    """A value for every param: as set, else its default, else 0.75 (1 or True)."""
    given = settings or {}
    params: dict[str, Value] = {}
    for param in sketch.params:
        example: Value = 0.75 if param.dtype.is_float else param.dtype is DType.BOOL or 1
        value = given.get(param.name, param.default)
        params[param.name] = example if value is None else value
    return params


def choose(
    options: Mapping[str, Sequence[int]],
    accept: Callable[[Mapping[str, int]], bool],
    most: int = _MOST_TRIES,
) -> dict[str, int] | None:
    """The first combination that is accepted, in order of how far down the lists it goes.

    `options` lists sizes for each symbol, the preferred first. None when none of the first `most`
    combinations is accepted.
    """
    tried = itertools.islice(_combinations(options), most + 1)
    return next(filter(accept, tried), None)


def nearest(
    sketch: ir.Sketch,
    wishes: Mapping[str, int],
    params: Mapping[str, Value],
    movable: Collection[str] | None = None,
    least: int = 0,
    steps: int = _MOST_STEPS,
) -> dict[str, int] | None:
    """Sizes near `wishes` at which the sketch may be launched and no extent is below `least`.

    Condition by condition, the symbols in one that does not hold move to where it and those before
    it hold, as little as possible; only those in `movable`, where given. None when that fails
    within so many `steps` for each condition.
    """
    sizes = dict(wishes)
    conditions = _conditions(sketch, least)
    for _ in range(len(conditions)):
        broken = _first_broken(sketch, params, conditions, sizes)
        if broken is None:
            return sizes
        names = [n for n in conditions[broken][0] if movable is None or n in movable]
        options = {name: _around(sizes[name]) for name in names}
        # The last condition is the broken one: most trials end with it.
        accept = partial(_hold, sketch, params, conditions[broken::-1], sizes)
        found = choose(options, accept, steps)
        if found is None:
            return None
        sizes |= found
    return None if refusal(sketch, sizes, params) else sizes


def _first_broken(
    sketch: ir.Sketch,
    params: Mapping[str, Value],
    conditions: Sequence[Condition],
    sizes: Mapping[str, int],
) -> int | None:
    """The number of the first condition that does not hold at `sizes`; None where all hold."""
    number = 0
    try:
        values = host_values(sketch, sizes, params)
        for number, (_, condition) in enumerate(conditions):
            if not evaluate(condition, values):
                return number
    except (ArithmeticError, ValueError):
        return number
    return None


def _hold(
    sketch: ir.Sketch,
    params: Mapping[str, Value],
    conditions: Sequence[Condition],
    sizes: Mapping[str, int],
    chosen: Mapping[str, int],
) -> bool:
    """Whether all `conditions` hold at `sizes`, some of which `chosen` replaces."""
    return _first_broken(sketch, params, conditions, {**sizes, **chosen}) is None


def _conditions(sketch: ir.Sketch, least: int) -> list[Condition]:
    """What must hold at a launch, each with the symbols that it depends on."""
    sizes, stated, extents = _conditions_apart(sketch)
    lowest = ir.Literal(least)
    return [
        *((names, ir.Binary(">=", size, lowest)) for names, size in sizes),
        *stated,
        *((names, ir.Binary(">=", extent, lowest)) for names, extent in extents),
    ]


@per_sketch
def _conditions_apart(
    sketch: ir.Sketch,
) -> tuple[list[Condition], list[Condition], list[Condition]]:
    """The symbols, what a launch checks, and the extents of tensors, each with the symbols that it
    depends on."""
    launch = launch_conditions(sketch)
    stated = [condition.holds for condition in launch if condition.kind is Kind.BOUND]
    for condition in launch:
        if condition.kind in (Kind.REQUIRE, Kind.DERIVED):
            stated += symbolic.conjuncts(condition.holds)
    symbols = (ir.Ref(symbol.name, ir.NameKind.SYMBOL) for symbol in sketch.symbols)
    tensors = (tensor for tensor in sketch.tensors if tensor.role is not ir.Role.WORKSPACE)
    extents = (extent for tensor in tensors for extent in tensor.extents)

    def told(found: Iterable[ir.Expr]) -> list[Condition]:
        return [(_symbols_of(sketch, each), each) for each in found]

    return told(symbols), told(stated), told(extents)


def _symbols_of(sketch: ir.Sketch, expression: ir.Expr) -> tuple[str, ...]:
    """The symbols that an expression depends on, those of host values included."""
    names = walk.names(expression)
    for let in sketch.lets:
        if let.name in names:
            names |= set(_symbols_of(sketch, let.value))
    return tuple(symbol.name for symbol in sketch.symbols if symbol.name in names)


def _around(size: int) -> tuple[int, ...]:
    """The sizes from 0 to about twice `size`, in the order of their distance from it."""
    reach = max(size, 8)
    return tuple(sorted(range(size + reach + 1), key=lambda other: abs(other - size)))


def _combinations(options: Mapping[str, Sequence[int]]) -> Iterator[dict[str, int]]:
    """All combinations, those that use early options first."""
    names = list(options)
    start = (0,) * len(names)
    waiting, seen = [(0, start)], {start}
    while waiting:
        rank, chosen = heapq.heappop(waiting)
        yield {name: options[name][place] for name, place in zip(names, chosen, strict=True)}
        for axis, name in enumerate(names):
            following = (*chosen[:axis], chosen[axis] + 1, *chosen[axis + 1 :])
            if following[axis] < len(options[name]) and following not in seen:
                seen.add(following)
                heapq.heappush(waiting, (rank + 1, following))


def elements(shapes: Mapping[str, Sequence[int]]) -> int:
    """The number of elements of all tensors together."""
    return sum(math.prod(shape) for shape in shapes.values())
