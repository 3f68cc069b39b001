"""Claims tried on concrete numbers: every counter-example is re-checked here before it is shown,
and small sizes are searched for one where no decision procedure settles a claim.

Nothing in this module reasons, and nothing is ever proved here: it evaluates loop bounds and
subscripts with `sketchc.ir.evaluate`, so that a mistake in the symbolic part cannot become a wrong
accusation. Products of loop variables are beyond isl, but a claim about them that is wrong is
mostly wrong at small sizes already. And what a sketch accesses may depend on params: with
`if alpha > 0.0` around a store, no size shows what happens on the other side.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice, product, takewhile
from typing import TypeAlias, TypeVar, assert_never

import sketchc.checker.facts.budget as budget
from sketchc.base import records
from sketchc.base.types import DType
from sketchc.checker.facts.scope import Branch, Scope, Step, ties, with_ties
from sketchc.checker.facts.sites import Computation, Resolved, Site, loops_of, resolve
from sketchc.ir import evaluate as evaluation
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import Value, evaluate
from sketchc.ir.walk import expressions, has_lanes, names
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
    """Host scalars for given symbols. Params that are not in `given` take their default, or 1."""
    return evaluation.host_values(sketch, given, _params(sketch, given))


def host_sample(sketch: ir.Sketch, given: Mapping[str, Value]) -> Values:
    """Host scalars as `host_values` gives them, where a let may have no value: see `sample_let`."""
    return evaluation.host_sample(sketch, given, _params(sketch, given))


def _params(sketch: ir.Sketch, given: Mapping[str, Value]) -> Values:
    usual = {param.name: 1 if param.default is None else param.default for param in sketch.params}
    return {name: given.get(name, default) for name, default in usual.items()}


def admissible(sketch: ir.Sketch, values: Mapping[str, Value]) -> bool:
    """Whether a launch with these host scalars passes its own checks."""
    return refused(sketch, dict(values), sampled=True) is None


def runs(site: Site, host: Mapping[str, Value], iteration: Mapping[str, int]) -> Values | None:
    """The values of all names at `site` in this iteration; None if it does not reach the site.
    Raises `NeedsData` or another `Untried`."""
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
    """The values of all names at a site, for each iteration that reaches it. Raises `Untried`.
    Every iteration of every loop is work: the loops inside may all be empty."""
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
    """Adds the name that a step binds to `values` and `bindings`; False for a branch not taken."""
    match step:
        case ir.Bind(name, value):
            bindings[name] = value
            if not has_lanes(value, bindings):
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
    """The elements that one iteration touches: a range per tensor axis, or a set of elements."""

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
        """The first element in both boxes; None where there is none."""
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
    """The elements that `site` touches with these values: those of the lanes of its domain for
    which its guards hold. Raises `Untried`."""
    budget.spend(10 + 5 * len(site.access.subscripts))
    lanes = _lanes(site, values)
    plain = not any(isinstance(s, ir.IndexSubscript) for s in site.access.subscripts)
    if plain and not site.guards:
        return Box(tuple(_ranges(site, values, lanes)))
    return Box((), frozenset(e for e, _ in footprint(site, values, resolved)))


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


def footprint(
    site: Site, values: Mapping[str, Value], resolved: Resolved | None = None
) -> Iterator[tuple[Element, tuple[int, ...]]]:
    """Each element that `site` touches, with the lane that touches it. Raises `Untried`."""
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
    """The element of `name`, a tensor or view, in the coordinates of its base tensor. One that has
    another number of coordinates than `name` has these coordinates already, or names no element."""
    return same_element(sketch, name, element, sketch.tensor(name).name, values)


def same_element(
    sketch: ir.Sketch,
    name: str,
    element: tuple[int, ...],
    other: str,
    values: Mapping[str, Value],
) -> tuple[int, ...]:
    """The element of `name` in the coordinates of `other`, both a tensor or a view of it; one that
    has another number of coordinates than `name` stays as it is."""
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
    """The elements `touched` of a view, in the coordinates of its base tensor."""
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


#: Sizes tried, beside those just above the sketch's own constants.
SMALL_SIZES = (1, 2, 3, 5)
LARGEST_SIZE = 300

#: Assignments of sizes tried for one claim.
ATTEMPTS = 40

_IN_VAIN = "no counter-example was found at small sizes"
_STOPPED = f"the search at small sizes was given up after {budget.SEARCH:,} steps"

Found = TypeVar("Found")


def size_assignments(sketch: ir.Sketch, limit: int = ATTEMPTS) -> Iterator[dict[str, int]]:
    """Sizes by symbol: all equal first, then each combination of small ones. Symbols that a
    `require:` ties to others get the values that follow from these."""
    tied = ties(sketch)
    own = {name for name, _ in tied}
    names = [symbol.name for symbol in sketch.symbols if symbol.name not in own]
    later = [symbol.name for symbol in sketch.symbols if symbol.name in own]
    params = {p.name: 1 if p.default is None else p.default for p in sketch.params}
    above = [
        int(constant.value) + 1
        for constant in sketch.constants
        if constant.dtype.is_integer and 1 < constant.value < LARGEST_SIZE
    ]
    sizes = tuple(dict.fromkeys((*SMALL_SIZES, *above)))
    equal = ((size,) * len(names) for size in sizes)
    seen: set[tuple[int, ...]] = set()
    for values in islice((*equal, *islice(product(sizes, repeat=len(names)), limit)), limit):
        if values not in seen:
            seen.add(values)
            numbers = {**dict(zip(names, values, strict=True)), **dict.fromkeys(later, 1)}
            chosen = with_ties(tied, {**params, **numbers})
            yield {symbol.name: max(0, chosen[symbol.name]) for symbol in sketch.symbols}


def accepted(sketch: ir.Sketch, given: Mapping[str, Value]) -> Values | None:
    """Host scalars for these sizes and params; None where a launch refuses them."""
    with suppress(ArithmeticError, ValueError):
        host = host_values(sketch, given)
        return host if admissible(sketch, host) else None
    return None


def admissible_hosts(sketch: ir.Sketch) -> Iterator[tuple[dict[str, int], Values]]:
    """Sizes with all host scalars, where a launch would pass its own checks."""
    for symbols in size_assignments(sketch):
        budget.spend(20)
        if (host := accepted(sketch, symbols)) is not None:
            yield symbols, host


def _searched(
    sketch: ir.Sketch, look: Callable[[Values], Found | None]
) -> tuple[dict[str, int], Found] | None:
    """The first small sizes at which `look` finds something, given the host's scalars, and what it
    finds; within the work that such a search may do."""

    def search() -> tuple[dict[str, int], Found] | None:
        for symbols, host in admissible_hosts(sketch):
            with suppress(Untried, ArithmeticError, KeyError):
                if (found := look(host)) is not None:
                    return symbols, found
        return None

    found = budget.attempt(_STOPPED, budget.SEARCH, None, search)
    if found is None:
        budget.note(_IN_VAIN)
    return found


def failing_iteration(
    sketch: ir.Sketch, site: Site, fails: Callable[[Values], bool]
) -> tuple[dict[str, int], Values] | None:
    """Sizes and an iteration of `site`, with all names there, at which `fails` holds."""
    return _searched(sketch, lambda host: next(filter(fails, iterations(site, host)), None))


def repeating_iteration(sketch: ir.Sketch, site: Site) -> tuple[dict[str, int], Values] | None:
    """Sizes and an iteration in which two lanes of `site` touch one element."""

    def repeats(values: Values) -> bool:
        elements = [element for element, _ in footprint(site, values)]
        return len(set(elements)) < len(elements)

    return failing_iteration(sketch, site, repeats)


def unwritten_element(
    sketch: ir.Sketch, stores: Sequence[Site], extents: Sequence[ir.Expr]
) -> tuple[dict[str, int], tuple[int, ...]] | None:
    """Sizes and an element that no store writes; all stores are through one tensor or view."""

    def unwritten(host: Values) -> tuple[int, ...] | None:
        written = {element for store in stores for _, element in _touched(store, host)}
        shape = [int(evaluate(extent, host)) for extent in extents]
        budget.spend(sum(shape))
        for element in product(*(range(extent) for extent in shape)):
            budget.spend(1)
            if element not in written:
                return element
        return None

    return _searched(sketch, unwritten)


def conflicting_iterations(
    sketch: ir.Sketch, first: Site, second: Site
) -> tuple[dict[str, int], dict[str, int], dict[str, int]] | None:
    """Sizes and iterations of two accesses that touch one element and first differ in a parallel
    loop around both."""
    shared = shared_loops(first, second)

    def conflict(host: Values) -> tuple[dict[str, int], dict[str, int]] | None:
        touched: dict[tuple[int, ...], list[dict[str, int]]] = {}
        for values, element in _touched(first, host):
            touched.setdefault(element, []).append(iteration_of(first, values))
        for values, element in _touched(second, host):
            here = iteration_of(second, values)
            for there in touched.get(element, ()):
                budget.spend(1)
                if first_difference(shared, there, here) is not None:
                    return there, here
        return None

    found = _searched(sketch, conflict)
    return None if found is None else (found[0], *found[1])


def _touched(site: Site, host: Values) -> Iterator[tuple[Values, tuple[int, ...]]]:
    """Every element that a site touches, with the names of that iteration; each counts as work."""
    for values in iterations(site, host):
        for element in box(site, values):
            budget.spend(1)
            yield values, element


def shared_loops(first: Site, second: Site) -> tuple[ir.For | ir.HostFor, ...]:
    """The loops around both sites, outermost first."""
    pairs = zip(loops_of(first), loops_of(second), strict=False)
    return tuple(own for own, _ in takewhile(lambda pair: pair[0] is pair[1], pairs))


def first_difference(
    shared: Sequence[ir.For | ir.HostFor], one: Mapping[str, int], two: Mapping[str, int]
) -> ir.For | None:
    """The outermost of the `shared` loops in which two iterations differ, if it is parallel."""
    for loop in shared:
        if one[loop.variable] != two[loop.variable]:
            return loop if isinstance(loop, ir.For) and loop.parallel else None
    return None


def iteration_of(site: Site, values: Values) -> dict[str, int]:
    """The values of the loop variables around a site."""
    return {loop.variable: int(values[loop.variable]) for loop in loops_of(site)}


ParamValues: TypeAlias = dict[str, int | float | bool]

#: Mixed assignments, where there are several params.
_MIXED = 4

_LARGE_FLOAT = {DType.F16: 60_000.0}
_LARGE = {DType.I8: 100, DType.U8: 200, DType.I16: 30_000}
_UNSIGNED = (DType.U8, DType.U32)


def _param_options(param: ir.Param) -> tuple[int | float | bool, ...]:
    """The values to try for a param: zero, negative, positive and large; both truth values."""
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
    values = {param.name: _param_options(param) for param in sketch.params if param.name in names}
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


def deciding_params(sketch: ir.Sketch, places: Iterable[Site | Computation]) -> tuple[str, ...]:
    """The params that decide, other than through data, which elements are accessed at `places`, and
    what is computed from indices there."""
    used: set[str] = set()
    for place in places:
        for expression in accessed(place):
            used |= names_behind(expression, place.scope)
    shapes = [tensor.extents for tensor in sketch.tensors] + [v.extents for v in sketch.views]
    for extents in shapes:
        used.update(name for extent in extents for name in names(extent))
    behind = with_lets(sketch, used)
    return tuple(param.name for param in sketch.params if param.name in behind)


def with_lets(sketch: ir.Sketch, used: Collection[str]) -> frozenset[str]:
    """The names in `used`, and those that the lets among them depend on."""
    found = frozenset(used)
    for let in reversed(sketch.lets):
        if let.name in found:
            found |= names(let.value)
    return found


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


def accessed(place: Site | Computation) -> Iterator[ir.Expr]:
    """The expressions that decide whether a site or computation is reached, what it touches, and
    what it takes from indices and from the host."""
    yield from expressions(place.statement)
    if isinstance(place, Site):
        yield from place.tile.extents
    for step in place.path:
        yield from _deciding(step)


def _deciding(step: Step) -> tuple[ir.Expr, ...]:
    """The expressions that decide whether a step is taken, and how often."""
    match step:
        case Branch(condition):
            return (condition,)
        case ir.For() | ir.HostFor():
            return (step.start, step.stop, step.step)
        case ir.Bind() | ir.Fetch():  # what is bound is found where it is used
            return ()
        case _:
            assert_never(step)
