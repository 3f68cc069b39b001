"""Index tiles as affine forms over lane variables, with what is known of the lanes.

For an access (or any index tile) at one place of a sketch, `Lanes` names the tile's lanes: axis `a`
of the tile is the variable `'lane<a>`, with 0 <= lane < extent. `Lanes.pointwise` writes an index
tile as an ordinary scalar expression over these names (bindings with lanes written out), which
`Scope.form`, `evaluate` and `symbolic` understand. What comes from memory is an unknown of its
element type.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import assert_never

from sketchc.base import records
from sketchc.base.types import DType
from sketchc.checker.facts.affine import Chosen, Extremum, Fact, Linear, add, constant
from sketchc.checker.facts.scope import Scope
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.symbolic import simplify
from sketchc.ir.walk import children, has_lanes, own_axes

#: How often a minimum or maximum in a claim is taken apart into its two cases.
_CASES = 3


def lane_name(axis: int) -> str:
    """The name that stands for the lane on one axis of the tile."""
    return f"'lane{axis}"


@records.frozen
class Lanes:
    """The lanes of one tile at one place. `atoms` are the lane variables by axis; `scope` has all
    facts about lanes and loaded values. `base` has no facts about lanes but their extents: forms
    are made there, so that they do not depend on facts that are added later."""

    base: Scope
    scope: Scope
    extents: tuple[ir.Expr, ...]
    atoms: tuple[int, ...]

    @staticmethod
    def of(
        scope: Scope,
        extents: tuple[ir.Expr, ...],
        values: Iterable[ir.Expr],
        tiles: Mapping[str, DType],
    ) -> Lanes:
        """Lanes of a tile with these extents. `values` are the index tiles that will be asked
        about; `tiles` are the element types of the tiles that indices are loaded into."""
        forms = dict(scope.forms)
        atoms = []
        facts: list[Fact] = []
        for axis, extent in enumerate(extents):
            atom = scope.atoms.variable(lane_name(axis), non_negative=True)
            atoms.append(atom)
            forms[lane_name(axis)] = {atom: 1}
            facts.extend(lane_facts(scope, {atom: 1}, extent))
        inner = records.evolve(scope, forms=forms, facts=(*scope.facts, *facts))
        for value in values:
            for name, lanes in loaded_names(value, extents, scope.bindings).items():
                if name not in inner.forms:
                    inner = inner.unknown(name, tiles.get(lanes.tile, lanes.dtype))
        return Lanes(inner, inner, extents, tuple(atoms))

    def within(self, axis: int, domain: ir.AxisDomain) -> Lanes:
        """These lanes, with those of one axis inside a domain."""
        facts = domain_facts(self.scope, {self.atoms[axis]: 1}, domain)
        return records.evolve(self, scope=self.scope.assume(facts))

    def given(self, conditions: Iterable[ir.Expr]) -> Lanes:
        """The lanes for which all conditions (bool index tiles) hold."""
        scope = self.scope
        for condition in conditions:
            scope = scope.assume(self.base.compare(self.pointwise(condition)))
        return records.evolve(self, scope=scope)

    def pointwise(self, value: ir.Expr) -> ir.Expr:
        """An index tile that broadcasts to the tile, rewritten for one lane: a scalar expression
        over the lane names (and one name for each loaded value)."""
        return pointwise(value, self.extents, self.scope.bindings)

    def proves(self, form: Linear) -> bool:
        """True when `form >= 0` follows for all lanes; see `proves`."""
        return proves(self.scope, form)


def lane_facts(
    scope: Scope, lane: Linear, extent: ir.Expr, valid: ir.AxisDomain = ir.FULL
) -> Iterator[Fact]:
    """The facts 0 <= lane < extent, and the bounds of the axis domain `valid`."""
    yield Fact(lane)
    yield Fact(add(add(scope.form(extent), lane, -1), constant(-1)))
    yield from domain_facts(scope, lane, valid)


def domain_facts(scope: Scope, lane: Linear, valid: ir.AxisDomain) -> Iterator[Fact]:
    """The facts that a lane is within the bounds of an axis domain."""
    for bound in valid.upper:
        yield Fact(add(add(scope.form(bound), lane, -1), constant(-1)))
    for bound in valid.lower:
        yield Fact(add(lane, scope.form(bound), -1))


def proves(scope: Scope, form: Linear, cases: int = _CASES) -> bool:
    """`Scope.proves`, which also takes a minimum that must not be small (a maximum that must not be
    large) apart: min(a, b) >= c is a >= c and b >= c."""
    if scope.proves(form):
        return True
    if cases == 0:
        return False
    for atom, coefficient in form.items():
        match scope.atoms.definitions[atom]:
            case Extremum(operator, left, right) if (coefficient > 0) == (operator == "min"):
                sides: tuple[tuple[tuple[Fact, ...], Linear], ...] = (((), left), ((), right))
            case Chosen(cases=sides):
                pass
            case _:
                continue
        rest = {other: c for other, c in form.items() if other != atom}
        return all(
            proves(scope.assume(facts), add(rest, side, coefficient), cases - 1)
            for facts, side in sides
        )
    return False


# ---------------------------------------------------------------- one lane of an index tile


def pointwise(
    value: ir.Expr, extents: Sequence[ir.Expr], bindings: Mapping[str, ir.Expr]
) -> ir.Expr:
    """`Lanes.pointwise` of an index tile that broadcasts to a tile with these `extents`."""
    return _Pointwise(extents, bindings).visit(value, tuple(range(len(extents))))


def loaded_names(
    value: ir.Expr, extents: Sequence[ir.Expr], bindings: Mapping[str, ir.Expr]
) -> dict[str, ir.TileLanes]:
    """The names that stand for loaded values in `pointwise`, with the tiles' lanes."""
    visitor = _Pointwise(extents, bindings)
    visitor.visit(value, tuple(range(len(extents))))
    return visitor.loaded


class _Pointwise:
    """Rewrites an index tile for one lane. `places` gives the axis of the tile at which each axis
    of the (sub)expression stands, right-aligned."""

    def __init__(self, extents: Sequence[ir.Expr], bindings: Mapping[str, ir.Expr]) -> None:
        self.extents = extents
        self.bindings = bindings
        self.binding = ""  # the one that is being written out
        self.loaded: dict[str, ir.TileLanes] = {}

    def visit(self, value: ir.Expr, places: tuple[int, ...]) -> ir.Expr:
        match value:
            case ir.Ref(name=name, layout=layout):
                if not has_lanes(value, self.bindings):
                    return value
                outer, self.binding = self.binding, name
                written = self.visit(self.bindings[name], own_axes(places, layout))
                self.binding = outer
                return written
            case ir.Iota(extent, lower, _, layout):
                (place,) = own_axes(places, layout)
                if extent == ir.Literal(1):
                    return lower
                lane = ir.Ref(lane_name(place), ir.NameKind.LOOP)
                return lane if lower == ir.Literal(0) else ir.Binary("+", lower, lane)
            case ir.TileLanes():
                return self._loaded(value, places)
            case _:
                return walk.changed(value, lambda part: self.visit(part, places))

    def _loaded(self, value: ir.TileLanes, places: tuple[int, ...]) -> ir.Expr:
        own = own_axes(places, value.layout)
        varying = [
            str(place)
            for place, extent in zip(own, value.extents, strict=True)
            if extent != ir.Literal(1)
        ]
        name = f"'{value.tile} at {','.join(varying)}"
        if self.binding:  # a snapshot: the tile may hold other values by now
            name += f" in {self.binding}"
        self.loaded[name] = value
        dtype = DType.BOOL if value.dtype is DType.BOOL else DType.I64
        return ir.Ref(name, ir.NameKind.BINDING, dtype)


# ---------------------------------------------------------------- which lanes have a value (R1)


@records.frozen
class Validity:
    """Per axis of the tile, the domains of an index tile's parts; `stretched` are those of parts
    whose single lane is broadcast along an axis."""

    axes: tuple[tuple[ir.AxisDomain, ...], ...]
    stretched: tuple[ir.AxisDomain, ...] = ()


@records.frozen
class Part:
    """An `iota`, or the lanes of a tile, in an index tile. `places` are the axes of the whole at
    which the part's own axes stand; `binding` is the innermost binding that it is read through."""

    value: ir.Iota | ir.TileLanes
    places: tuple[int, ...]
    binding: str = ""


def parts(value: ir.Expr, rank: int, bindings: Mapping[str, ir.Expr]) -> Iterator[Part]:
    """The `iota`s and lanes of tiles in an index tile that broadcasts to `rank` axes."""

    def visit(expression: ir.Expr, places: tuple[int, ...], binding: str) -> Iterator[Part]:
        match expression:
            case ir.Ref(name=name, layout=layout):
                if name in bindings:
                    yield from visit(bindings[name], own_axes(places, layout), name)
            case ir.Iota(layout=layout) | ir.TileLanes(layout=layout):
                yield Part(expression, own_axes(places, layout), binding)
            case _:
                for child in children(expression):
                    yield from visit(child, places, binding)

    return visit(value, tuple(range(rank)), "")


def validity(
    value: ir.Expr, extents: Sequence[ir.Expr], bindings: Mapping[str, ir.Expr]
) -> Validity:
    """Where all parts of an index tile that broadcasts to `extents` have a value: `iota(T, lo, hi)`
    is void from `hi` on, a tile's lanes where the tile is."""
    axes: list[list[ir.AxisDomain]] = [[] for _ in extents]
    stretched: list[ir.AxisDomain] = []

    def place(axis: int, extent: ir.Expr, domain: ir.AxisDomain) -> None:
        if domain.full:
            return
        one = ir.Literal(1)
        (stretched if extent == one and extents[axis] != one else axes[axis]).append(domain)

    for part in parts(value, len(extents), bindings):
        match part.value:
            case ir.Iota(extent, lower, upper):
                if upper is not None:
                    (axis,) = part.places
                    limit = ir.Binary("-", upper, lower) if lower != ir.Literal(0) else upper
                    place(axis, extent, ir.AxisDomain((), (simplify(limit),)))
            case ir.TileLanes(extents=own, domain=domain):
                for axis, extent, valid in zip(part.places, own, domain, strict=False):
                    place(axis, extent, valid)
            case _:
                assert_never(part.value)
    return Validity(tuple(map(tuple, axes)), tuple(stretched))
