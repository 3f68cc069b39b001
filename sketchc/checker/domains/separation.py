"""Conditions on one lane as bounds of one axis: `2*iota + i*T < N` says `lane < (N - i*T - 1)//2 +
1`.

A condition separates when it compares expressions in which one axis' lane occurs, times something
of known sign: it then is an interval of that axis (LANGUAGE R5). Quotients unfold: `(lane + m) //
P < N` is `lane + m < N*P`, for P >= 1 (which every divisor is).
"""

from __future__ import annotations

from collections.abc import Iterator

from sketchc.base import records
from sketchc.checker.facts.affine import add, constant, constant_value, scale
from sketchc.checker.facts.lane_forms import Lanes, lane_name
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic, walk
from sketchc.ir.symbolic import OPPOSITE, Polynomial, normalize, rebuild, simplify


@records.frozen
class Separated:
    """A condition as an interval of one axis."""

    axis: int
    domain: ir.AxisDomain


@records.frozen
class Conjunct:
    """One of the conditions that must all hold: as it is written, and for one lane, as values that
    must not be negative (None where it is no comparison)."""

    written: ir.Expr
    gaps: tuple[ir.Expr, ...] | None


def conjuncts(lanes: Lanes, condition: ir.Expr, holds: bool = True) -> Iterator[Conjunct]:
    """The parts of a predicate that must all hold."""
    match condition:
        case ir.Unary("not", operand):
            yield from conjuncts(lanes, operand, not holds)
        case ir.Binary("and" | "or" as operator, left, right) if (operator == "and") == holds:
            yield from conjuncts(lanes, left, holds)
            yield from conjuncts(lanes, right, holds)
        case _:
            written = condition if holds else symbolic.negated(condition)
            yield Conjunct(written, gaps(lanes.pointwise(condition), holds))


def gaps(condition: ir.Expr, holds: bool = True) -> tuple[ir.Expr, ...] | None:
    """A condition without lanes of its own as values that must all be >= 0; None where it is not a
    conjunction of integer comparisons."""
    match condition:
        case ir.Unary("not", operand):
            return gaps(operand, not holds)
        case ir.Binary("and" | "or" as operator, left, right) if (operator == "and") == holds:
            one, two = gaps(left, holds), gaps(right, holds)
            return None if one is None or two is None else (*one, *two)
        case ir.Binary(operator, left, right) if operator in OPPOSITE:
            relation = operator if holds else OPPOSITE[operator]
            return _comparison(relation, left, right)
        case _:
            return None


def _comparison(relation: str, left: ir.Expr, right: ir.Expr) -> tuple[ir.Expr, ...] | None:
    match relation:
        case "<" | "<=":
            less = ir.Literal(1) if relation == "<" else ir.Literal(0)
            return tuple(
                ir.Binary("-", ir.Binary("-", high, low), less)
                for low in _sides(left, "max")
                for high in _sides(right, "min")
            )
        case ">" | ">=":
            return _comparison("<" if relation == ">" else "<=", right, left)
        case "==":
            return ir.Binary("-", left, right), ir.Binary("-", right, left)
        case _:
            return None


def _sides(value: ir.Expr, operator: str) -> tuple[ir.Expr, ...]:
    """The values that all must be above (or below) where `min` (or `max`) of them must."""
    if isinstance(value, ir.Binary) and value.operator == operator:
        return (*_sides(value.left, operator), *_sides(value.right, operator))
    return (value,)


def separate(lanes: Lanes, gap: ir.Expr) -> Separated | None:
    """`gap >= 0` for one lane, as an interval of the one axis it depends on; None where it does not
    separate. `gap` is an expression over lane names (`Lanes.pointwise`)."""
    names = {lane_name(axis): axis for axis in range(len(lanes.extents))}
    used = {ref.name for ref in walk.references(gap)}
    present = [name for name in names if name in used]
    if len(present) != 1 or any(name.startswith("'") for name in used - names.keys()):
        return None
    domain = _interval(lanes, normalize(gap), present[0])
    return None if domain is None else Separated(names[present[0]], domain)


def _interval(lanes: Lanes, gap: Polynomial, lane: str) -> ir.AxisDomain | None:
    """The lanes for which a polynomial is not negative."""
    slope: Polynomial = {}
    rest: Polynomial = {}
    carriers: set[ir.Expr] = set()  # the lane itself, or the quotient that it occurs in
    for monomial, coefficient in gap.items():
        holding = [atom for atom in monomial if lane in walk.names(atom.expression)]
        if not holding:
            rest[monomial] = coefficient
            continue
        carriers.add(holding[0].expression)
        if len(holding) > 1 or len(carriers) > 1:
            return None
        others = list(monomial)
        others.remove(holding[0])
        slope[tuple(others)] = coefficient
    if not carriers:
        return None
    (carrier,) = carriers
    sign = _sign(lanes, slope)
    if sign is None:
        return None
    size = rebuild(slope if sign > 0 else {m: -c for m, c in slope.items()})
    if isinstance(carrier, ir.Ref):
        return _bound(size, rebuild(rest), sign)
    return _unfolded(lanes, carrier, size, rebuild(rest), sign, lane)


def _sign(lanes: Lanes, slope: Polynomial) -> int | None:
    form = lanes.scope.form(rebuild(slope))
    value = constant_value(form)
    if value is not None:
        return None if value == 0 else (1 if value > 0 else -1)
    if lanes.scope.proves(add(form, constant(-1))):
        return 1
    return -1 if lanes.scope.proves(add(scale(form, -1), constant(-1))) else None


def _bound(size: ir.Expr, rest: ir.Expr, sign: int) -> ir.AxisDomain:
    """The lanes with sign * size * lane + rest >= 0, for size >= 1."""
    one = ir.Literal(1)
    quotient = rest if size == one else ir.Binary("//", rest, size)
    if sign > 0:
        return ir.AxisDomain((simplify(ir.Unary("-", quotient)),))
    return ir.AxisDomain((), (simplify(ir.Binary("+", quotient, one)),))


def _unfolded(
    lanes: Lanes, inner: ir.Expr, size: ir.Expr, rest: ir.Expr, sign: int, lane: str
) -> ir.AxisDomain | None:
    """The lanes with sign * size * inner + rest >= 0, where inner is a // d, d >= 1."""
    if not isinstance(inner, ir.Binary) or inner.operator != "//":
        return None
    dividend, divisor = inner.left, inner.right
    if lane in walk.names(divisor):
        return None
    quotient = rest if size == ir.Literal(1) else ir.Binary("//", rest, size)
    if sign > 0:  # a // d >= -q  is  a + q*d >= 0
        gap = ir.Binary("+", dividend, ir.Binary("*", quotient, divisor))
    else:  # a // d <= q  is  a <= q*d + d - 1
        last = ir.Binary("*", ir.Binary("+", quotient, ir.Literal(1)), divisor)
        gap = ir.Binary("-", ir.Binary("-", last, dividend), ir.Literal(1))
    return _interval(lanes, normalize(gap), lane)
