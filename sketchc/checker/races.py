"""Independence of parallel iterations (LANGUAGE R7): none reads or writes what another writes.

Two accesses of one tensor in one phase, at least one a store, are compared in two iterations that
differ first in a parallel loop around both; the loops outside it agree, all inner ones are free.
Each such pair of systems must have no common element.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement

from sketchc import ir
from sketchc import records as attrs
from sketchc.checker import concrete
from sketchc.checker.affine import Fact, Linear, add, constant, scale
from sketchc.checker.enumeration import conflicting_iterations
from sketchc.checker.prover import Outcome, Prover, Verdict, counters, iteration
from sketchc.checker.scope import Scope
from sketchc.checker.sites import Site, replay, touched
from sketchc.checker.strides import overlap_fixes
from sketchc.checker.verdicts import (
    UNDECIDED,
    Finding,
    assignments,
    element_text,
    for_sizes,
    severity,
)
from sketchc.diagnostics import Diagnostic, Label, Severity


@attrs.frozen
class Pair:
    """Two accesses with their scopes, the second under renamed loop variables."""

    first: Site
    second: Site
    scope: Scope
    renamed: Scope

    @property
    def shared(self) -> tuple[ir.For, ...]:
        """The loops around both, outermost first."""
        result = []
        for own, other in zip(self.first.loops, self.second.loops, strict=False):
            if own is not other:
                break
            result.append(own)
        return tuple(result)


def findings(prover: Prover, sites: Sequence[Site], allow_unproved: bool) -> list[Finding]:
    """One verdict per tensor that is stored inside a parallel loop, and one per failing pair."""
    result: list[Finding] = []
    groups: dict[tuple[str, int], list[Site]] = {}
    for site in sites:
        if any(loop.parallel for loop in site.loops):
            groups.setdefault((site.tensor.name, site.phase), []).append(site)
    for (name, _), group in groups.items():
        stores = [site for site in group if site.stores]
        if not stores:
            continue
        failures = [
            finding
            for first, second in _pairs(group)
            for finding in _conflicts(prover, first, second, allow_unproved)
        ]
        if not failures:
            words = "no two parallel iterations touch what one of them writes"
            proof = ir.Proof("independent", name, ir.Tier.PROVED, words, span=stores[0].access.span)
            failures = [Finding(proof)]
        result.extend(failures[:1])
    return result


def _pairs(group: Sequence[Site]) -> Iterator[tuple[Site, Site]]:
    """Pairs of accesses with at least one store, the store first."""
    for one, two in combinations_with_replacement(group, 2):
        if one.stores:
            yield one, two
        elif two.stores:
            yield two, one


def _conflicts(
    prover: Prover, first: Site, second: Site, allow_unproved: bool
) -> Iterator[Finding]:
    renamed = replay(prover.root, second.path, "'")
    pair = Pair(first, second, first.scope, renamed)
    equal = _same_element(prover, pair)
    shared = pair.shared
    for depth, loop in enumerate(shared):
        if not loop.parallel:
            continue
        outer = tuple(_gap(pair, other, equality=True) for other in shared[:depth])
        facts = (*pair.scope.facts, *_own_facts(pair), *outer)
        directions = (1,) if first is second else (1, -1)
        for direction in directions:
            ahead = Fact(add(scale(_gap(pair, loop).form, direction), constant(-1)))
            outcome = prover.refute(facts, (*equal, ahead), _variables(pair))
            if outcome.verdict is Verdict.PROVED:
                continue
            finding = _refuted(prover, pair, outcome)
            yield finding or _enumerated(prover, pair) or _unproved(pair, allow_unproved)
            return


def _own_facts(pair: Pair) -> tuple[Fact, ...]:
    """The renamed scope's facts that the first does not have already."""
    known = {id(fact) for fact in pair.scope.facts}
    return tuple(fact for fact in pair.renamed.facts if id(fact) not in known)


def _gap(pair: Pair, loop: ir.For, equality: bool = False) -> Fact:
    """second - first, of one loop variable."""
    first, second = pair.scope.forms[loop.variable], pair.renamed.forms[loop.variable]
    return Fact(add(second, first, -1), equality)


def _same_element(prover: Prover, pair: Pair) -> tuple[Fact, ...]:
    """Both accesses touch one element; through different views, one position in memory."""
    one = touched(pair.first, pair.scope)
    two = touched(pair.second, pair.renamed, "'")
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


def _variables(pair: Pair) -> tuple[int, ...]:
    return (*counters(pair.scope), *counters(pair.renamed))


def _refuted(prover: Prover, pair: Pair, outcome: Outcome) -> Finding | None:
    """The failure with its counter-example, once the numbers have been tried."""
    if outcome.verdict is not Verdict.REFUTED:
        return None
    symbols = prover.sizes(outcome.point)
    host = concrete.host_sample(prover.sketch, symbols)
    one = iteration(pair.first, pair.scope, outcome.point, host)
    two = iteration(pair.second, pair.renamed, outcome.point, host)
    return _failure(prover, pair, symbols, one, two)


def _enumerated(prover: Prover, pair: Pair) -> Finding | None:
    """The failure, where small sizes show one."""
    if pair.first.access.tensor != pair.second.access.tensor:
        return None
    found = conflicting_iterations(prover.sketch, pair.first, pair.second)
    return None if found is None else _failure(prover, pair, *found)


def _failure(
    prover: Prover, pair: Pair, symbols: dict[str, int], one: dict[str, int], two: dict[str, int]
) -> Finding | None:
    """The failure at these numbers, or None where it does not happen."""
    host = concrete.host_sample(prover.sketch, symbols)
    values = concrete.runs(pair.first, host, one)
    others = concrete.runs(pair.second, host, two)
    if values is None or others is None or not concrete.admissible(prover.sketch, host):
        return None
    name = pair.first.access.tensor
    if name != pair.second.access.tensor:
        return None
    element = _common(concrete.box(pair.first, values), concrete.box(pair.second, others))
    differ = [loop for loop in pair.shared if one[loop.variable] != two[loop.variable]]
    if element is None or not differ or not differ[0].parallel:
        return None
    place = concrete.base_element(prover.sketch, name, element, host)
    touch = element_text(name, element)
    if pair.second.stores:
        text = (
            f"{for_sizes(symbols)}iterations {assignments(one)} and {assignments(two)} "
            f"both write {touch}"
        )
        code, message = "SK0520", f"stores into `{pair.first.tensor.name}` overlap"
    else:
        text = (
            f"{for_sizes(symbols)}iteration {assignments(one)} writes {touch}, "
            f"which iteration {assignments(two)} reads"
        )
        code, message = "SK0521", f"`{pair.first.tensor.name}` is read while it is written"
    example = ir.CounterExample(symbols, (one, two), place, text)
    labels = [Label(differ[0].span, "these iterations run in parallel")]
    if pair.second is not pair.first:
        labels.append(Label(pair.second.access.span, "the other access"))
    span = pair.first.access.span
    diagnostic = Diagnostic(
        code,
        Severity.ERROR,
        f"{message} across parallel iterations",
        span,
        text,
        tuple(labels),
        notes=("parallel iterations may run in any order, or at once (R7)",),
        help="let every iteration work on elements of its own, or make the loop sequential",
        fixes=overlap_fixes(pair.first),
    )
    subject = pair.first.tensor.name
    proof = ir.Proof("independent", subject, ir.Tier.REFUTED, text, example, span=span)
    return Finding(proof, (diagnostic,))


def _common(one: concrete.Box, two: concrete.Box) -> tuple[int, ...] | None:
    """The first element in both boxes."""
    element = []
    for own, other in zip(one.ranges, two.ranges, strict=True):
        start = max(own.start, other.start)
        if start >= min(own.stop, other.stop):
            return None
        element.append(start)
    return tuple(element)


def _unproved(pair: Pair, allow_unproved: bool) -> Finding:
    name = pair.first.tensor.name
    span = pair.first.access.span
    detail = "could be neither proved nor refuted"
    diagnostic = Diagnostic(
        "SK0522",
        severity(allow_unproved),
        f"cannot prove that parallel iterations are independent in `{name}`",
        span,
        detail,
        (Label(pair.second.access.span, "against this access"),)
        if pair.second is not pair.first
        else (),
        notes=(UNDECIDED,),
        help="access the tensor through one view, with slices like `i*T:(i+1)*T`",
    )
    proof = ir.Proof("independent", name, ir.Tier.UNPROVED, detail, span=span)
    return Finding(proof, (diagnostic,))
