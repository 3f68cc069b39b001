"""Claims tried on concrete numbers: every counter-example is re-checked here before it is shown.

Nothing in this module reasons: it evaluates loop bounds and subscripts with `sketchc.ir.evaluate`,
so that a mistake in the symbolic part cannot become a wrong accusation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

from sketchc.base import records
from sketchc.checker.facts import budget
from sketchc.checker.facts.scope import Branch, Scope, Step, contains_iota
from sketchc.checker.facts.sites import Resolved, Site, resolve
from sketchc.ir import evaluate as evaluation
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import Value, evaluate
from sketchc.ir.walk import names
from sketchc.launch.conditions import refused

#: Iterations, and lanes of one access, tried before a re-check is given up.
ITERATION_LIMIT = 100_000
LANE_LIMIT = 100_000

Values = dict[str, Value]
Element = tuple[int, ...]


class Untried(Exception):
    """A claim cannot be tried here."""


class TooLong(Untried):
    """The concrete sizes need more iterations or lanes than the limits."""


class NeedsData(Untried):
    """What is touched depends on elements of a tensor."""


def host_values(sketch: ir.Sketch, given: Mapping[str, Value]) -> Values:
    """Host scalars for given symbols. Params that `given` does not name take their default, or
    1."""
    return evaluation.host_values(sketch, given, _params(sketch, given))


def host_sample(sketch: ir.Sketch, given: Mapping[str, Value]) -> Values:
    """The same, where a let may have no value for the params assumed: see `sample_let`."""
    return evaluation.host_sample(sketch, given, _params(sketch, given))


def _params(sketch: ir.Sketch, given: Mapping[str, Value]) -> Values:
    usual = {param.name: 1 if param.default is None else param.default for param in sketch.params}
    return {name: given.get(name, default) for name, default in usual.items()}


def admissible(sketch: ir.Sketch, values: Mapping[str, Value]) -> bool:
    """Whether a launch with these host scalars passes its own checks."""
    return refused(sketch, dict(values), sampled=True) is None


def runs(site: Site, host: Mapping[str, Value], iteration: Mapping[str, int]) -> Values | None:
    """All names at `site` in this iteration, or None when the loops do not reach it. Raises
    `NeedsData`."""
    values: Values = dict(host)
    bindings: dict[str, ir.Expr] = {}
    for step in site.path:
        if isinstance(step, ir.For | ir.HostFor):
            value = iteration[step.variable]
            if value not in _range(step, values):
                return None
            values[step.variable] = value
        elif not _passes(step, values, bindings):
            return None
    return values


def iterations(site: Site, host: Mapping[str, Value]) -> Iterator[Values]:
    """All iterations that reach a site, each with all names. Raises `Untried`. Every iteration of
    every loop is work: those within may all be empty."""
    count = 0

    def visit(place: int, values: Values, bindings: dict[str, ir.Expr]) -> Iterator[Values]:
        nonlocal count
        if place == len(site.path):
            yield values
            return
        step = site.path[place]
        if isinstance(step, ir.For | ir.HostFor):
            for value in _range(step, values):
                budget.spend(8)
                count += 1
                if count > ITERATION_LIMIT:
                    raise TooLong
                yield from visit(place + 1, {**values, step.variable: value}, bindings)
            return
        values, bindings = dict(values), dict(bindings)
        if _passes(step, values, bindings):
            yield from visit(place + 1, values, bindings)

    return visit(0, dict(host), {})


def _range(loop: ir.For | ir.HostFor, values: Values) -> range:
    start, stop, step = (known(e, values) for e in (loop.start, loop.stop, loop.step))
    return range(start, stop, step) if step else range(0)


def _passes(step: Step, values: Values, bindings: dict[str, ir.Expr]) -> bool:
    """Adds what a step binds; False where a branch is not taken."""
    match step:
        case ir.Bind(name, value):
            bindings[name] = value
            if not contains_iota(value, bindings):
                try:
                    values[name] = evaluate(value, values)
                except KeyError:  # needs a fetched value: missed where it is used
                    values.pop(name, None)
        case Branch(condition, holds):
            try:
                return bool(evaluate(condition, values)) == holds
            except KeyError as missing:
                raise NeedsData from missing
            except ValueError as error:  # the root of a negative param, say
                raise Untried from error
        case _:
            pass
    return True


def known(expression: ir.Expr, values: Mapping[str, Value]) -> int:
    """The value of an integer expression. Raises `NeedsData` for names that only data gives."""
    try:
        return int(evaluate(expression, values))
    except KeyError as missing:
        raise NeedsData from missing


# ---------------------------------------------------------------- elements


@records.frozen
class Box:
    """The elements that one iteration touches: a range per tensor axis, or a set of them."""

    ranges: tuple[range, ...]
    chosen: frozenset[Element] | None = None

    def __contains__(self, element: Element) -> bool:
        if self.chosen is not None:
            return element in self.chosen
        return all(index in axis for index, axis in zip(element, self.ranges, strict=True))

    def __iter__(self) -> Iterator[Element]:
        if self.chosen is not None:
            return iter(sorted(self.chosen))
        budget.spend(sum(map(len, self.ranges)))
        return product(*self.ranges)

    def common(self, other: Box) -> Element | None:
        """The first element in both."""
        if self.chosen is not None:
            budget.spend(len(self.chosen))
            return min((element for element in self.chosen if element in other), default=None)
        if other.chosen is not None:
            return other.common(self)
        element = []
        for own, theirs in zip(self.ranges, other.ranges, strict=True):
            budget.spend(1 + len(own) // 8)
            found = min((index for index in own if index in theirs), default=None)
            if found is None:
                return None
            element.append(found)
        return tuple(element)


def box(site: Site, values: Mapping[str, Value], resolved: Resolved | None = None) -> Box:
    """What `site` touches with these values: the lanes of its domain for which its guards hold.
    Raises `Untried`."""
    budget.spend(10 + 5 * len(site.access.subscripts))
    lanes = _lanes(site, values)
    plain = not any(isinstance(s, ir.IndexSubscript) for s in site.access.subscripts)
    if plain and not site.guards:
        return Box(tuple(_ranges(site, values, lanes)))
    return Box((), frozenset(e for e, _ in touches(site, values, resolved)))


def _ranges(site: Site, values: Mapping[str, Value], lanes: list[range]) -> Iterator[range]:
    axis = iter(lanes)
    for subscript in site.access.subscripts:
        if isinstance(subscript, ir.SliceSubscript):
            own = next(axis)
            start, step = known(subscript.lower, values), known(subscript.step, values)
            ends = (start + own.start * step, start + own.stop * step)
            yield range(*ends, step) if own else range(0)
        else:
            assert isinstance(subscript, ir.ScalarSubscript)
            index = known(subscript.index, values)
            yield range(index, index + 1)


def _lanes(site: Site, values: Mapping[str, Value]) -> list[range]:
    """The lanes of each axis within the domain."""
    result = []
    for extent, valid in zip(site.tile.extents, site.domain, strict=True):
        lower = max([0, *(known(bound, values) for bound in valid.lower)])
        upper = min(known(bound, values) for bound in (extent, *valid.upper))
        result.append(range(lower, max(lower, upper)))
    return result


def touches(
    site: Site, values: Mapping[str, Value], resolved: Resolved | None = None
) -> Iterator[tuple[Element, tuple[int, ...]]]:
    """Each element touched, with the lane that does. Raises `Untried`."""
    access = resolved or resolve(site)
    names: Values = dict(values)
    ranges = _lanes(site, values)
    budget.spend(sum(map(len, ranges)))
    for number, lane in enumerate(product(*ranges)):
        if number >= LANE_LIMIT:
            raise TooLong
        budget.spend(5 + 5 * len(access.indices))
        names.update({f"'lane{axis}": index for axis, index in enumerate(lane)})
        for name, place in access.places:
            names[name] = known(place, names)
        if all(known(guard, names) for guard in access.guards):
            yield tuple(known(index, names) for index in access.indices), lane


def base_element(
    sketch: ir.Sketch, name: str, element: tuple[int, ...], values: Mapping[str, Value]
) -> tuple[int, ...]:
    """The element in the tensor's own coordinates, for an access through a view. What has another
    number of coordinates than the view is in the tensor's own already, or names no element."""
    return same_element(sketch, name, element, sketch.tensor(name).name, values)


def same_element(
    sketch: ir.Sketch,
    name: str,
    element: tuple[int, ...],
    other: str,
    values: Mapping[str, Value],
) -> tuple[int, ...]:
    """The element of `name` in the coordinates of `other`, both a tensor or a view of it; what has
    another number of coordinates than `name` stays as it is."""
    if name == other:
        return element
    extents = [int(evaluate(extent, values)) for extent in sketch.extents(name)]
    if len(element) != len(extents):
        return element
    position = 0
    for index, extent in zip(element, extents, strict=True):
        position = position * extent + index
    result = []
    for extent in reversed([int(evaluate(extent, values)) for extent in sketch.extents(other)]):
        position, index = divmod(position, extent) if extent else (position, 0)
        result.append(index)
    return tuple(reversed(result))


def in_base(sketch: ir.Sketch, name: str, touched: Box, values: Mapping[str, Value]) -> Box:
    """Elements of a view in the tensor's own coordinates."""
    elements = set()
    for element in touched:
        budget.spend(10)
        elements.add(base_element(sketch, name, element, values))
    return Box((), frozenset(elements))


def names_behind(expression: ir.Expr, scope: Scope) -> frozenset[str]:
    """The names that an expression uses in a scope, those behind bindings included."""
    result: set[str] = set()
    pending = [expression]
    while pending:
        for name in names(pending.pop()) - result:
            result.add(name)
            if name in scope.bindings:
                pending.append(scope.bindings[name])
    return frozenset(result)
