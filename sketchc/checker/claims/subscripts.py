"""Claims about single accesses: scalar subscripts in range (R13), slices that fit their tile (R1).

A claim `left <= right` that does not hold for all sizes becomes a launch check over host scalars if
some sizes of at least 2 satisfy it; otherwise it is refuted with a concrete iteration.

Tile extents are not negative (proved, or checked at launch), and divisors that the host does not
know, as `min(GM - first, G)` in a grouped order of tiles, must be proved at least 1 (SK0314).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

from sketchc.base import records
from sketchc.base.diagnostics import Diagnostic, Span, error
from sketchc.checker.context.context import in_phase
from sketchc.checker.domains.bounds import is_loaded
from sketchc.checker.facts import (
    ONE,
    OPEN,
    Branch,
    Fact,
    Finding,
    Outcome,
    Prover,
    Scope,
    Site,
    Verdict,
    add,
    budget,
    concrete,
    constant,
    constant_value,
    contested,
    counter_example,
    in_iteration,
    inlined,
    iteration,
    lane_name,
    monotonicity,
    placed,
    pointwise,
    proved,
    proves,
    root_scope,
    scale,
    unproved,
)
from sketchc.ir import guards, walk
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import Value, evaluate
from sketchc.ir.show import element_text, show
from sketchc.ir.symbolic import simplify
from sketchc.ir.walk import element_indices, expressions, has_lanes, names, references, substitute


@records.frozen
class Goal:
    """`left <= right` must hold whenever the site runs. `axis` is the tensor's."""

    claim: str
    left: ir.Expr
    right: ir.Expr
    axis: int
    span: Span


def goals(prover: Prover, site: Site) -> Iterator[Goal]:
    """The goals of one access. An axis `M|1` is judged by M."""
    extents = prover.sketch.extents(site.access.tensor)
    tile = iter(site.tile.extents)
    for axis, (subscript, extent) in enumerate(zip(site.access.subscripts, extents, strict=True)):
        if isinstance(subscript, ir.ScalarSubscript):
            index = subscript.index
            last = ir.Binary("-", extent, ir.Literal(1))
            yield Goal("in-bounds", ir.Literal(0), index, axis, index.span)
            yield Goal("in-bounds", index, last, axis, index.span)
            continue
        if isinstance(subscript, ir.IndexSubscript):
            # Lanes of index tiles are bounded, guarded or refused when domains are inferred.
            if subscript.axis is not None:
                next(tile)
            continue
        wanted = next(tile)
        if not subscript.exact:
            span = subscript.lower.span.to(subscript.upper.span)
            length = _length(site, subscript)
            yield Goal("slice-fits", length, wanted, axis, span)


def _length(site: Site, subscript: ir.SliceSubscript) -> ir.Expr:
    """How many elements a slice has; below zero where it ends before it begins, and is empty."""
    lower, upper, step = subscript.lower, subscript.upper, subscript.step
    if not site.scope.proves(site.scope.form(step)):
        lower, upper, step = upper, lower, ir.Unary("-", step)
    length = ir.Binary("-", upper, lower)
    return simplify(length if step == ir.Literal(1) else ir.Binary("cdiv", length, step))


def findings(prover: Prover, sites: Sequence[Site]) -> list[Finding]:
    """One proof per claim and tensor, and one more for each failure or launch check."""
    result: list[Finding] = []
    for claim in ("in-bounds", "slice-fits"):
        groups: dict[str, list[Site]] = {}
        for site in sites:
            groups.setdefault(site.access.tensor, []).append(site)
        for name, group in groups.items():
            result.extend(_group(prover, claim, name, group))
    return result


def _group(prover: Prover, claim: str, name: str, sites: Sequence[Site]) -> Iterable[Finding]:
    if claim == "in-bounds":
        yield from _index_tiles(name, sites)
    failures: list[Finding] = []
    count = 0
    for site in sites:
        for goal in goals(prover, site):
            if goal.claim != claim:
                continue
            count += 1
            decide = partial(_decide, prover, site, goal)
            finding = budget.claim(budget.CLAIM, decide, partial(_unproved, site, goal))
            if finding is not None:
                failures.append(finding)
    if count > len(failures):
        words = (
            "scalar subscripts stay inside" if claim == "in-bounds" else "slices fit their tiles"
        )
        yield proved(claim, name, words, sites[0].access.span)
    seen: set[tuple[Span, str]] = set()
    for finding in failures:
        key = (finding.proof.span, finding.proof.detail)
        if key not in seen:
            seen.add(key)
            yield finding


def _index_tiles(name: str, sites: Sequence[Site]) -> Iterator[Finding]:
    """The findings on index tiles among the subscripts of a tensor, settled by domain inference."""
    for loaded in (False, True):
        subject = [
            site
            for site in sites
            if not isinstance(site.statement, ir.Fetch)
            and any(
                is_loaded(site.scope, part) == loaded
                for part in site.access.subscripts
                if loaded or isinstance(part, ir.IndexSubscript)
            )
        ]
        if not subject:
            continue
        words = "index tiles stay inside"
        if loaded:
            # Whatever the data, no element outside is touched: that is the claim (R13). An index
            # out of range is an error of the interpreter's, not of the sketch.
            words = "lanes whose indices from memory leave the tensor are masked"
        elif any(site.guards for site in subject):
            words = "lanes whose indices leave the tensor are masked"
        yield proved("in-bounds", name, words, subject[0].access.span)


def _decide(prover: Prover, site: Site, goal: Goal) -> Finding | None:
    """The finding on a goal where the access takes place; None where the goal is proved."""
    scope = site.scope
    for guard in site.guards:
        if not has_lanes(guard, scope.bindings):
            scope = scope.given(guard)
    gap = add(scope.form(goal.right), scope.form(goal.left), -1)
    if scope.proves(gap):
        return None
    violated = Fact(add(scale(gap, -1), constant(-1)))
    outcome = prover.refute(scope.facts, (violated,), scope.counters)
    if outcome.verdict is Verdict.PROVED:
        return None
    condition = _launch_condition(prover, site, goal)
    if condition is not None:
        text = show(condition)
        require = ir.Require(condition, text, generated=True, span=goal.span)
        detail = f"holds when `{text}`, which the host checks"
        tier = ir.Tier.CHECKED_AT_LAUNCH
        return proved(goal.claim, site.access.tensor, detail, goal.span, tier, (require,))
    return (
        _refuted(prover, site, goal, outcome)
        or _enumerated(prover, site, goal)
        or _unproved(site, goal)
    )


def _launch_condition(prover: Prover, site: Site, goal: Goal) -> ir.Expr | None:
    """`left <= right` at the worst iteration, over host scalars; None where there is no plain worst
    iteration, or no sizes of at least 2 satisfy it."""
    root = prover.root
    worst = _least(simplify(ir.Binary("-", goal.right, goal.left)), site.scope)
    if worst is None or names(worst) - root.forms.keys():
        return None
    large = [Fact({atom: 1, ONE: -2}) for atom in prover.symbols.values()]
    satisfied = Fact(root.form(worst))
    if root.refutes((*large, satisfied)):
        return None
    if prover.search((*root.facts, *large, satisfied), ()).verdict is Verdict.PROVED:
        return None
    return _where_reached(prover, site, _as_comparison(worst))


def _least(expression: ir.Expr, scope: Scope) -> ir.Expr | None:
    """The least value over all loops, those of the host included, as an expression without their
    variables; None where it has no plain slope. Never above the true minimum: the last iteration
    is taken to reach the last integer before `stop`."""
    result = inlined(expression, scope)
    loops: tuple[ir.For | ir.HostFor, ...] = (*scope.hosts, *scope.loops)
    for loop in reversed(loops):
        if loop.variable not in names(result):
            continue
        sign = monotonicity(scope.form(result), scope.counter(loop), scope)
        stride = constant_value(scope.form(loop.step))
        if sign is None or stride is None:
            return None
        last = ir.Binary("-", loop.stop, ir.Literal(1 if stride > 0 else -1))
        value = loop.start if sign > 0 else last
        result = simplify(substitute(result, {loop.variable: value}))
    return result


def _where_reached(prover: Prover, site: Site, condition: ir.Expr) -> ir.Expr | None:
    """The condition, needed only where the branches around the site are taken; None where the host
    does not know whether they are. (Of a branch that asks for `present(X)`, the parts that the host
    does not know count as true.)"""
    known: list[ir.Expr] = []
    for step in site.path:
        if not isinstance(step, Branch):
            continue
        asks = _present(step.condition)
        for part in guards.consequences(step.condition, step.holds):
            if not names(part) - prover.root.forms.keys() - _present(part):
                known.append(part)
            elif not asks:
                return None
    return guards.where(tuple(known), condition)


def _present(condition: ir.Expr) -> frozenset[str]:
    """The optional tensors that a condition asks for."""
    names = references(condition)
    return frozenset(name.name for name in names if name.kind is ir.NameKind.PRESENT)


def _as_comparison(gap: ir.Expr) -> ir.Expr:
    """`gap >= 0` with the subtracted terms on the left: `K <= N`, `i < M`."""
    match gap:
        case ir.Binary("-", ir.Binary("-", left, right), ir.Literal(1)):
            return ir.Binary("<", right, left)
        case ir.Binary("-", left, ir.Literal(int(value))):
            return ir.Binary("<", ir.Literal(value - 1), left)
        case ir.Binary("-", left, right):
            return ir.Binary("<=", right, left)
        case _:
            return ir.Binary("<=", ir.Literal(0), gap)


def _refuted(prover: Prover, site: Site, goal: Goal, outcome: Outcome) -> Finding | None:
    """The finding with its counter-example, once the numbers have been tried; None for loops whose
    bounds come from memory, which have no numbers to show."""

    def failure(params: concrete.ParamValues, host: concrete.Values) -> Finding | None:
        if not concrete.admissible(prover.sketch, host):
            return None
        where = iteration(site.path, site.scope, outcome.point, host)
        return _failure(prover, site, goal, prover.sizes(outcome.point), where, params)

    return prover.shown(outcome, failure)


def _enumerated(prover: Prover, site: Site, goal: Goal) -> Finding | None:
    """The finding on a failure that small sizes show; None where they show none."""
    found = concrete.failing_iteration(
        prover.sketch, site, lambda values: _fails(site, goal, values)
    )
    if found is None:
        return None
    return _failure(prover, site, goal, found[0], concrete.iteration_of(site, found[1]), {})


def _failure(
    prover: Prover,
    site: Site,
    goal: Goal,
    symbols: dict[str, int],
    where: dict[str, int],
    params: concrete.ParamValues,
) -> Finding | None:
    """The finding on a failure at these numbers, or None where the goal holds there."""
    params = concrete.named_params(prover.sketch, (site,), params)
    host = concrete.host_sample(prover.sketch, {**symbols, **params})
    values = concrete.runs(site, host, where)
    if values is None or not _fails(site, goal, values):
        return None
    name = site.access.tensor
    extent = evaluate(prover.sketch.extents(name)[goal.axis], values)
    at = in_iteration(where, "writes" if site.stores else "reads")
    element: tuple[int, ...] = ()
    if goal.claim == "in-bounds":
        element = _element(site, values)
        touched = element_text(name, element)
        told = f"{at} {touched}, but axis {goal.axis} of `{name}` has extent {extent}"
        code, message = "SK0501", f"subscript {goal.axis} of `{name}` leaves the tensor"
        notes: tuple[str, ...] = ("scalar subscripts are never clamped or wrapped (R13)",)
        advice = "change the range of the loop, or the subscript"
    else:
        length = evaluate(goal.left, values)
        limit = evaluate(site.tile.extents[_tile_axis(site, goal.axis)], values)
        told = (
            f"{at} a slice of length {length} of `{name}` into an axis of extent {limit} "
            f"of `{site.tile.source_name}`"
        )
        code, message = "SK0503", f"the slice does not fit the tile `{site.tile.source_name}`"
        notes = ("a slice is at most as long as the tile's axis (R1)",)
        advice = "make the tile as long as the slice, or shorten the slice"
    example = counter_example(symbols, params, (where,), element, told)
    diagnostic = error(goal.span, code, message, example.text, notes=notes, help=advice)
    return contested(goal.claim, name, diagnostic, example)


def _fails(site: Site, goal: Goal, values: Mapping[str, Value]) -> bool:
    """Whether the access takes place with these values and the goal does not hold. (A guard over a
    fetched value counts as true.)"""
    for guard in site.guards:
        if has_lanes(guard, site.scope.bindings):
            continue
        with suppress(KeyError):
            if not evaluate(guard, values):
                return False
    try:
        return evaluate(goal.left, values) > evaluate(goal.right, values)
    except KeyError:  # what the goal is about was fetched
        return False


def _element(site: Site, values: concrete.Values) -> tuple[int, ...]:
    """The element that lane 0 touches, () where that depends on what is in memory."""
    extents, bindings = site.tile.extents, site.scope.bindings
    first = {**values, **{lane_name(axis): 0 for axis in range(len(extents))}}
    indices = (
        pointwise(index, extents, bindings) for index in element_indices(site.access, extents)
    )
    try:
        return tuple(int(evaluate(index, first)) for index in indices)
    except KeyError:
        return ()


def _tile_axis(site: Site, axis: int) -> int:
    """The axis of the tile for an axis of the tensor that a slice subscripts."""
    return sum(
        isinstance(subscript, ir.SliceSubscript)
        or (isinstance(subscript, ir.IndexSubscript) and subscript.axis is not None)
        for subscript in site.access.subscripts[:axis]
    )


def _unproved(site: Site, goal: Goal) -> Finding:
    name = site.access.tensor
    claim = f"{show(simplify(goal.left))} <= {show(simplify(goal.right))}"
    message = f"cannot prove that the slice of `{name}` fits its tile"
    if goal.claim == "in-bounds":
        message = f"cannot prove that the subscript of `{name}` stays inside"
    advice, label = "state what makes it true in a `require:`", f"`{claim}` {OPEN}"
    return unproved(goal.claim, name, goal.span, advice, message, label)


def extent_findings(prover: Prover) -> list[Finding]:
    """One launch check for each extent of host scalars that some sizes would make negative."""
    tiles = {tile.name: tile for tile in prover.sketch.tiles}
    result: dict[str, Finding] = {}
    for statement, scope, _, _ in placed(prover.sketch, prover.root):
        if not isinstance(statement, ir.Alloc):
            continue
        name = statement.tile
        variables = scope.forms.keys() - prover.root.forms.keys()
        for extent in tiles[name].extents:
            if scope.proves(scope.form(extent)) or names(extent) & variables:
                continue
            condition = ir.Binary("<=", ir.Literal(0), extent)
            text = show(condition)
            detail = f"extents are not negative when `{text}`, which the host checks"
            span = tiles[name].span
            require = ir.Require(condition, text, generated=True, span=span)
            tier, tile = ir.Tier.CHECKED_AT_LAUNCH, tiles[name].source_name
            finding = proved("slice-fits", tile, detail, span, tier, (require,))
            result.setdefault(text, finding)
    return list(result.values())


def divisor_findings(sketch: ir.Sketch) -> tuple[Diagnostic, ...]:
    """An error for each divisor in a launch that may be less than 1. What depends on symbols and
    params alone is checked at launch; what depends on loop variables must follow from their ranges.
    """
    found = (
        diagnostic
        for statement, scope, _, _ in placed(sketch, root_scope(sketch))
        for value in expressions(statement)
        for diagnostic in _divisors(value, statement, scope)
    )
    return tuple(dict.fromkeys(found))


def _divisors(value: ir.Expr, statement: ir.Statement, scope: Scope) -> Iterator[Diagnostic]:
    for child in walk.children(value):
        yield from _divisors(child, statement, scope)
    if not (isinstance(value, ir.Binary) and value.operator in ("//", "%", "cdiv")):
        return
    divisor = value.right
    if not in_phase(divisor) or has_lanes(divisor, scope.bindings):
        return  # the host checks it, or elaboration has refused it
    if proves(scope, add(scope.form(divisor), constant(-1))):
        return
    yield error(
        value.span if value.span.end else statement.span,
        "SK0314",
        f"the divisor `{show(divisor)}` may be less than 1",
        "not provably at least 1 here",
        notes=("nothing checks it at launch, since it depends on a loop variable",),
        help=f"bound the loop so that it is, or divide by `max({show(divisor)}, 1)`",
    )
