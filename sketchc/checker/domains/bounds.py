"""Bounds of one tile axis: which lanes an access may touch, and which bounds say anything new.

All take the `Scope` of the statement, in which implied bounds are recognised: a bound that follows
from `0 <= j < extent` and the bounds already kept is dropped, so that an empty `AxisDomain` means
no mask.
"""

from __future__ import annotations

from collections.abc import Iterable

from sketchc.checker.facts.affine import Fact, Linear, add, constant, scale
from sketchc.checker.facts.scope import Scope
from sketchc.ir import nodes as ir
from sketchc.ir.symbolic import simplify

_LANE = "'lane"


def _lane_facts(scope: Scope, extent: ir.Expr) -> tuple[Linear, tuple[Fact, ...]]:
    """The lane variable j, and 0 <= j < extent."""
    lane = {scope.atoms.variable(_LANE, non_negative=True): 1}
    last = add(add(scope.form(extent), lane, -1), constant(-1))
    return lane, (Fact(lane), Fact(last))


def _kept_facts(scope: Scope, lane: Linear, domain: ir.AxisDomain) -> tuple[Fact, ...]:
    lower = (Fact(add(lane, scope.form(bound), -1)) for bound in domain.lower)
    upper = (Fact(add(add(scope.form(bound), lane, -1), constant(-1))) for bound in domain.upper)
    return (*lower, *upper)


def _upper_implied(
    scope: Scope, bound: ir.Expr, kept: tuple[ir.Expr, ...], extent: ir.Expr, lower: ir.AxisDomain
) -> bool:
    """Every lane below the extent and the kept bounds is below `bound`."""
    form = scope.form(bound)
    if any(form == scope.form(other) for other in kept):
        return True
    if scope.proves(add(form, scope.form(extent), -1)):
        return True
    if not kept:
        return False
    lane, facts = _lane_facts(scope, extent)
    known = _kept_facts(scope, lane, ir.AxisDomain(lower.lower, kept))
    return scope.refutes((*facts, *known, Fact(add(lane, form, -1))))


def _lower_implied(scope: Scope, bound: ir.Expr, kept: tuple[ir.Expr, ...]) -> bool:
    form = scope.form(bound)
    if any(scope.proves(add(scope.form(other), form, -1)) for other in kept):
        return True
    return scope.proves({atom: -c for atom, c in form.items()})


def minimal(scope: Scope, domains: Iterable[ir.AxisDomain], extent: ir.Expr) -> ir.AxisDomain:
    """The intersection of axis domains over lanes 0..extent-1, each bound once, none implied."""
    lower: tuple[ir.Expr, ...] = ()
    upper: tuple[ir.Expr, ...] = ()
    for domain in domains:
        for bound in domain.lower:
            if not _lower_implied(scope, bound, lower):
                lower = (*(b for b in lower if not _lower_implied(scope, b, (bound,))), bound)
        for bound in domain.upper:
            rest = ir.AxisDomain(lower)
            if not _upper_implied(scope, bound, upper, extent, rest):
                upper = (
                    *(b for b in upper if not _upper_implied(scope, b, (bound,), extent, rest)),
                    bound,
                )
    return ir.AxisDomain(lower, upper)


def covers(scope: Scope, outer: ir.AxisDomain, inner: ir.AxisDomain, extent: ir.Expr) -> bool:
    """True when every lane of `inner` is provably a lane of `outer`."""
    if outer == inner or outer.full:
        return True
    return all(
        _upper_implied(scope, bound, inner.upper, extent, inner) for bound in outer.upper
    ) and all(_lower_implied(scope, bound, inner.lower) for bound in outer.lower)


def slice_bounds(
    scope: Scope, subscript: ir.SliceSubscript, extent: ir.Expr
) -> tuple[ir.AxisDomain, ...] | None:
    """The lanes j of `lower:upper:step` (R1), whose element is `lower + j*step`: those inside the
    slice, then those inside a tensor with this extent (lower bounds, then upper). An axis `M|1` is
    judged by M: where its extent is 1 every lane reads element 0, so the same lanes are wanted.

    None where the sign of `step` is not known.
    """
    start, step = simplify(subscript.lower), simplify(subscript.step)
    form = scope.form(step)
    if not scope.proves(add(form, constant(-1))):
        if not scope.proves(add(scale(form, -1), constant(-1))):
            return None
        return _downward(scope, subscript, start, simplify(ir.Unary("-", step)), extent)
    upper = [] if subscript.exact else _extrema(subscript.upper, "min")
    within = [_count(ir.Binary("-", bound, start), step) for bound in upper]
    last = _count(ir.Binary("-", extent, start), step)
    first = () if scope.proves(scope.form(start)) else (_count(ir.Unary("-", start), step),)
    return ir.AxisDomain((), tuple(within)), ir.AxisDomain(first), ir.AxisDomain((), (last,))


def _downward(
    scope: Scope, subscript: ir.SliceSubscript, start: ir.Expr, length: ir.Expr, extent: ir.Expr
) -> tuple[ir.AxisDomain, ...]:
    """`slice_bounds` for a step of `-length`."""
    stops = [] if subscript.exact else _extrema(subscript.upper, "max")
    within = [_count(ir.Binary("-", start, stop), length) for stop in stops]
    last = _count(ir.Binary("+", start, ir.Literal(1)), length)
    over = simplify(ir.Binary("-", ir.Binary("+", start, ir.Literal(1)), extent))
    below = scope.proves(scale(scope.form(over), -1))
    first = () if below else (_count(over, length),)
    return ir.AxisDomain((), tuple(within)), ir.AxisDomain(first), ir.AxisDomain((), (last,))


def _count(distance: ir.Expr, step: ir.Expr) -> ir.Expr:
    """How many steps reach at least `distance`: cdiv, written with a floor quotient."""
    if step == ir.Literal(1):
        return simplify(distance)
    short = ir.Binary("-", distance, ir.Literal(1))
    return simplify(ir.Binary("+", ir.Binary("//", simplify(short), step), ir.Literal(1)))


def _extrema(bound: ir.Expr, operator: str) -> list[ir.Expr]:
    """`min(a, b)` as an upper bound is both bounds."""
    if isinstance(bound, ir.Binary) and bound.operator == operator:
        return [*_extrema(bound.left, operator), *_extrema(bound.right, operator)]
    return [bound]
