"""Counter-examples by trying small sizes, for claims that no decision procedure settles.

Products of loop variables are beyond isl, but a claim about them that is wrong is mostly wrong at
small sizes already. Nothing is ever proved here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, product
from typing import TypeVar

from sketchc.checker.facts import budget, concrete
from sketchc.checker.facts.concrete import Untried, Values
from sketchc.checker.facts.sites import Site, loops_of
from sketchc.checker.facts.tied import ties, with_ties
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import evaluate

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


def failing_iteration(
    sketch: ir.Sketch, site: Site, fails: Callable[[Values], bool]
) -> tuple[dict[str, int], dict[str, int]] | None:
    """Sizes and an iteration of `site` at which `fails` holds."""
    found = _failing(sketch, site, fails)
    return None if found is None else (found[0], iteration_of(site, found[1]))


def repeating_iteration(sketch: ir.Sketch, site: Site) -> tuple[dict[str, int], Values] | None:
    """Sizes and an iteration in which two lanes of `site` touch one element."""

    def repeats(values: Values) -> bool:
        elements = [element for element, _ in concrete.touches(site, values)]
        return len(set(elements)) < len(elements)

    return _failing(sketch, site, repeats)


def _failing(
    sketch: ir.Sketch, site: Site, fails: Callable[[Values], bool]
) -> tuple[dict[str, int], Values] | None:
    return _searched(lambda: _first_failure(sketch, site, fails))


def _searched(search: Callable[[], Found | None]) -> Found | None:
    """What a search among small sizes finds, with the work that it may do."""
    found = budget.attempt(_STOPPED, budget.SEARCH, search, lambda: None)
    if found is None:
        budget.note(_IN_VAIN)
    return found


def _first_failure(
    sketch: ir.Sketch, site: Site, fails: Callable[[Values], bool]
) -> tuple[dict[str, int], Values] | None:
    for symbols, host in admissible_hosts(sketch):
        try:
            for values in concrete.iterations(site, host):
                if fails(values):
                    return symbols, values
        except (Untried, ArithmeticError, KeyError):
            continue
    return None


def unwritten_element(
    sketch: ir.Sketch, stores: Sequence[Site], extents: Sequence[ir.Expr]
) -> tuple[dict[str, int], tuple[int, ...]] | None:
    """Sizes and an element that no store writes; all stores are through one tensor or view."""
    return _searched(lambda: _first_unwritten(sketch, stores, extents))


def _first_unwritten(
    sketch: ir.Sketch, stores: Sequence[Site], extents: Sequence[ir.Expr]
) -> tuple[dict[str, int], tuple[int, ...]] | None:
    for symbols, host in admissible_hosts(sketch):
        try:
            written = {
                element
                for store in stores
                for values in concrete.iterations(store, host)
                for element in _elements(store, values)
            }
            shape = [int(evaluate(extent, host)) for extent in extents]
            budget.spend(sum(shape))
            for element in product(*(range(extent) for extent in shape)):
                budget.spend(1)
                if element not in written:
                    return symbols, element
        except (Untried, ArithmeticError, KeyError):
            continue
    return None


def conflicting_iterations(
    sketch: ir.Sketch, first: Site, second: Site
) -> tuple[dict[str, int], dict[str, int], dict[str, int]] | None:
    """Sizes and iterations of two accesses that touch one element and first differ in a parallel
    loop around both."""
    return _searched(lambda: _first_conflict(sketch, first, second))


def _first_conflict(
    sketch: ir.Sketch, first: Site, second: Site
) -> tuple[dict[str, int], dict[str, int], dict[str, int]] | None:
    shared = shared_loops(first, second)
    for symbols, host in admissible_hosts(sketch):
        touched: dict[tuple[int, ...], list[dict[str, int]]] = {}
        try:
            for values in concrete.iterations(first, host):
                for element in _elements(first, values):
                    touched.setdefault(element, []).append(iteration_of(first, values))
            for values in concrete.iterations(second, host):
                here = iteration_of(second, values)
                for element in _elements(second, values):
                    for there in touched.get(element, ()):
                        budget.spend(1)
                        if first_difference(shared, there, here) is not None:
                            return symbols, there, here
        except (Untried, ArithmeticError, KeyError):
            continue
    return None


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


def _elements(site: Site, values: Values) -> Iterator[tuple[int, ...]]:
    """The elements that an access touches, each a step."""
    for element in concrete.box(site, values):
        budget.spend(1)
        yield element
