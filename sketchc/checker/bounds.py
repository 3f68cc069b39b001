"""Bounds of one tile axis: which lanes an access may touch, and which bounds say anything new.

All take the `Scope` of the statement, in which implied bounds are recognised: a bound that follows
from `0 <= j < extent` and the bounds already kept is dropped, so that an empty `AxisDomain` means
no mask.
"""

from __future__ import annotations

from collections.abc import Iterable

from sketchc import ir
from sketchc.checker.affine import Fact, Linear, add, constant
from sketchc.checker.scope import Scope
from sketchc.symbolic import simplify

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


def slice_domain(
    scope: Scope, subscript: ir.SliceSubscript, tensor_extent: ir.Expr, tile_extent: ir.Expr
) -> ir.AxisDomain:
    """The lanes j of `lower:upper` that lie inside the slice and inside the tensor (R1): j < upper
    - lower and 0 <= lower + j < tensor_extent. An axis `M|1` is judged by M: where its extent is 1
    every lane reads element 0, so the same lanes are wanted."""
    start = simplify(subscript.lower)
    upper = [] if subscript.exact else _minima(subscript.upper)
    bounds = [simplify(ir.Binary("-", bound, start)) for bound in (*upper, tensor_extent)]
    lower = () if scope.proves(scope.form(start)) else (simplify(ir.Unary("-", start)),)
    candidates = [ir.AxisDomain(lower)]
    candidates += [ir.AxisDomain((), (bound,)) for bound in bounds]
    return minimal(scope, candidates, tile_extent)


def _minima(bound: ir.Expr) -> list[ir.Expr]:
    """`min(a, b)` as an upper bound is both bounds."""
    if isinstance(bound, ir.Binary) and bound.operator == "min":
        return [*_minima(bound.left), *_minima(bound.right)]
    return [bound]


def access_domain(scope: Scope, access: ir.Access, sketch: ir.Sketch, tile: ir.Tile) -> ir.Domain:
    """The lanes of `tile` that an access may touch, one `AxisDomain` per tile axis."""
    slices = [
        (subscript, extent)
        for subscript, extent in zip(access.subscripts, sketch.extents(access.tensor), strict=True)
        if isinstance(subscript, ir.SliceSubscript)
    ]
    if not slices:
        return tuple(ir.FULL for _ in tile.extents)
    return tuple(
        slice_domain(scope, subscript, extent, tile_extent)
        for (subscript, extent), tile_extent in zip(slices, tile.extents, strict=True)
    )
