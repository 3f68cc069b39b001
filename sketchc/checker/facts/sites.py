"""Every access of a sketch with where it stands, and the elements it touches as facts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias, assert_never

from sketchc.base import records
from sketchc.base.diagnostics import Span
from sketchc.checker.facts.affine import Fact, Linear, add, constant
from sketchc.checker.facts.scope import Branch, Scope, Step, host_path, phase_scope
from sketchc.ir import nodes as ir


@records.frozen
class Site:
    """One load, store, atomic or fetch in a phase. `path` lists the steps that lead there (loops,
    branches, bindings, fetches), those of the host first, so that its scope can be made again under
    renamed loop variables. A fetch touches one element, as with a tile of rank 0."""

    statement: ir.Load | ir.Store | ir.Atomic | ir.Fetch
    tile: ir.Tile
    tensor: ir.Tensor
    path: tuple[Step, ...]
    scope: Scope
    phase: int
    host_steps: int = 0  # so many steps of the path are the host's

    @property
    def access(self) -> ir.Access:
        return self.statement.access

    @property
    def stores(self) -> bool:
        """Whether memory is written: by a store or an atomic."""
        return isinstance(self.statement, ir.Store | ir.Atomic)

    @property
    def loads(self) -> bool:
        """Whether memory is read: an atomic does both."""
        return not isinstance(self.statement, ir.Store)

    @property
    def atomic(self) -> str | None:
        """The operation of an atomic; None for other accesses."""
        return self.statement.operation if isinstance(self.statement, ir.Atomic) else None

    @property
    def domain(self) -> ir.Domain:
        """The lanes that are read or written, as far as intervals per axis can tell."""
        match self.statement:
            case ir.Load(read=read, domain=domain):
                found = read or domain
            case ir.Store(domain=domain) | ir.Atomic(domain=domain):
                found = domain
            case ir.Fetch():
                found = ()
            case _:
                assert_never(self.statement)
        return found or (ir.FULL,) * len(self.tile.extents)

    @property
    def guards(self) -> tuple[ir.Expr, ...]:
        """What else must hold for a lane to be read or written."""
        return () if isinstance(self.statement, ir.Fetch) else self.statement.guards

    @property
    def loops(self) -> tuple[ir.For, ...]:
        return self.scope.loops

    @property
    def span(self) -> Span:
        return self.statement.span


@records.frozen
class Computation:
    """A statement that computes, and the steps that lead there, as of a site."""

    statement: ir.Compute
    path: tuple[Step, ...]
    scope: Scope


#: A statement, its scope, the steps that lead there, and its phase.
Placed: TypeAlias = tuple[ir.Statement, Scope, tuple[Step, ...], int]


def collect(sketch: ir.Sketch, root: Scope) -> tuple[Site, ...]:
    """All sites in program order."""
    tiles = {tile.name: tile for tile in sketch.tiles}
    found = []
    for statement, scope, path, phase in placed(sketch, root):
        if not isinstance(statement, ir.Load | ir.Store | ir.Atomic | ir.Fetch):
            continue
        hosts = len(host_path(sketch, phase))
        tensor = sketch.tensor(statement.access.tensor)
        if isinstance(statement, ir.Fetch):
            tile = ir.Tile(statement.name, statement.name, (), statement.dtype)
        else:
            tile = tiles[statement.tile]
        found.append(Site(statement, tile, tensor, path, scope, phase, hosts))
    return tuple(found)


def computations(sketch: ir.Sketch, root: Scope) -> tuple[Computation, ...]:
    """All statements that compute, in program order."""
    return tuple(
        Computation(statement, path, scope)
        for statement, scope, path, _ in placed(sketch, root)
        if isinstance(statement, ir.Compute)
    )


def placed(sketch: ir.Sketch, root: Scope) -> Iterator[Placed]:
    """Every statement, with its scope, the steps that lead there, its phase."""

    def visit(
        body: tuple[ir.Statement, ...], scope: Scope, path: tuple[Step, ...], phase: int
    ) -> Iterator[Placed]:
        for statement in body:
            yield statement, scope, path, phase
            match statement:
                case ir.Fetch() | ir.Bind():
                    scope, path = scope.after(statement), (*path, statement)
                case ir.For():
                    inner = (*path, statement)
                    yield from visit(statement.body, scope.after(statement), inner, phase)
                case ir.If(condition, body=then, orelse=orelse):
                    for holds, part in ((True, then), (False, orelse)):
                        step = Branch(condition, holds)
                        yield from visit(part, scope.after(step), (*path, step), phase)
                case _:
                    pass

    for phase, nest in enumerate(sketch.phases):
        path = host_path(sketch, phase)
        yield from visit(nest.body, phase_scope(sketch, root, phase), path, phase)


def loops_of(site: Site) -> tuple[ir.For | ir.HostFor, ...]:
    """The loops around a site, those of the host first."""
    return tuple(step for step in site.path if isinstance(step, ir.For | ir.HostFor))


def lane_facts(scope: Scope, lane: Linear, extent: ir.Expr, valid: ir.AxisDomain) -> Iterator[Fact]:
    """0 <= lane < extent, and the axis domain's bounds."""
    yield Fact(lane)
    for bound in (extent, *valid.upper):
        yield Fact(add(add(scope.form(bound), lane, -1), constant(-1)))
    for bound in valid.lower:
        yield Fact(add(lane, scope.form(bound), -1))
