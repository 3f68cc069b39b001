"""Independence of parallel iterations (LANGUAGE R7): none reads or writes what another writes.

Two accesses of one tensor in one phase, at least one a store, are compared in two iterations that
differ first in a parallel loop around both; the loops outside it agree, all inner ones are free.
Each such pair of systems must have no common element. Accesses that are all the same atomic may
meet anywhere. Nor may two lanes of one store write one element: which of them stays is not said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations_with_replacement, product

from sketchc.base import records
from sketchc.base.diagnostics import Label, error
from sketchc.checker.context.fixits import tile_index_fixes
from sketchc.checker.facts import (
    OPEN,
    RECHECKED,
    Fact,
    Finding,
    Footprint,
    Linear,
    Outcome,
    Prover,
    Site,
    Verdict,
    add,
    budget,
    concrete,
    constant,
    contested,
    counter_example,
    footprint,
    for_sizes,
    iteration,
    proved,
    resolve,
    scale,
    unproved,
    worst,
)
from sketchc.ir import nodes as ir
from sketchc.ir.show import assignments, element_text

_IN_ANY_ORDER = "parallel iterations may run in any order, or at once (R7)"
_PROMISE = "`unique=True` promises that no two lanes or iterations write one element (R7)"


def _refuted_pair(
    first: Site,
    second: Site,
    loop: ir.For,
    name: str,
    element: tuple[int, ...],
    example: ir.CounterExample,
) -> Finding:
    """The finding on two parallel iterations that touch one element; `example` lacks its text."""
    tensor = first.tensor.name
    one, two = map(assignments, example.iterations)
    touch = element_text(name, element)
    sizes = for_sizes({**example.symbols, **example.params})
    atomic = isinstance(first.statement, ir.Atomic) or isinstance(second.statement, ir.Atomic)
    notes: tuple[str, ...] = (_IN_ANY_ORDER,)
    help_text = "let every iteration work on elements of its own, or make the loop sequential"
    if second.stores:
        text = f"{sizes}iterations {one} and {two} both write {touch}"
        code, message = "SK0520", f"stores into `{tensor}` overlap across parallel iterations"
    else:
        text = f"{sizes}iteration {one} writes {touch}, which iteration {two} reads"
        code = "SK0521"
        message = f"`{tensor}` is read while it is written across parallel iterations"
    if atomic:
        code = "SK0524"
        message = f"`{tensor}` is updated atomically and accessed otherwise in one phase"
        notes = ("only accesses that are all the same atomic may meet (R7)",)
        help_text = "use the same atomic everywhere, or move the other access to a phase of its own"
    elif first is second and isinstance(first.statement, ir.Store) and first.statement.unique:
        code, message, notes = "SK0525", "the promise `unique=True` does not hold", (_PROMISE,)
    labels = [Label(loop.span, "these iterations run in parallel")]
    if second is not first:
        labels.append(Label(second.access.span, "the other access"))
    diagnostic = error(
        first.access.span,
        code,
        message,
        text,
        labels=tuple(labels),
        notes=notes,
        help=help_text,
        fixes=tile_index_fixes(first.loops[:1]),
    )
    return contested("independent", tensor, diagnostic, records.evolve(example, text=text))


def _repeated(
    sketch: ir.Sketch, site: Site, symbols: dict[str, int], values: concrete.Values
) -> Finding:
    """The finding on two lanes of one store that write one element at these numbers."""
    seen: dict[tuple[int, ...], tuple[int, ...]] = {}
    for element, lane in concrete.footprint(site, values):
        lanes = (seen.setdefault(element, lane), lane)
        if lanes[0] != lane:
            break
    where = concrete.iteration_of(site, values)
    at = f"in iteration {assignments(where)} " if where else ""
    both = " and ".join(str(lane[0] if len(lane) == 1 else lane) for lane in lanes)
    name = site.access.tensor
    params = concrete.named_params(sketch, (site,), {})
    told = f"{at}lanes {both} both write {element_text(name, element)}"
    place = concrete.base_element(sketch, name, element, concrete.host_sample(sketch, symbols))
    example = counter_example(symbols, params, (where, where), place, told)
    promised = isinstance(site.statement, ir.Store) and site.statement.unique
    diagnostic = error(
        site.access.span,
        "SK0525" if promised else "SK0526",
        "the promise `unique=True` does not hold"
        if promised
        else f"lanes of one store write the same element of `{site.tensor.name}`",
        example.text,
        notes=(_PROMISE,) if promised else ("which of the lanes stays is not defined (R7)",),
        help="give every lane an element of its own, or combine them with an atomic",
    )
    return contested("independent", site.tensor.name, diagnostic, example)


def _promise_taken(site: Site) -> Finding:
    """The finding on a store whose promise `unique=True` is taken for granted."""
    detail = "`unique=True` promises that no two lanes or iterations write one element"
    return proved("independent", site.tensor.name, detail, site.access.span, ir.Tier.ASSUMED)


def _unproved(first: Site, second: Site) -> Finding:
    """The finding on a pair that could be neither proved nor refuted."""
    name = first.tensor.name
    if first is second and from_memory(first):
        diagnostic = error(
            first.access.span,
            "SK0523",
            f"a store through loaded indices into `{name}` needs `unique=True`",
            "these indices come from memory",
            notes=("two of them may be equal, and nothing says which value stays (R7)",),
            help="promise `unique=True` if they never are, or use an atomic",
        )
        finding = contested("independent", name, diagnostic, detail=OPEN)
        return records.evolve(finding, testable=False)
    other = () if second is first else (Label(second.access.span, "against this access"),)
    advice = "access the tensor through one view, with slices like `i*T:(i+1)*T`"
    span = first.access.span
    return unproved("independent", name, span, advice, labels=other)


def from_memory(site: Site) -> bool:
    """Whether an index of the access is loaded or fetched."""
    fetched = {step.name for step in site.path if isinstance(step, ir.Fetch)}
    resolved = resolve(site)
    behind = (concrete.names_behind(index, site.scope) for index in resolved.indices)
    return resolved.loaded or any(names & fetched for names in behind)


@records.frozen
class Pair:
    """Two accesses and the elements that they touch, the second under renamed loop variables."""

    first: Site
    second: Site
    one: Footprint
    two: Footprint

    @staticmethod
    def of(prover: Prover, first: Site, second: Site) -> Pair:
        """The pair of two accesses of one phase."""
        one = footprint(first, prover.root)
        return Pair(first, second, one, footprint(second, prover.root, "'", fetched=""))

    @property
    def shared(self) -> tuple[ir.For | ir.HostFor, ...]:
        """The loops around both accesses, outermost first."""
        return concrete.shared_loops(self.first, self.second)

    @property
    def variables(self) -> tuple[int, ...]:
        """The counters of the loops around the first access, then around the second."""
        return (*self.one.scope.counters, *self.two.scope.counters)


def findings(prover: Prover, sites: Sequence[Site]) -> list[Finding]:
    """One verdict per tensor that is stored inside a parallel loop, or through index tiles."""
    result: list[Finding] = []
    groups: dict[tuple[str, int], list[Site]] = {}
    for site in sites:
        groups.setdefault((site.tensor.name, site.phase), []).append(site)
    for (name, _), group in groups.items():
        stores = [site for site in group if site.stores]
        if not any(_in_parallel(site) or _indexed(site) for site in stores):
            continue
        found = [
            finding
            for first, second in _pairs(group)
            for finding in _limited(_conflicts, prover, first, second)
        ]
        found += [
            finding
            for site in stores
            if isinstance(site.statement, ir.Store) and _indexed(site)
            for finding in _limited(_repeats, prover, site, site)
        ]
        if not found:
            words = "no two parallel iterations touch what one of them writes"
            if all(isinstance(site.statement, ir.Atomic) for site in group):
                words = "parallel iterations meet only in one atomic operation"
            found = [proved("independent", name, words, stores[0].access.span)]
        order = list(ir.Tier)
        result.append(max(found, key=lambda finding: order.index(finding.proof.tier)))
    return result


def _limited(
    judge: Callable[[Prover, Site, Site], Iterator[Finding]],
    prover: Prover,
    first: Site,
    second: Site,
) -> list[Finding]:
    """The failures of one pair, within the work that one claim may do."""
    return budget.claim(
        budget.CLAIM,
        lambda: list(judge(prover, first, second)),
        lambda: [_open(first, second)],
    )


def _open(first: Site, second: Site) -> Finding:
    """The finding on a pair that was neither proved nor refuted: a promise, or none."""
    if first is second and _promised(first):
        return _promise_taken(first)
    return _unproved(first, second)


def _in_parallel(site: Site) -> bool:
    return any(loop.parallel for loop in site.loops)


def _indexed(site: Site) -> bool:
    return any(isinstance(subscript, ir.IndexSubscript) for subscript in site.access.subscripts)


def _promised(site: Site) -> bool:
    return isinstance(site.statement, ir.Store) and site.statement.unique


def _unknowable(site: Site) -> bool:
    """Whether a promise is about values of data: no sizes refute it, so none are looked for."""
    return _promised(site) and from_memory(site)


def _pairs(group: Sequence[Site]) -> Iterator[tuple[Site, Site]]:
    """Pairs of accesses with at least one store, the store first; none of two equal atomics."""
    parallel = [site for site in group if _in_parallel(site)]
    for one, two in combinations_with_replacement(parallel, 2):
        if one.atomic is not None and one.atomic == two.atomic:
            continue
        if one.stores:
            yield one, two
        elif two.stores:
            yield two, one


def _conflicts(prover: Prover, first: Site, second: Site) -> Iterator[Finding]:
    """The finding on one pair of accesses, unless these are proved independent."""
    pair = Pair.of(prover, first, second)
    equal = _same_element(prover, pair)
    shared = pair.shared
    for depth, loop in enumerate(shared):
        if isinstance(loop, ir.HostFor) or not loop.parallel:
            continue
        outer = tuple(_gap(pair, other, equality=True) for other in shared[:depth])
        directions = (1,) if first is second else (1, -1)
        for direction in directions:
            ahead = Fact(add(scale(_gap(pair, loop).form, direction), constant(-1)))
            outcome = _refute(prover, pair, outer, (*equal, ahead))
            if outcome.verdict is Verdict.PROVED:
                continue
            finding = None
            if first is not second or not _unknowable(first):
                finding = budget.attempt(
                    RECHECKED, budget.RECHECK, None, _refuted, prover, pair, outcome
                ) or _enumerated(prover, pair)
            yield finding or _open(first, second)
            return


def _refute(prover: Prover, pair: Pair, outer: tuple[Fact, ...], goal: tuple[Fact, ...]) -> Outcome:
    """The worst outcome over the alternatives of both accesses."""
    known = {id(fact) for fact in pair.one.scope.facts}
    own = tuple(fact for fact in pair.two.scope.facts if id(fact) not in known)
    facts = (*pair.one.scope.facts, *own, *outer)
    search = pair.first is not pair.second or not _unknowable(pair.first)
    return worst(
        prover.refute((*facts, *one, *two), goal, pair.variables, search=search)
        for one, two in product(pair.one.cases, pair.two.cases)
    )


def _gap(pair: Pair, loop: ir.For | ir.HostFor, equality: bool = False) -> Fact:
    """The fact `second - first >= 0` (or `== 0`) for a loop variable in the two iterations."""
    first, second = pair.one.scope.forms[loop.variable], pair.two.scope.forms[loop.variable]
    return Fact(add(second, first, -1), equality)


def _same_element(prover: Prover, pair: Pair) -> tuple[Fact, ...]:
    """The facts that both accesses touch one element, or through views one position in memory."""
    one, two = pair.one, pair.two
    if pair.first.access.tensor == pair.second.access.tensor:
        same = [add(a, b, -1) for a, b in zip(one.indices, two.indices, strict=True)]
    else:
        positions = [
            _position(prover, site.access.tensor, touch.indices)
            for site, touch in ((pair.first, one), (pair.second, two))
        ]
        same = [add(positions[0], positions[1], -1)]
    return (*one.facts, *two.facts, *(Fact(form, equality=True) for form in same))


def _position(prover: Prover, name: str, indices: Sequence[Linear]) -> Linear:
    """The row-major position of an element."""
    position: Linear = {}
    for index, extent in zip(indices, prover.sketch.extents(name), strict=True):
        position = add(prover.atoms.multiply(position, prover.root.form(extent)), index)
    return position


def _refuted(prover: Prover, pair: Pair, outcome: Outcome) -> Finding | None:
    """The finding with its counter-example, once the numbers have been tried."""

    def failure(params: concrete.ParamValues, host: concrete.Values) -> Finding | None:
        one = iteration(pair.first.path, pair.one.scope, outcome.point, host)
        two = iteration(pair.second.path, pair.two.scope, outcome.point, host)
        return _failure(prover, pair, prover.sizes(outcome.point), one, two, params)

    return prover.shown(outcome, failure)


def _enumerated(prover: Prover, pair: Pair) -> Finding | None:
    """The finding on a conflict that small sizes show; None where they show none."""
    if pair.first.access.tensor != pair.second.access.tensor:
        return None
    found = concrete.conflicting_iterations(prover.sketch, pair.first, pair.second)
    return None if found is None else _failure(prover, pair, *found, {})


def _failure(
    prover: Prover,
    pair: Pair,
    symbols: dict[str, int],
    one: dict[str, int],
    two: dict[str, int],
    params: concrete.ParamValues,
) -> Finding | None:
    """The finding on a conflict at these numbers, or None where they show none."""
    sketch = prover.sketch
    params = concrete.named_params(sketch, (pair.first, pair.second), params)
    host = concrete.host_sample(sketch, {**symbols, **params})
    values = concrete.runs(pair.first, host, one)
    others = concrete.runs(pair.second, host, two)
    if values is None or others is None or not concrete.admissible(sketch, host):
        return None
    mine, theirs = concrete.box(pair.first, values), concrete.box(pair.second, others)
    name = pair.first.access.tensor
    if name == pair.second.access.tensor:
        element = mine.common(theirs)
    else:
        name = pair.first.tensor.name
        mine, theirs = (
            concrete.in_base(sketch, site.access.tensor, box, host)
            for site, box in ((pair.first, mine), (pair.second, theirs))
        )
        element = mine.common(theirs)
    loop = concrete.first_difference(pair.shared, one, two)
    if element is None or loop is None:
        return None
    place = concrete.base_element(sketch, name, element, host)
    example = ir.CounterExample(symbols, (one, two), place, params=params)
    return _refuted_pair(pair.first, pair.second, loop, name, element, example)


# ---------------------------------------------------------------- lanes of one store


def _repeats(prover: Prover, site: Site, _: Site) -> Iterator[Finding]:
    """The finding on a store of which two lanes may write one element."""
    one, two = footprint(site, prover.root), footprint(site, prover.root, tag="'")
    same = [
        Fact(add(a, b, -1), equality=True) for a, b in zip(one.indices, two.indices, strict=True)
    ]
    variables = (*one.scope.counters, *one.lanes, *two.lanes)
    for axis, (left, right) in enumerate(zip(one.lanes, two.lanes, strict=True)):
        ahead = [Fact({right: 1, left: -1, 0: -1})]
        before = zip(one.lanes[:axis], two.lanes[:axis], strict=True)
        ahead += [Fact({b: 1, a: -1}, equality=True) for a, b in before]
        facts = (*one.facts, *two.facts, *same, *ahead)
        outcomes = [
            prover.refute(
                (*one.scope.facts, *case, *other), facts, variables, search=not _unknowable(site)
            )
            for case, other in product(one.cases, two.cases)
        ]
        if all(outcome.verdict is Verdict.PROVED for outcome in outcomes):
            continue
        knowable = not _unknowable(site)
        found = concrete.repeating_iteration(prover.sketch, site) if knowable else None
        yield _open(site, site) if found is None else _repeated(prover.sketch, site, *found)
        return
