"""Claims tried on concrete numbers: every counter-example is re-checked here before it is shown.

Nothing in this module reasons: it evaluates loop bounds and subscripts with `sketchc.evaluate`, so
that a mistake in the symbolic part cannot become a wrong accusation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sketchc import ir
from sketchc import records as attrs
from sketchc.checker.scope import contains_iota
from sketchc.checker.sites import Site
from sketchc.evaluate import Value, evaluate, sample_let

#: Iterations tried before a re-check is given up.
ITERATION_LIMIT = 100_000

Values = dict[str, Value]


class TooLong(Exception):
    """The concrete sizes need more iterations than `ITERATION_LIMIT`."""


def host_values(sketch: ir.Sketch, symbols: Mapping[str, int]) -> Values:
    """Host scalars for given symbols. Params that proofs cannot depend on (floats) take their
    default, or 1."""
    values = host_scalars(sketch, symbols)
    for let in sketch.lets:
        values[let.name] = evaluate(let.value, values)
    return values


def host_sample(sketch: ir.Sketch, symbols: Mapping[str, int]) -> Values:
    """The same, where a let may have no value for the params assumed: see `sample_let`."""
    values = host_scalars(sketch, symbols)
    for let in sketch.lets:
        values[let.name] = sample_let(let, values)
    return values


def host_scalars(sketch: ir.Sketch, symbols: Mapping[str, int]) -> Values:
    """Constants, params and symbols, without lets."""
    values: Values = {constant.name: constant.value for constant in sketch.constants}
    for param in sketch.params:
        values[param.name] = 1 if param.default is None else param.default
    values.update(symbols)
    return values


def admissible(sketch: ir.Sketch, values: Mapping[str, Value]) -> bool:
    """Whether a launch with these host scalars passes its own checks."""
    try:
        return all(bool(evaluate(r.condition, values)) for r in sketch.requires) and all(
            int(evaluate(extent, values)) >= 0
            for tensor in sketch.tensors
            for extent in tensor.extents
        )
    except ZeroDivisionError:
        return False


def runs(site: Site, host: Mapping[str, Value], iteration: Mapping[str, int]) -> Values | None:
    """All names at `site` in this iteration, or None when the loops do not reach it."""
    values: Values = dict(host)
    bindings: dict[str, ir.Expr] = {}
    for step in site.path:
        if isinstance(step, ir.Bind):
            bindings[step.name] = step.value
            if not contains_iota(step.value, bindings):
                values[step.name] = evaluate(step.value, values)
            continue
        start, stop, stride = (int(evaluate(e, values)) for e in (step.start, step.stop, step.step))
        value = iteration[step.variable]
        if stride < 1 or value not in range(start, stop, stride):
            return None
        values[step.variable] = value
    return values


def iterations(site: Site, host: Mapping[str, Value]) -> Iterator[Values]:
    """All iterations that reach a site, each with all names. Raises `TooLong`."""
    count = 0

    def visit(place: int, values: Values, bindings: dict[str, ir.Expr]) -> Iterator[Values]:
        nonlocal count
        if place == len(site.path):
            count += 1
            if count > ITERATION_LIMIT:
                raise TooLong
            yield values
            return
        step = site.path[place]
        if isinstance(step, ir.Bind):
            bindings = {**bindings, step.name: step.value}
            if not contains_iota(step.value, bindings):
                values = {**values, step.name: evaluate(step.value, values)}
            yield from visit(place + 1, values, bindings)
            return
        bounds = (int(evaluate(e, values)) for e in (step.start, step.stop, step.step))
        for value in range(*bounds):
            yield from visit(place + 1, {**values, step.variable: value}, bindings)

    return visit(0, dict(host), {})


@attrs.frozen
class Box:
    """The elements that one iteration touches: a range per tensor axis."""

    ranges: tuple[range, ...]

    def __contains__(self, element: tuple[int, ...]) -> bool:
        return all(index in axis for index, axis in zip(element, self.ranges, strict=True))


def box(site: Site, values: Mapping[str, Value]) -> Box:
    """What `site` touches with these values: the lanes of its domain within the tile."""
    ranges = []
    domain = iter(zip(site.tile.extents, site.statement.domain, strict=True))
    for subscript in site.access.subscripts:
        if isinstance(subscript, ir.ScalarSubscript):
            index = int(evaluate(subscript.index, values))
            ranges.append(range(index, index + 1))
            continue
        extent, valid = next(domain)
        lower = max([0, *(int(evaluate(bound, values)) for bound in valid.lower)])
        upper = min(int(evaluate(bound, values)) for bound in (extent, *valid.upper))
        start = int(evaluate(subscript.lower, values))
        ranges.append(range(start + lower, start + max(lower, upper)))
    return Box(tuple(ranges))


def base_element(
    sketch: ir.Sketch, name: str, element: tuple[int, ...], values: Mapping[str, Value]
) -> tuple[int, ...]:
    """The element in the tensor's own coordinates, for an access through a view."""
    extents = [int(evaluate(extent, values)) for extent in sketch.extents(name)]
    position = 0
    for index, extent in zip(element, extents, strict=True):
        position = position * extent + index
    own = [int(evaluate(extent, values)) for extent in sketch.tensor(name).extents]
    result = []
    for extent in reversed(own):
        position, index = divmod(position, extent) if extent else (position, 0)
        result.append(index)
    return tuple(reversed(result))
