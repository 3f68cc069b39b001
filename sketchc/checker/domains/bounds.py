"""Which lanes an access reads or writes: intervals per axis, and guards for the rest (R1, R5, R13).

Every lane has up to four kinds of condition: it lies in the slice and its index tiles have a value
there; `where=` holds; the element is inside the tensor; for a store, the tile is valid. What
separates by axis becomes an interval, what is proved is dropped, the rest is a guard (or, on a load
without `pad=`, an error: the loaded tile's domain could not say it).

A scalar subscript that is not proved in range becomes a launch check (R13). On a load with `pad=`
it becomes a guard instead, since `pad=` says what lies outside; a fetched subscript becomes a
guard, too, being an index from memory.

Bounds are recognised as implied in the `Scope` of the statement: one that follows from `0 <= j <
extent` and the bounds already kept is dropped, so that an empty `AxisDomain` means no mask. A
condition separates when it compares expressions in which one axis' lane occurs, times something of
known sign: it then is an interval of that axis (LANGUAGE R5), `2*iota + i*T < N` says `lane <
(N - i*T - 1)//2 + 1`. Quotients unfold: `(lane + m) // P < N` is `lane + m < N*P`, for P >= 1
(which every divisor is).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, assert_never

from sketchc.base import records
from sketchc.checker.facts import (
    Fact,
    Lanes,
    Scope,
    add,
    constant,
    lane_facts,
    lane_name,
    scale,
    validity,
)
from sketchc.ir import guards, walk
from sketchc.ir import nodes as ir
from sketchc.ir.symbolic import Polynomial, normalize, rebuild, simplify
from sketchc.ir.walk import element_indices, names


def _upper_implied(
    scope: Scope, bound: ir.Expr, kept: tuple[ir.Expr, ...], extent: ir.Expr, lower: ir.AxisDomain
) -> bool:
    """Whether `bound` is above every lane that the extent, `kept` and `lower` bound."""
    form = scope.form(bound)
    if any(form == scope.form(other) for other in kept):
        return True
    if scope.proves(add(form, scope.form(extent), -1)):
        return True
    if not kept:
        return False
    lane = {scope.atoms.variable("'lane", non_negative=True): 1}
    known = lane_facts(scope, lane, extent, ir.AxisDomain(lower.lower, kept))
    return scope.refutes((*known, Fact(add(lane, form, -1))))


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
    """Whether every lane of `inner` is provably a lane of `outer`."""
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
    sign = _sign(scope, step)
    if sign is None:
        return None
    if sign > 0:
        distances = [ir.Binary("-", bound, start) for bound in _sides(subscript.upper, "min")]
        before: ir.Expr = ir.Unary("-", start)
        last = ir.Binary("-", extent, start)
    else:
        step = simplify(ir.Unary("-", step))
        distances = [ir.Binary("-", start, bound) for bound in _sides(subscript.upper, "max")]
        last = ir.Binary("+", start, ir.Literal(1))
        before = simplify(ir.Binary("-", last, extent))
    within = () if subscript.exact else tuple(_count(each, step) for each in distances)
    inside = scope.proves(scale(scope.form(before), -1))
    first = () if inside else (_count(before, step),)
    return ir.AxisDomain((), within), ir.AxisDomain(first), ir.AxisDomain((), (_count(last, step),))


def _count(distance: ir.Expr, step: ir.Expr) -> ir.Expr:
    """How many steps reach at least `distance`: cdiv, written with a floor quotient."""
    if step == ir.Literal(1):
        return simplify(distance)
    short = ir.Binary("-", distance, ir.Literal(1))
    return simplify(ir.Binary("+", ir.Binary("//", simplify(short), step), ir.Literal(1)))


def _gaps(condition: ir.Expr) -> tuple[ir.Expr, ...] | None:
    """A condition on one lane as values that must all be >= 0; None where it is not a conjunction
    of integer comparisons."""
    result: list[ir.Expr] = []
    for part in guards.consequences(condition):
        if not isinstance(part, ir.Binary):
            return None
        found = _comparison(part.operator, part.left, part.right)
        if found is None:
            return None
        result += found
    return tuple(result)


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
    """The operands of a nested `min` (or `max`), else the value alone: an upper bound `min(a, b)`
    is both bounds."""
    if isinstance(value, ir.Binary) and value.operator == operator:
        return (*_sides(value.left, operator), *_sides(value.right, operator))
    return (value,)


def separate(lanes: Lanes, gap: ir.Expr) -> tuple[int, ir.AxisDomain] | None:
    """`gap >= 0` for one lane, as the one axis it depends on and an interval of that; None where it
    does not separate. `gap` is an expression over lane names (`Lanes.pointwise`)."""
    names = {lane_name(axis): axis for axis in range(len(lanes.extents))}
    used = {ref.name for ref in walk.references(gap)}
    present = [name for name in names if name in used]
    if len(present) != 1 or any(name.startswith("'") for name in used - names.keys()):
        return None
    domain = _interval(lanes, normalize(gap), present[0])
    return None if domain is None else (names[present[0]], domain)


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
    sign = _sign(lanes.scope, rebuild(slope))
    if sign is None:
        return None
    size = rebuild(slope if sign > 0 else {m: -c for m, c in slope.items()})
    if isinstance(carrier, ir.Ref):
        return _bound(size, rebuild(rest), sign)
    return _unfolded(lanes, carrier, size, rebuild(rest), sign, lane)


def _sign(scope: Scope, value: ir.Expr) -> int | None:
    """1 or -1 for an expression that is above or below 0; None where that is not known."""
    form = scope.form(value)
    if scope.proves(add(form, constant(-1))):
        return 1
    return -1 if scope.proves(add(scale(form, -1), constant(-1))) else None


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


_Columns = list[list[ir.AxisDomain]]


@records.frozen
class Trouble:
    """Something that the domains cannot express. `kind`: "needs-pad" (a bound of the tensor does
    not separate), "where-needs-pad", "step" (of unknown sign), or "stretched" (a lane that may be
    void is broadcast). `sides`: which ends of the dimension are not proved, 0 ("low") or its
    extent ("high")."""

    kind: Literal["needs-pad", "where-needs-pad", "step", "stretched"]
    expression: ir.Expr
    dimension: int | None = None
    sides: tuple[Literal["low", "high"], ...] = ()


@records.frozen
class Reach:
    """What an access reads or writes. `valid` are the lanes with a place (inside the slice, index
    tiles valid), `touched` those that are also inside the tensor and selected by `where=`, as far
    as intervals tell; `guards` is the rest. `padded`: the axes on which the tensor's bounds make
    fewer lanes valid than there would be otherwise."""

    valid: ir.Domain
    touched: ir.Domain
    guards: tuple[ir.Expr, ...]
    padded: tuple[bool, ...]
    troubles: tuple[Trouble, ...] = ()


def is_loaded(scope: Scope, subscript: ir.Subscript) -> bool:
    """Whether a subscript comes from memory: lanes of a tile, or a scalar that was fetched."""
    match subscript:
        case ir.IndexSubscript(value=value, loaded=loaded):
            return loaded or bool(names(value) & scope.loaded)
        case ir.ScalarSubscript(index):
            return bool(names(index) & scope.loaded)
        case ir.SliceSubscript():
            return False
        case _:
            assert_never(subscript)


class Reached:
    """Collects the conditions on the lanes that one access reads or writes. `source`: the domain of
    the tile stored."""

    def __init__(
        self,
        scope: Scope,
        sketch: ir.Sketch,
        statement: ir.Load | ir.Store | ir.Atomic,
        tile: ir.Tile,
        source: ir.Domain | None = None,
    ) -> None:
        self.scope = scope
        self.extents = sketch.extents(statement.access.tensor)
        self.statement = statement
        self.tile = tile
        self.types = {known.name: known.dtype for known in sketch.tiles}
        self.pad = isinstance(statement, ir.Load) and statement.pad is not None
        self.strict = isinstance(statement, ir.Load) and statement.pad is None
        self.valid: _Columns = [[] for _ in tile.extents]
        if source is not None:
            self.valid = [[axis] for axis in source]
        self.wanted: _Columns = [[] for _ in tile.extents]
        self.inside: _Columns = [[] for _ in tile.extents]
        self.guards: list[ir.Expr] = []
        self.troubles: list[Trouble] = []

    def reach(self) -> Reach:
        """The lanes that follow from the subscripts of the access and its `where=`."""
        access, where = self.statement.access, self.statement.where
        self._slices()
        subscripts = [
            (number, subscript)
            for number, subscript in enumerate(access.subscripts)
            if isinstance(subscript, ir.IndexSubscript)
            or (
                isinstance(subscript, ir.ScalarSubscript)
                and (self.pad or is_loaded(self.scope, subscript))
            )
        ]
        if subscripts or where is not None:
            self._lanes(subscripts, where)
        valid = self._minimal(self.valid)
        if self.guards or any(map(any, (*self.wanted, *self.inside))):
            joined = zip(self.valid, self.wanted, self.inside, strict=True)
            touched = self._minimal([[*a, *b, *c] for a, b, c in joined])
        else:
            touched = valid
        return Reach(
            valid,
            touched,
            tuple(dict.fromkeys(self.guards)),
            self._padded(valid),
            tuple(self.troubles),
        )

    def _minimal(self, columns: _Columns) -> ir.Domain:
        return tuple(
            minimal(self.scope, column, extent)
            for column, extent in zip(columns, self.tile.extents, strict=True)
        )

    def _padded(self, valid: ir.Domain) -> tuple[bool, ...]:
        if not self.pad:
            return tuple(False for _ in valid)
        bounded = self._minimal([[*a, *b] for a, b in zip(self.valid, self.inside, strict=True)])
        return tuple(
            not covers(self.scope, inner, axis, extent)
            for inner, axis, extent in zip(bounded, valid, self.tile.extents, strict=True)
        )

    # ------------------------------------------------------------ slices

    def _slices(self) -> None:
        axis = 0
        for number, subscript in enumerate(self.statement.access.subscripts):
            match subscript:
                case ir.SliceSubscript():
                    found = slice_bounds(self.scope, subscript, self.extents[number])
                    if found is None:
                        self.troubles.append(Trouble("step", subscript.step, number))
                    else:
                        self.valid[axis].append(found[0])
                        self.inside[axis].extend(found[1:])
                    axis += 1
                case ir.IndexSubscript(axis=place):
                    axis += place is not None
                case ir.ScalarSubscript():
                    pass
                case _:
                    assert_never(subscript)

    # ------------------------------------------------------------ index tiles and where=

    def _lanes(
        self,
        subscripts: list[tuple[int, ir.IndexSubscript | ir.ScalarSubscript]],
        where: ir.Expr | None,
    ) -> None:
        indices = element_indices(self.statement.access, self.tile.extents)
        values = [indices[number] for number, _ in subscripts]
        self._validity((*values, *([where] if where is not None else [])))
        lanes = Lanes.of(
            self.scope,
            self.tile.extents,
            (*indices, *([where] if where is not None else [])),
            tiles=self.types,
        )
        for columns in (self.valid, self.inside):
            for axis, domains in enumerate(columns):
                for domain in domains:
                    lanes = lanes.within(axis, domain)
        if where is not None:
            lanes = self._where(lanes, where)
        self._inside(lanes, subscripts, indices)

    def _validity(self, values: Iterable[ir.Expr]) -> None:
        for value in values:
            found = validity(value, self.tile.extents, self.scope.bindings)
            for column, domains in zip(self.valid, found.axes, strict=True):
                column.extend(domains)
            for domain in found.stretched:
                if not minimal(self.scope, [domain], ir.Literal(1)).full:
                    limit = (*domain.upper, *domain.lower)[0]
                    self.troubles.append(Trouble("stretched", limit))

    def _where(self, lanes: Lanes, where: ir.Expr) -> Lanes:
        """Sort the parts of `where=`, to intervals or guards; gives the lanes where it holds."""
        rest: list[ir.Expr] = []
        for part in guards.consequences(where):
            gaps = _gaps(lanes.pointwise(part))
            if gaps is None:
                if part != ir.Literal(True):
                    rest.append(part)
                continue
            open_gaps = [gap for gap in gaps if not lanes.proves(lanes.base.form(gap))]
            found = [separate(lanes, gap) for gap in open_gaps]
            separated = [one for one in found if one is not None]
            if len(separated) < len(found):
                rest.append(part)
                continue
            for axis, domain in separated:
                self.wanted[axis].append(domain)
                lanes = lanes.within(axis, domain)
        if self.strict:
            self.troubles.extend(Trouble("where-needs-pad", part) for part in rest)
        self.guards.extend(rest)
        return lanes.given(rest)

    def _inside(
        self,
        lanes: Lanes,
        subscripts: list[tuple[int, ir.IndexSubscript | ir.ScalarSubscript]],
        indices: tuple[ir.Expr, ...],
    ) -> None:
        """Collect 0 <= index < extent for each of the subscripts: those that separate first, since
        their intervals may prove the others."""
        pending: list[tuple[int, ir.Expr, ir.Expr]] = []
        for number, _ in subscripts:
            last = ir.Binary("-", self.extents[number], ir.Literal(1))
            pending.append((number, ir.Literal(0), indices[number]))
            pending.append((number, indices[number], last))
        open_ones = []
        for number, low, high in pending:
            gap = ir.Binary("-", lanes.pointwise(high), lanes.pointwise(low))
            form = lanes.base.form(gap)
            if lanes.proves(form):
                continue
            found = separate(lanes, gap)
            if found is None:
                open_ones.append((number, low, high, form))
                continue
            axis, domain = found
            self.inside[axis].append(domain)
            lanes = lanes.within(axis, domain)
        unproved: dict[int, list[Literal["low", "high"]]] = {}
        for number, low, high, form in open_ones:
            if lanes.proves(form):
                continue
            subscript = self.statement.access.subscripts[number]
            if self.strict and not is_loaded(self.scope, subscript):
                sides = unproved.setdefault(number, [])
                sides.append("low" if low == ir.Literal(0) else "high")
                continue
            if low == ir.Literal(0):
                self.guards.append(ir.Binary("<=", low, high))
            else:
                self.guards.append(ir.Binary("<", low, self.extents[number]))
        for number, sides in unproved.items():
            self.troubles.append(Trouble("needs-pad", indices[number], number, tuple(sides)))
