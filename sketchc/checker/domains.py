"""Domain inference: which lanes of every tile version are valid (LANGUAGE R1-R4).

`infer_domains` takes an elaborated sketch and returns it with every `domain` filled in, bounds
implied by the tile's extent left out. Domains of `init=` tiles are one per tile (R4): a fixpoint
from "all lanes" over the operands written into the tile. Other tiles take the domain of each write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar, assert_never

from sketchc import ir
from sketchc import records as attrs
from sketchc.checker import accumulators, bounds
from sketchc.checker.accumulators import Axes, Write
from sketchc.checker.scope import Scope, root_scope
from sketchc.diagnostics import Diagnostic, InternalError, Severity
from sketchc.ops import OPS, Category, Shape
from sketchc.symbolic import show, simplify

_Item = TypeVar("_Item")


def infer_domains(sketch: ir.Sketch) -> tuple[ir.Sketch, tuple[Diagnostic, ...]]:
    """The sketch with all domains filled in, and SK042x errors where rule R4 has no solution."""
    initial = {tile.name: _full(tile) for tile in sketch.tiles if tile.initial is not None}
    scope = root_scope(sketch)
    inner: dict[tuple[int, int], Scope] = {}
    for _ in range(2 * len(initial) + 4):
        walk = _Walk(sketch, initial, scope, inner)
        phases = tuple(walk.phase(phase) for phase in sketch.phases)
        solved, found = accumulators.solve(sketch, initial, walk.writes)
        if solved == initial:
            break
        initial = solved
    else:  # every round takes domains one tile further along a chain of `init=` tiles
        msg = f"the domains of sketch {sketch.name} do not settle"
        raise InternalError(msg)
    tiles = tuple(
        attrs.evolve(tile, domain=initial[tile.name]) if tile.name in initial else tile
        for tile in sketch.tiles
    )
    result = attrs.evolve(sketch, tiles=tiles, phases=phases)
    return result, tuple(dict.fromkeys((*walk.diagnostics, *found)))


def _full(tile: ir.Tile) -> ir.Domain:
    return tuple(ir.FULL for _ in tile.extents)


class _Walk:
    """One pass over the statements with given domains for the `init=` tiles. `inner` keeps the
    scopes of loops and bindings from pass to pass, and with them what was proved there."""

    def __init__(
        self,
        sketch: ir.Sketch,
        initial: Mapping[str, ir.Domain],
        scope: Scope,
        inner: dict[tuple[int, int], Scope],
    ) -> None:
        self.sketch = sketch
        self.initial = initial
        self.root = scope
        self.inner = inner
        self.tiles = {tile.name: tile for tile in sketch.tiles}
        self.versions: dict[str, ir.Domain] = {}
        self.born: dict[str, Scope] = {}
        self.writes: dict[str, list[Write]] = {name: [] for name in initial}
        self.diagnostics: list[Diagnostic] = []

    def phase(self, phase: ir.Phase) -> ir.Phase:
        return ir.Phase(self._body(phase.body, self.root))

    def _body(self, body: Iterable[ir.Statement], scope: Scope) -> tuple[ir.Statement, ...]:
        result: list[ir.Statement] = []
        for statement in body:
            match statement:
                case ir.Alloc(tile):
                    self.born[tile] = scope
                    self.versions[tile] = self.initial.get(tile, _full(self.tiles[tile]))
                    result.append(statement)
                case ir.Bind():
                    scope = self._inside(scope, statement)
                    result.append(statement)
                case ir.Load():
                    result.append(self._load(statement, scope))
                case ir.Store():
                    result.append(self._store(statement, scope))
                case ir.Compute():
                    result.append(self._compute(statement, scope))
                case ir.For():
                    result.append(self._loop(statement, scope))
                case _:
                    assert_never(statement)
        return tuple(result)

    def _inside(self, scope: Scope, step: ir.For | ir.Bind) -> Scope:
        """The scope in a loop's body or after a binding."""
        key = (id(scope), id(step))
        if key not in self.inner:
            self.inner[key] = (
                scope.enter(step) if isinstance(step, ir.For) else scope.bind(step.name, step.value)
            )
        return self.inner[key]

    # ------------------------------------------------------------ statements

    def _loop(self, loop: ir.For, scope: Scope) -> ir.For:
        head = {name: self.versions.get(name) for name in loop.carried}
        body = self._body(loop.body, self._inside(scope, loop))
        for name in loop.carried:
            before, after = head[name], self.versions.get(name)
            if before is not None and after is not None and before != after:
                self._report_drift(name, before, after)
        return attrs.evolve(loop, body=body)

    def _load(self, load: ir.Load, scope: Scope) -> ir.Load:
        tile = self.tiles[load.tile]
        domain = bounds.access_domain(scope, load.access, self.sketch, tile)
        if tile.name in self.initial:
            counting = tuple((axis,) for axis in domain)
            self.writes[tile.name].append(Write(counting, scope, self.born[tile.name], load.span))
        self.versions[tile.name] = domain
        return attrs.evolve(load, domain=domain)

    def _store(self, store: ir.Store, scope: Scope) -> ir.Store:
        tile = self.tiles[store.tile]
        inside = bounds.access_domain(scope, store.access, self.sketch, tile)
        domain = tuple(
            bounds.minimal(scope, pair, extent)
            for *pair, extent in zip(self._version(store.tile), inside, tile.extents, strict=True)
        )
        return attrs.evolve(store, domain=domain)

    def _compute(self, compute: ir.Compute, scope: Scope) -> ir.Compute:
        operands = tuple(self._operand(operand, scope) for operand in compute.operands)
        tile = self.tiles[compute.destination]
        axes = self._result_axes(compute, operands, tile, scope)
        written = tuple(
            bounds.minimal(scope, domains or (), extent)
            for domains, extent in zip(axes, tile.extents, strict=True)
        )
        if tile.name not in self.initial:
            self.versions[tile.name] = written
            return attrs.evolve(compute, operands=operands, domain=written)
        others = tuple(o for o in operands if not _reads(o, tile.name))
        counting = self._result_axes(compute, others, tile, scope)
        self.writes[tile.name].append(Write(counting, scope, self.born[tile.name], compute.span))
        domain = self.initial[tile.name]
        plain = all(
            bounds.covers(scope, outer, inner, extent)
            for outer, inner, extent in zip(written, domain, tile.extents, strict=True)
        )
        return attrs.evolve(
            compute,
            operands=operands,
            domain=domain,
            masked=not plain,
            written=() if plain else written,
        )

    # ------------------------------------------------------------ operands

    def _version(self, tile: str) -> ir.Domain:
        known = self.versions.get(tile)
        return _full(self.tiles[tile]) if known is None else known

    def _operand(self, operand: ir.Operand, scope: Scope) -> ir.Operand:
        match operand:
            case ir.TileOperand(tile):
                return attrs.evolve(operand, domain=self._version(tile))
            case ir.IndexOperand(value, _, extents):
                axes = _index_axes(value, scope.bindings, len(extents))
                domain = tuple(
                    bounds.minimal(scope, axis, extent)
                    for axis, extent in zip(axes, extents, strict=True)
                )
                return attrs.evolve(operand, domain=domain)
            case ir.ScalarOperand():
                return operand
            case _:
                assert_never(operand)

    def _extents(self, operand: ir.Operand) -> tuple[ir.Expr, ...]:
        match operand:
            case ir.TileOperand(tile):
                return self.tiles[tile].extents
            case ir.IndexOperand(_, _, extents):
                return extents
            case ir.ScalarOperand():
                return ()
            case _:
                assert_never(operand)

    def _result_axes(
        self,
        compute: ir.Compute,
        operands: tuple[ir.Operand, ...],
        tile: ir.Tile,
        scope: Scope,
    ) -> Axes:
        """For each axis of the destination, the axis domains of the operands that count there."""
        op = OPS[compute.operation]
        if op.category is Category.MATRIX:
            return self._matrix_axes(compute, tile)
        columns: list[list[ir.AxisDomain] | None] = [None] * len(tile.extents)
        for operand in operands:
            if isinstance(operand, ir.ScalarOperand):
                continue
            domain, extents = operand.domain, self._extents(operand)
            if op.shape is Shape.TRANSPOSED:
                domain, extents = _swap(domain), _swap(extents)
            if op.shape is Shape.REDUCED:
                domain, extents = _reduced(compute, domain, extents, len(tile.extents))
            offset = len(tile.extents) - len(extents)
            for axis, (valid, extent) in enumerate(zip(domain, extents, strict=True), offset):
                if not self._stretched(extent, tile.extents[axis], scope):
                    columns[axis] = [*(columns[axis] or []), valid]
                elif not valid.full:
                    self._report_stretch(operand, valid)
        return tuple(None if column is None else tuple(column) for column in columns)

    def _stretched(self, extent: ir.Expr, wanted: ir.Expr, scope: Scope) -> bool:
        """True where an axis of extent 1 is broadcast to a longer one."""
        if extent == wanted:
            return False
        return scope.form(extent) == {0: 1} and scope.form(wanted) != {0: 1}

    def _matrix_axes(self, compute: ir.Compute, tile: ir.Tile) -> Axes:
        """gemm and matmul: rows from a, columns from b; an accumulated destination without `init=`
        counts too."""
        rows: list[ir.AxisDomain] = []
        columns: list[ir.AxisDomain] = []
        for operand, flag, index, side in zip(
            compute.operands, ("trans_a", "trans_b"), (-2, -1), (rows, columns), strict=True
        ):
            if isinstance(operand, ir.TileOperand) and operand.tile != tile.name:
                domain = self._version(operand.tile)
                axis = (-3 - index) if compute.attributes.get(flag) else index
                side.append(domain[axis])
        if OPS[compute.operation].accumulates and tile.name not in self.initial:
            before = self._version(tile.name)
            rows.append(before[-2])
            columns.append(before[-1])
        return (*(None for _ in tile.extents[:-2]), tuple(rows), tuple(columns))

    # ------------------------------------------------------------ reports

    def _report_stretch(
        self, operand: ir.TileOperand | ir.IndexOperand, valid: ir.AxisDomain
    ) -> None:
        name = self.tiles[operand.tile].source_name if isinstance(operand, ir.TileOperand) else ""
        limit = show(simplify((*valid.upper, *valid.lower)[0]))
        self.diagnostics.append(
            Diagnostic(
                "SK0424",
                Severity.ERROR,
                f"the only lane of `{name}` may be void where it is broadcast",
                operand.span,
                "broadcast here",
                notes=(
                    f"the lane is valid only while `{limit}` is positive; "
                    "a void lane has no value to repeat",
                ),
                help="bound the loop, or the slice, so that the element is always inside",
            )
        )

    def _report_drift(self, name: str, before: ir.Domain, after: ir.Domain) -> None:
        tile = self.tiles[name]
        self.diagnostics.append(
            Diagnostic(
                "SK0421",
                Severity.ERROR,
                f"the valid lanes of `{tile.source_name}` change from one iteration to the next",
                tile.span,
                "carried around the loop",
                notes=(
                    f"valid before the loop: {describe(before)}; after its body: {describe(after)}",
                    "at the head of a loop the domain of a tile must not change (R12)",
                ),
                help="initialise the tile with `init=`, which gives it one domain for life",
            )
        )


def describe(domain: ir.Domain) -> str:
    """A domain in words: `all lanes`, or `[lane < M - i*T, all]`."""
    if all(axis.full for axis in domain):
        return "all lanes"
    parts = []
    for axis in domain:
        terms = [f"{show(bound)} <= lane" for bound in axis.lower]
        terms += [f"lane < {show(bound)}" for bound in axis.upper]
        parts.append(" and ".join(terms) or "all")
    return f"[{', '.join(parts)}]"


def _reads(operand: ir.Operand, tile: str) -> bool:
    return isinstance(operand, ir.TileOperand) and operand.tile == tile


def _swap(items: tuple[_Item, ...]) -> tuple[_Item, ...]:
    return (*items[:-2], items[-1], items[-2])


def _reduced(
    compute: ir.Compute, domain: ir.Domain, extents: tuple[ir.Expr, ...], rank: int
) -> tuple[ir.Domain, tuple[ir.Expr, ...]]:
    """The axes that survive a reduction; with keepdim a reduced axis has extent 1, always valid."""
    axes = compute.attributes["axis"]
    if not isinstance(axes, tuple):
        axes = (axes,)
    if rank == len(extents):
        return (
            tuple(ir.FULL if a in axes else valid for a, valid in enumerate(domain)),
            tuple(ir.Literal(1) if a in axes else e for a, e in enumerate(extents)),
        )
    kept = [a for a in range(len(extents)) if a not in axes]
    return tuple(domain[a] for a in kept), tuple(extents[a] for a in kept)


def _index_axes(
    value: ir.Expr, bindings: Mapping[str, ir.Expr], rank: int
) -> list[list[ir.AxisDomain]]:
    """For each axis of an index tile, the bounds that its `iota`s carry (R1)."""
    axes: list[list[ir.AxisDomain]] = [[] for _ in range(rank)]

    def place(domains: list[ir.AxisDomain], layout: tuple[bool, ...]) -> None:
        own = iter(domains)
        for axis, present in enumerate(layout, rank - len(layout)):
            if present:
                axes[axis].append(next(own))

    def visit(expression: ir.Expr, layout: tuple[bool, ...] | None) -> None:
        match expression:
            case ir.Iota(_, lower, upper, own):
                limit = () if upper is None else (simplify(ir.Binary("-", upper, lower)),)
                place([ir.AxisDomain((), limit)], layout or own)
            case ir.Ref(name, _, _, shape):
                if name in bindings:
                    visit(bindings[name], shape or layout)
            case ir.Unary(_, operand):
                visit(operand, layout)
            case ir.Binary(_, left, right):
                visit(left, layout)
                visit(right, layout)
            case ir.Function(_, arguments):
                for argument in arguments:
                    visit(argument, layout)
            case ir.Literal():
                pass
            case _:
                assert_never(expression)

    visit(value, None)
    return axes
