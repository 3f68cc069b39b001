"""Which lanes an access reads or writes: intervals per axis, and guards for the rest (R1, R5, R13).

Every lane has up to four kinds of condition: it lies in the slice and its index tiles have a value
there; `where=` holds; the element is inside the tensor; for a store, the tile is valid. What
separates by axis becomes an interval, what is proved is dropped, the rest is a guard (or, on a load
without `pad=`, an error: the loaded tile's domain could not say it).

A scalar subscript that is not proved in range becomes a launch check (R13); on a load with `pad=`
it becomes a guard instead, since `pad=` says what lies outside, and so does a fetched one, which is
an index from memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, assert_never

from sketchc.base import records
from sketchc.checker.domains import bounds
from sketchc.checker.domains.separation import conjuncts, separate
from sketchc.checker.facts.lane_forms import Lanes, validity
from sketchc.checker.facts.scope import Scope
from sketchc.ir import nodes as ir
from sketchc.ir.lanes import element_indices
from sketchc.ir.walk import names

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


def reach(
    scope: Scope,
    sketch: ir.Sketch,
    statement: ir.Load | ir.Store | ir.Atomic,
    tile: ir.Tile,
    source: ir.Domain | None = None,
) -> Reach:
    """The lanes that `statement` reads or writes. `source`: the domain of the tile stored."""
    return _Access(scope, sketch, statement, tile, source).reach()


class _Access:
    """Collects the conditions of one access."""

    def __init__(
        self,
        scope: Scope,
        sketch: ir.Sketch,
        statement: ir.Load | ir.Store | ir.Atomic,
        tile: ir.Tile,
        source: ir.Domain | None,
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
            bounds.minimal(self.scope, column, extent)
            for column, extent in zip(columns, self.tile.extents, strict=True)
        )

    def _padded(self, valid: ir.Domain) -> tuple[bool, ...]:
        if not self.pad:
            return tuple(False for _ in valid)
        bounded = self._minimal([[*a, *b] for a, b in zip(self.valid, self.inside, strict=True)])
        return tuple(
            not bounds.covers(self.scope, inner, axis, extent)
            for inner, axis, extent in zip(bounded, valid, self.tile.extents, strict=True)
        )

    # ------------------------------------------------------------ slices

    def _slices(self) -> None:
        axis = 0
        for number, subscript in enumerate(self.statement.access.subscripts):
            match subscript:
                case ir.SliceSubscript():
                    found = bounds.slice_bounds(self.scope, subscript, self.extents[number])
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
            for place in range(len(self.tile.extents)):
                for domain in columns[place]:
                    lanes = lanes.within(_only(domain, place, len(self.tile.extents)))
        if where is not None:
            lanes = self._where(lanes, where)
        self._inside(lanes, subscripts, indices)

    def _validity(self, values: Iterable[ir.Expr]) -> None:
        for value in values:
            found = validity(value, self.tile.extents, self.scope.bindings)
            for column, domains in zip(self.valid, found.axes, strict=True):
                column.extend(domains)
            for domain in found.stretched:
                if not bounds.minimal(self.scope, [domain], ir.Literal(1)).full:
                    limit = (*domain.upper, *domain.lower)[0]
                    self.troubles.append(Trouble("stretched", limit))

    def _where(self, lanes: Lanes, where: ir.Expr) -> Lanes:
        """Sorts the parts of `where=`; gives the lanes for which it holds."""
        rest: list[ir.Expr] = []
        for part in conjuncts(lanes, where):
            if part.gaps is None:
                if part.written != ir.Literal(True):
                    rest.append(part.written)
                continue
            open_gaps = [gap for gap in part.gaps if not lanes.proves(lanes.base.form(gap))]
            found = [separate(lanes, gap) for gap in open_gaps]
            separated = [one for one in found if one is not None]
            if len(separated) < len(found):
                rest.append(part.written)
                continue
            for one in separated:
                self.wanted[one.axis].append(one.domain)
                lanes = lanes.within(_only(one.domain, one.axis, len(self.wanted)))
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
        """0 <= index < extent for each of the subscripts: those that separate first, since what
        they say of the lanes may prove the others."""
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
            self.inside[found.axis].append(found.domain)
            lanes = lanes.within(_only(found.domain, found.axis, len(self.inside)))
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


def _only(domain: ir.AxisDomain, axis: int, rank: int) -> ir.Domain:
    return tuple(domain if place == axis else ir.FULL for place in range(rank))
