"""Domain inference: which lanes of every tile version are valid (LANGUAGE R1-R5).

`infer_domains` takes an elaborated sketch and returns it with every `domain`, `read` and `guards`
filled in, bounds implied by the tile's extent left out. Domains of `init=` tiles are one per tile
(R4): a fixpoint from "all lanes" over the operands written into the tile. Other tiles take the
domain of each write.

Where the language contract is silent, these rules hold:

* Where the branches of an `if` leave a tile with different valid lanes, it may not be read
  afterwards; bounds that are equivalent under the branch's condition do not differ.
* Lanes that element-wise operations compute from padded lanes count as padded (R5), and so do the
  lanes of an index tile over padded lanes, those of a tile that is loaded through such an index
  tile, and those of an `init=` tile into which padded lanes were written, until it is made again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar, assert_never

from sketchc.base import records, verification
from sketchc.base.diagnostics import Diagnostic, InternalError, Span, has_errors
from sketchc.checker.domains import bounds, versions
from sketchc.checker.domains import messages as reports
from sketchc.checker.domains.bounds import Reach, Reached
from sketchc.checker.domains.versions import (
    Axes,
    Padding,
    Paddings,
    Version,
    Write,
    either,
    joined,
    plain,
    updated,
)
from sketchc.checker.facts import Branch, Scope, Step, parts, phase_scope, root_scope, validity
from sketchc.ir import nodes as ir
from sketchc.ir.symbolic import simplify
from sketchc.ir.walk import (
    element_indices,
    kept_axes,
    laid_out,
    map_tiles,
    operand_extents,
    tiles_read,
)
from sketchc.ops.table import OPS, Category, Fact, Layout, Result, Shape, identity_value

#: For each axis of an operand, the destination's axis that it becomes; None for one that is
#: consumed.
AxisMap = tuple[int | None, ...]

_T = TypeVar("_T")
_Moved = TypeVar("_Moved", ir.Load, ir.Store, ir.Atomic, ir.Store | ir.Atomic)


def axis_map(
    compute: ir.Compute,
    position: int,
    extents: Sequence[ir.Expr],
    result: Sequence[ir.Expr],
    scope: Scope,
) -> AxisMap:
    """Where each axis of the operand at `position` ends up in a destination of shape `result`."""
    op = OPS[compute.operation]
    rank, offset = len(extents), len(result) - len(extents)
    aligned: AxisMap = tuple(axis + offset for axis in range(rank))
    match op.shape:
        case Shape.TRANSPOSED:
            return _swap(aligned)
        case Shape.REDUCED:
            kept = [axis for axis in range(rank) if axis not in compute.axes]
            # With keepdim the reduced ones have extent 1.
            left = kept if rank != len(result) else list(range(rank))
            return tuple(left.index(axis) if axis in kept else None for axis in range(rank))
        case Shape.MATRIX_PRODUCT:
            flag = compute.attributes.get(("trans_a", "trans_b")[position])
            last: AxisMap = ((len(result) - 2, None), (None, len(result) - 1))[position]
            return (*aligned[:-2], *(_swap(last) if flag else last))
        case Shape.TOP_K:
            # An index of lower rank is aligned to the right, as in NumPy.
            return tuple(None if place in compute.axes else place for place in aligned)
        case Shape.REARRANGED if op.layout is Layout.PERMUTED:
            return tuple(compute.axes.index(axis) for axis in range(rank))
        case Shape.REARRANGED if op.layout is Layout.RESHAPED:
            before, after = ([scope.form(e) for e in shape] for shape in (extents, result))
            return kept_axes(before, after, scope.form(ir.Literal(1)))
        case _:
            return aligned


def _swap(items: tuple[_T, ...]) -> tuple[_T, ...]:
    return (*items[:-2], items[-1], items[-2])


def own_axes(compute: ir.Compute, rank: int, first: int) -> tuple[int, ...]:
    """The axes that `axis=` names, as axes of an operand of this rank. `axis=` counts the axes of
    the first operand, of rank `first`; an index of lower rank is aligned to the right."""
    return tuple(axis - (first - rank) for axis in compute.axes if axis >= first - rank)


def cross_lane(compute: ir.Compute, position: int, rank: int, first: int) -> tuple[int, ...]:
    """The axes of an operand along which lanes are combined; `first`: the first operand's rank."""
    op = OPS[compute.operation]
    match op.category:
        case Category.REDUCTION | Category.INDEX | Category.SCAN | Category.SORTING:
            return own_axes(compute, rank, first)
        case Category.MATRIX:
            flag = bool(compute.attributes.get(("trans_a", "trans_b")[position]))
            return (rank - 1 if (position == 0) != flag else rank - 2,)
        case _:
            return ()


def infer_domains(sketch: ir.Sketch) -> tuple[ir.Sketch, tuple[Diagnostic, ...]]:
    """The sketch with all domains filled in, and SK042x errors where the rules have no solution."""
    initial = {tile.name: _full(tile) for tile in sketch.tiles if tile.initial is not None}
    scope = root_scope(sketch)
    by_name = {tile.name: tile for tile in sketch.tiles}
    inner: dict[object, Scope] = {}
    reached: dict[object, Reach] = {}
    for _ in range(2 * len(initial) + 4):
        writes: dict[str, list[Write]] = {name: [] for name in initial}
        walk = _Walk(sketch, by_name, initial, scope, inner, reached, writes)
        phases = tuple(walk.phase(index) for index in range(len(sketch.phases)))
        solved, found = versions.solve(sketch, initial, walk.writes)
        if solved == initial:
            break
        initial = solved
    else:  # every round takes domains one tile further along a chain of `init=` tiles
        raise InternalError(f"the domains of sketch {sketch.name} do not settle")
    tiles = tuple(
        records.evolve(tile, domain=initial[tile.name]) if tile.name in initial else tile
        for tile in sketch.tiles
    )
    result = records.evolve(sketch, tiles=tiles, phases=phases)
    found = tuple(dict.fromkeys((*walk.diagnostics, *found)))
    if verification.enabled() and not has_errors(found):
        from sketchc.ir.verify import verify

        verify(result, inferred=True)
    return result, found


def _full(tile: ir.Tile) -> ir.Domain:
    return tuple(ir.FULL for _ in tile.extents)


@records.define(eq=False)
class _Walk:
    """One pass over the statements with given domains for the `init=` tiles. `inner` keeps the
    scopes of loops, branches and bindings from pass to pass, and with them what was proved;
    `reached` keeps the `Reach` of each access."""

    sketch: ir.Sketch
    tiles: Mapping[str, ir.Tile]
    initial: Mapping[str, ir.Domain]
    root: Scope
    inner: dict[object, Scope]
    reached: dict[object, Reach]
    writes: dict[str, list[Write]]
    versions: dict[str, Version] = records.field(factory=dict)
    snapshots: dict[str, dict[str, Version]] = records.field(factory=dict)  # by binding
    born: dict[str, Scope] = records.field(factory=dict)
    diagnostics: list[Diagnostic] = records.field(factory=list)

    def phase(self, index: int) -> ir.Phase:
        phase = self.sketch.phases[index]
        if ("phase", index) not in self.inner:
            self.inner["phase", index] = phase_scope(self.sketch, self.root, index)
        body, _ = self._body(phase.body, self.inner["phase", index])
        return records.evolve(phase, body=body)

    def _body(
        self, body: Iterable[ir.Statement], scope: Scope
    ) -> tuple[tuple[ir.Statement, ...], Scope]:
        """The statements with their domains, and the scope at the end."""
        result: list[ir.Statement] = []
        for statement in body:
            done: ir.Statement = statement
            match statement:
                case ir.Alloc(tile):
                    self.born[tile] = scope
                    self.versions[tile] = plain(self.initial.get(tile, _full(self.tiles[tile])))
                case ir.Bind():
                    done = records.evolve(statement, value=self._read(statement.value, statement))
                    self.snapshots[statement.name] = {
                        tile: self._version(tile, statement) for tile in tiles_read(statement.value)
                    }
                    scope = self._inside(scope, done, statement)
                case ir.Fetch():
                    scope = self._inside(scope, statement, statement)
                case ir.Load():
                    done = self._load(statement, scope)
                case ir.Store() | ir.Atomic():
                    done = self._store(statement, scope)
                case ir.Compute():
                    done = self._compute(statement, scope)
                case ir.For():
                    done = self._loop(statement, scope)
                case ir.If():
                    done = self._branches(statement, scope)
                case _:
                    assert_never(statement)
            result.append(done)
        return tuple(result), scope

    def _inside(self, scope: Scope, step: Step, statement: ir.Statement) -> Scope:
        """The scope in a loop's body or a branch, or after a binding."""
        told = step.value if isinstance(step, ir.Bind) else isinstance(step, Branch) and step.holds
        key = (id(scope), id(statement), told)
        if key not in self.inner:
            self.inner[key] = scope.after(step)
        return self.inner[key]

    # ------------------------------------------------------------ control flow

    def _loop(self, loop: ir.For, scope: Scope) -> ir.For:
        inside = self._inside(scope, loop, loop)
        for _ in range(len(loop.carried) + 1):
            head = {name: self.versions.get(name) for name in loop.carried}
            body, _ = self._body(loop.body, inside)
            grown = False
            for name, before in head.items():
                after = self.versions.get(name)
                if before is None or after is None:
                    continue
                if before.domain != after.domain:
                    found = reports.drift(self.tiles[name], before.domain, after.domain)
                    self.diagnostics.append(found)
                padded = either(before.padded, after.padded)
                grown = grown or padded != before.padded
                self.versions[name] = records.evolve(after, padded=padded)
            if not grown:
                break
        return records.evolve(loop, body=body)

    def _branches(self, branch: ir.If, scope: Scope) -> ir.If:
        before = dict(self.versions)
        then = self._inside(scope, Branch(branch.condition, True), branch)
        body, then = self._body(branch.body, then)
        one, self.versions = self.versions, dict(before)
        otherwise = self._inside(scope, Branch(branch.condition, False), branch)
        orelse, otherwise = self._body(branch.orelse, otherwise)
        for name, first in one.items():
            second = self.versions.get(name)
            if second is None or first == second:
                self.versions[name] = first
                continue
            self.versions[name] = joined(
                branch, self.tiles[name], (first, then), (second, otherwise), scope
            )
        return records.evolve(branch, body=body, orelse=orelse)

    # ------------------------------------------------------------ memory

    def _load(self, load: ir.Load, scope: Scope) -> ir.Load:
        tile = self.tiles[load.tile]
        load = self._renewed(load)
        found = self._reach(load, scope, tile)
        padding = load.pad is not None
        domain = found.valid if padding else found.touched
        if tile.name in self.initial:
            counting = tuple((axis,) for axis in domain)
            self._write(tile, counting, scope, load.span)
        self.versions[tile.name] = Version(domain, self._loaded_padding(load, tile, found, scope))
        return records.evolve(load, domain=domain, read=found.touched, guards=found.guards)

    def _store(self, store: ir.Store | ir.Atomic, scope: Scope) -> ir.Store | ir.Atomic:
        tile = self.tiles[store.tile]
        store = self._renewed(store)
        found = self._reach(store, scope, tile, self._version(store.tile, store).domain)
        return records.evolve(store, domain=found.touched, guards=found.guards)

    def _reach(
        self,
        statement: ir.Load | ir.Store | ir.Atomic,
        scope: Scope,
        tile: ir.Tile,
        source: ir.Domain | None = None,
    ) -> Reach:
        """The lanes that an access reaches, computed once for all rounds in which nothing changed;
        reports what domains cannot express."""
        key = (id(scope), statement, source)
        if key not in self.reached:
            self.reached[key] = Reached(scope, self.sketch, statement, tile, source).reach()
        found = self.reached[key]
        self.diagnostics += (reports.trouble(statement, one, self.sketch) for one in found.troubles)
        return found

    def _renewed(self, statement: _Moved) -> _Moved:
        """A transfer with the current domains of the tiles in its indices and its condition."""
        access, where = statement.access, statement.where
        subscripts = tuple(
            records.evolve(subscript, value=self._read(subscript.value, statement))
            if isinstance(subscript, ir.IndexSubscript)
            else subscript
            for subscript in access.subscripts
        )
        if subscripts != access.subscripts:
            access = records.evolve(access, subscripts=subscripts)
        where = None if where is None else self._read(where, statement)
        return records.evolve(statement, access=access, where=where)

    def _read(self, value: ir.Expr, statement: ir.Statement) -> ir.Expr:
        def now(lanes: ir.TileLanes) -> ir.TileLanes:
            return records.evolve(lanes, domain=self._version(lanes.tile, statement).domain)

        return map_tiles(value, now)

    # ------------------------------------------------------------ operations

    def _compute(self, compute: ir.Compute, scope: Scope) -> ir.Compute:
        operands = tuple(self._operand(operand, compute, scope) for operand in compute.operands)
        compute = records.evolve(compute, operands=operands)
        tile = self.tiles[compute.destination]
        padded = self._padded(compute, tile, scope)
        axes = self._result_axes(compute, tile, scope, report=True)
        written = tuple(
            bounds.minimal(scope, domains or (), extent)
            for domains, extent in zip(axes, tile.extents, strict=True)
        )
        counting = self._result_axes(compute, tile, scope, apart=compute.destinations)
        for name in compute.destinations:
            if name in self.initial:
                self._write(self.tiles[name], counting, scope, compute.span)
                before = self._version(name, compute)
                self.versions[name] = Version(self.initial[name], updated(before.padded, padded))
            else:
                self.versions[name] = Version(written, padded)
        if tile.name not in self.initial:
            return records.evolve(compute, domain=written)
        domain = self.initial[tile.name]
        whole = all(
            bounds.covers(scope, outer, inner, extent)
            for outer, inner, extent in zip(written, domain, tile.extents, strict=True)
        )
        return records.evolve(
            compute, domain=domain, masked=not whole, written=() if whole else written
        )

    def _write(self, tile: ir.Tile, axes: Axes, scope: Scope, span: Span) -> None:
        self.writes[tile.name].append(Write(axes, scope, self.born[tile.name], span))

    def _version(self, tile: str, statement: ir.Statement) -> Version:
        """The version of a tile that a statement reads; reports one that depends on a branch."""
        known = self.versions.get(tile)
        if known is None:
            return plain(_full(self.tiles[tile]))
        if known.torn is not None:
            branch, other = known.torn
            found = reports.torn(self.tiles[tile], branch, (known.domain, other), statement.span)
            self.diagnostics.append(found)
        return known

    def _operand(self, operand: ir.Operand, compute: ir.Compute, scope: Scope) -> ir.Operand:
        match operand:
            case ir.TileOperand(tile, layout=layout):
                domain = laid_out(self._version(tile, compute).domain, layout, ir.FULL)
                return records.evolve(operand, domain=domain)
            case ir.IndexOperand(value, _, extents):
                value = self._read(value, compute)
                found = validity(value, extents, scope.bindings)
                for valid in found.stretched:
                    self._stretch(operand, valid, scope)
                domain = tuple(
                    bounds.minimal(scope, axis, extent)
                    for axis, extent in zip(found.axes, extents, strict=True)
                )
                return records.evolve(operand, value=value, domain=domain)
            case ir.ScalarOperand():
                return operand
            case _:
                assert_never(operand)

    def _stretch(
        self, operand: ir.TileOperand | ir.IndexOperand, valid: ir.AxisDomain, scope: Scope
    ) -> None:
        """Report a single lane that is broadcast and may be void."""
        if not bounds.minimal(scope, [valid], ir.Literal(1)).full:
            tile = self.tiles[operand.tile] if isinstance(operand, ir.TileOperand) else None
            self.diagnostics.append(reports.stretch(operand.span, tile, valid))

    def _extents(self, operand: ir.Operand) -> tuple[ir.Expr, ...]:
        return operand_extents(operand, self.tiles.__getitem__)

    def _result_axes(
        self,
        compute: ir.Compute,
        tile: ir.Tile,
        scope: Scope,
        report: bool = False,
        apart: tuple[str, ...] = (),
    ) -> Axes:
        """For each axis of the destination, the axis domains of the operands that count there,
        except of the tiles in `apart`."""
        columns: list[list[ir.AxisDomain] | None] = [None] * len(tile.extents)

        def count(axis: int, domain: ir.AxisDomain) -> None:
            columns[axis] = [*(columns[axis] or []), domain]

        for position, operand in enumerate(compute.operands):
            if isinstance(operand, ir.ScalarOperand):
                continue
            if isinstance(operand, ir.TileOperand) and operand.tile in apart:
                continue
            extents = self._extents(operand)
            places = axis_map(compute, position, extents, tile.extents, scope)
            if report:
                self._check_whole(compute, position, operand, places)
            for place, valid, extent in zip(places, operand.domain, extents, strict=True):
                if place is None:
                    continue
                if not self._stretched(extent, tile.extents[place], scope):
                    count(place, self._shifted(compute, position, place, valid))
                elif report and not valid.full:
                    self._stretch(operand, valid, scope)
        op = OPS[compute.operation]
        if op.category is Category.MATRIX and op.accumulates and tile.name not in self.initial:
            before = self._version(tile.name, compute).domain
            for axis in (len(before) - 2, len(before) - 1):
                count(axis, before[axis])
        if op.shape is Shape.TOP_K:
            for axis in compute.axes:
                count(axis, ir.FULL)
        return tuple(None if column is None else tuple(column) for column in columns)

    def _stretched(self, extent: ir.Expr, wanted: ir.Expr, scope: Scope) -> bool:
        """Whether an axis of extent 1 is broadcast to a longer one."""
        if extent == wanted:
            return False
        return scope.form(extent) == {0: 1} and scope.form(wanted) != {0: 1}

    def _shifted(
        self, compute: ir.Compute, position: int, place: int, valid: ir.AxisDomain
    ) -> ir.AxisDomain:
        """The valid lanes of an operand's axis as lanes of the destination: those of the second
        operand of `concat` stand after the first operand, which is fully valid."""
        if OPS[compute.operation].layout is not Layout.JOINED or place not in compute.axes:
            return valid
        left = compute.operands[0]
        if position == 0 or not isinstance(left, ir.TileOperand):
            return ir.FULL
        extent = self.tiles[left.tile].extents[place]
        return ir.AxisDomain(
            (), tuple(simplify(ir.Binary("+", extent, bound)) for bound in valid.upper)
        )

    def _check_whole(
        self,
        compute: ir.Compute,
        position: int,
        operand: ir.TileOperand | ir.IndexOperand,
        places: tuple[int | None, ...],
    ) -> None:
        """Report axes that must be valid as a whole, or from lane 0 on, and are not."""
        named = own_axes(compute, len(operand.domain), len(self._extents(compute.operands[0])))
        row = OPS[compute.operation]
        joined = row.layout is Layout.JOINED
        for axis, valid in enumerate(operand.domain):
            along = axis in named
            prefix = along and (Fact.FROM_THE_FIRST in row.facts or (joined and position == 1))
            whole = (row.layout is Layout.RESHAPED and places[axis] is None) or (
                joined and along and position == 0
            )
            if (whole and not valid.full) or (prefix and valid.lower):
                tile = self.tiles[operand.tile] if isinstance(operand, ir.TileOperand) else None
                self.diagnostics.append(reports.partial(compute, operand, tile, axis, valid))

    # ------------------------------------------------------------ padding (R5)

    def _padded(self, compute: ir.Compute, tile: ir.Tile, scope: Scope) -> Paddings:
        """The padding of the destination's axes. Reports cross-lane operations over padded lanes,
        unless these hold the operation's identity."""
        result: list[Padding | None] = [None for _ in tile.extents]
        for position, operand in enumerate(compute.operands):
            if isinstance(operand, ir.ScalarOperand):
                continue
            sources = self._padding(operand, scope)
            if not sources:
                continue
            extents = self._extents(operand)
            first = len(self._extents(compute.operands[0]))
            for axis in cross_lane(compute, position, len(extents), first):
                if axis in sources and not self._neutral(compute, operand, sources[axis][1]):
                    source = self.tiles[sources[axis][0]]
                    self.diagnostics.append(reports.padded(compute, operand, source, axis))
            places = axis_map(compute, position, extents, tile.extents, scope)
            for axis, place in enumerate(places):
                if axis in sources and place is not None:
                    result[place] = sources[axis][1] if _moves(compute) else Padding()
        return tuple(result)

    def _neutral(self, compute: ir.Compute, operand: ir.Operand, padding: Padding) -> bool:
        """Whether lanes with this padding hold the identity of a cross-lane operation (R5)."""
        row = OPS[compute.operation]
        combines = row.category in (Category.REDUCTION, Category.SCAN, Category.MATRIX)
        if not combines or not isinstance(operand, ir.TileOperand) or padding.value is None:
            return False
        unit = identity_value(row.identity or "", self.tiles[operand.tile].dtype)
        return padding.value == unit

    def _padding(
        self, operand: ir.TileOperand | ir.IndexOperand, scope: Scope
    ) -> dict[int, tuple[str, Padding]]:
        """The axes of an operand valid only by padding, each with a padded tile and its padding."""
        if isinstance(operand, ir.IndexOperand):
            found = self._index_padding(operand.value, len(operand.extents), scope)
            return {axis: (tile, Padding()) for axis, tile in found.items()}
        version = self.versions.get(operand.tile)
        flags = () if version is None else laid_out(version.padded, operand.layout, None)
        return {axis: (operand.tile, padded) for axis, padded in enumerate(flags) if padded}

    def _index_padding(self, value: ir.Expr, rank: int, scope: Scope) -> dict[int, str]:
        """The axes of an index tile that are valid only by padding, each with a padded tile."""
        result: dict[int, str] = {}
        for part in parts(value, rank, scope.bindings):
            if isinstance(part.value, ir.TileLanes):
                known = self.snapshots[part.binding] if part.binding else self.versions
                version = known.get(part.value.tile)
                flags = () if version is None else version.padded
                for place, padded in zip(part.places, flags, strict=False):
                    if padded:
                        result.setdefault(place, part.value.tile)
        return result

    def _loaded_padding(self, load: ir.Load, tile: ir.Tile, found: Reach, scope: Scope) -> Paddings:
        """The padding of a loaded tile's axes: by `pad=`, or by padded lanes of an index."""
        own = Padding()
        if not isinstance(load.pad, ir.ScalarOperand) and load.pad == load.pad:  # and no nan
            own = Padding(load.pad)
        padded = [own if flag else None for flag in found.padded]
        for index in element_indices(load.access, tile.extents):
            for place in self._index_padding(index, len(tile.extents), scope):
                padded[place] = Padding()
        return tuple(padded)


def _moves(compute: ir.Compute) -> bool:
    """Whether the lanes of the result are unchanged lanes of the source."""
    row = OPS[compute.operation]
    copies = row.result is Result.SAME and Fact.HANDS_ON in row.facts
    return copies or (row.layout is not None and len(compute.operands) == 1)
