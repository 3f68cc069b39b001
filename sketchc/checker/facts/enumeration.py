"""Counter-examples by trying small sizes, and values of params beside their defaults.

Products of loop variables are beyond isl, but a claim about them that is wrong is mostly wrong at
small sizes already. And what a sketch accesses may depend on params: with `if alpha > 0.0` around a
store, no size shows what happens on the other side. Nothing is ever proved here.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice, product
from typing import TypeAlias, TypeVar, assert_never

from sketchc.base.types import DType
from sketchc.checker.facts import budget, concrete
from sketchc.checker.facts.concrete import Untried, Values
from sketchc.checker.facts.scope import Branch, Step, ties, with_ties
from sketchc.checker.facts.sites import Computation, Site, loops_of
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import evaluate
from sketchc.ir.walk import expressions, names

#: Sizes tried, beside those just above the sketch's own constants.
SMALL_SIZES = (1, 2, 3, 5)
LARGEST_SIZE = 300

#: Assignments of sizes tried for one claim.
ATTEMPTS = 40

_IN_VAIN = "no counter-example was found at small sizes"
_STOPPED = f"the search at small sizes was given up after {budget.SEARCH:,} steps"

Found = TypeVar("Found")


def size_assignments(sketch: ir.Sketch, limit: int = ATTEMPTS) -> Iterator[dict[str, int]]:
    """Sizes by symbol: all equal first, then each combination of small ones. What a `require:` ties
    to others follows them."""
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


def admissible_hosts(sketch: ir.Sketch) -> Iterator[tuple[dict[str, int], Values]]:
    """Sizes with all host scalars, where a launch would pass its own checks."""
    for symbols in size_assignments(sketch):
        budget.spend(20)
        try:
            host = concrete.host_values(sketch, symbols)
        except (ArithmeticError, ValueError):
            continue
        if concrete.admissible(sketch, host):
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

    found = budget.attempt(_STOPPED, budget.SEARCH, search, lambda: None)
    if found is None:
        budget.note(_IN_VAIN)
    return found


def failing_iteration(
    sketch: ir.Sketch, site: Site, fails: Callable[[Values], bool]
) -> tuple[dict[str, int], Values] | None:
    """Sizes and an iteration of `site`, with all names there, at which `fails` holds."""
    return _searched(
        sketch, lambda host: next(filter(fails, concrete.iterations(site, host)), None)
    )


def repeating_iteration(sketch: ir.Sketch, site: Site) -> tuple[dict[str, int], Values] | None:
    """Sizes and an iteration in which two lanes of `site` touch one element."""

    def repeats(values: Values) -> bool:
        elements = [element for element, _ in concrete.touches(site, values)]
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
    """Every element that an access touches, each a step, with the names of that iteration."""
    for values in concrete.iterations(site, host):
        for element in concrete.box(site, values):
            budget.spend(1)
            yield values, element


def shared_loops(first: Site, second: Site) -> tuple[ir.For | ir.HostFor, ...]:
    """The loops around both, outermost first."""
    result = []
    for own, other in zip(loops_of(first), loops_of(second), strict=False):
        if own is not other:
            break
        result.append(own)
    return tuple(result)


def first_difference(
    shared: Sequence[ir.For | ir.HostFor], one: Mapping[str, int], two: Mapping[str, int]
) -> ir.For | None:
    """The parallel loop in which two iterations first differ, if they do, and it is parallel."""
    for loop in shared:
        if one[loop.variable] != two[loop.variable]:
            return loop if isinstance(loop, ir.For) and loop.parallel else None
    return None


def iteration_of(site: Site, values: Values) -> dict[str, int]:
    """The loop variables around a site."""
    return {loop.variable: int(values[loop.variable]) for loop in loops_of(site)}


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
