"""Sizes at which a sketch may be launched: bounds, requires, and extents that make sense.

Used to pick example sizes (a launch that only compiles, a sketch that stands as its own task) and
to leave out the sizes at which a kernel rightly refuses to run.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from sketchc import ir
from sketchc.evaluate import Value, evaluate, host_values
from sketchc.types import DType

#: Combinations that `choose` looks at before it gives up.
_MOST_TRIES = 50_000


def tensor_shapes(
    sketch: ir.Sketch, symbols: Mapping[str, int], params: Mapping[str, Value]
) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor that is no workspace. Raises as `evaluate` does."""
    values = host_values(sketch, symbols, params)
    return {
        tensor.name: tuple(int(evaluate(extent, values)) for extent in tensor.extents)
        for tensor in sketch.tensors
        if tensor.role is not ir.Role.WORKSPACE
    }


def refusal(sketch: ir.Sketch, symbols: Mapping[str, int], params: Mapping[str, Value]) -> str:
    """Why a launch at these sizes must be refused, in words; "" when nothing speaks against it."""
    for symbol in sketch.symbols:
        if symbol.upper_bound is not None and symbols[symbol.name] > symbol.upper_bound:
            return f"{symbol.name} <= {symbol.upper_bound}"
    try:
        values = host_values(sketch, symbols, params)
        for tensor in sketch.tensors:
            if any(evaluate(extent, values) < 0 for extent in tensor.extents):
                return f"{tensor.name} has extents of 0 or more"
        for require in sketch.requires:
            if not evaluate(require.condition, values):
                return require.text
    except (ArithmeticError, ValueError):
        return "every extent and condition has a value"
    return ""


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
    options: Mapping[str, Sequence[int]], accept: Callable[[Mapping[str, int]], bool]
) -> dict[str, int] | None:
    """The first combination that is accepted, in order of how far down the lists it goes.

    `options` lists sizes for each symbol, the preferred first. None when none is accepted.
    """
    for number, symbols in enumerate(_combinations(options)):
        if accept(symbols):
            return symbols
        if number >= _MOST_TRIES:
            break
    return None


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
    """Elements over all tensors."""
    return sum(math.prod(shape) for shape in shapes.values())
