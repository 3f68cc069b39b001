"""Every load and store of a sketch with where it stands, and the elements it touches as facts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from sketchc import ir
from sketchc import records as attrs
from sketchc.checker.affine import Fact, Linear, add, constant
from sketchc.checker.scope import Scope
from sketchc.source import Span


@attrs.frozen
class Site:
    """One load or store. `path` lists the loops and bindings around and before it, in order, so
    that its scope can be made again under renamed loop variables."""

    statement: ir.Load | ir.Store
    tile: ir.Tile
    tensor: ir.Tensor
    path: tuple[ir.For | ir.Bind, ...]
    scope: Scope
    phase: int

    @property
    def access(self) -> ir.Access:
        return self.statement.access

    @property
    def stores(self) -> bool:
        return isinstance(self.statement, ir.Store)

    @property
    def loops(self) -> tuple[ir.For, ...]:
        return self.scope.loops

    @property
    def span(self) -> Span:
        return self.statement.span


def collect(sketch: ir.Sketch, root: Scope) -> tuple[Site, ...]:
    """All sites in program order."""
    tiles = {tile.name: tile for tile in sketch.tiles}

    def visit(
        body: tuple[ir.Statement, ...], scope: Scope, path: tuple[ir.For | ir.Bind, ...], phase: int
    ) -> Iterator[Site]:
        for statement in body:
            match statement:
                case ir.Load() | ir.Store():
                    tensor = sketch.tensor(statement.access.tensor)
                    yield Site(statement, tiles[statement.tile], tensor, path, scope, phase)
                case ir.Bind(name, value):
                    scope, path = scope.bind(name, value), (*path, statement)
                case ir.For():
                    yield from visit(
                        statement.body, scope.enter(statement), (*path, statement), phase
                    )
                case ir.Alloc() | ir.Compute():
                    pass
                case _:
                    assert_never(statement)

    return tuple(
        site
        for phase, nest in enumerate(sketch.phases)
        for site in visit(nest.body, root, (), phase)
    )


def replay(root: Scope, path: tuple[ir.For | ir.Bind, ...], suffix: str) -> Scope:
    """The scope at the end of a path, its loop variables renamed with `suffix`."""
    scope = attrs.evolve(root, suffix=suffix)
    for step in path:
        scope = scope.enter(step) if isinstance(step, ir.For) else scope.bind(step.name, step.value)
    return scope


@attrs.frozen
class Touch:
    """The elements of one access: per tensor axis, the index as a form over loop variables and
    lanes, and the facts that bound the lanes (valid and in bounds)."""

    indices: tuple[Linear, ...]
    facts: tuple[Fact, ...]


def touched(site: Site, scope: Scope, suffix: str = "") -> Touch:
    """What `site` touches in one iteration of `scope` (its own, or a renamed copy)."""
    indices: list[Linear] = []
    facts: list[Fact] = []
    domain = iter(zip(site.tile.extents, site.statement.domain, strict=True))
    for number, subscript in enumerate(site.access.subscripts):
        match subscript:
            case ir.ScalarSubscript(index):
                indices.append(scope.form(index))
            case ir.SliceSubscript(lower):
                extent, valid = next(domain)
                lane = {scope.atoms.variable(f"'lane{number}{suffix}", non_negative=True): 1}
                indices.append(add(scope.form(lower), lane))
                facts.extend(lane_facts(scope, lane, extent, valid))
            case _:
                assert_never(subscript)
    return Touch(tuple(indices), tuple(facts))


def lane_facts(scope: Scope, lane: Linear, extent: ir.Expr, valid: ir.AxisDomain) -> Iterator[Fact]:
    """0 <= lane < extent, and the axis domain's bounds."""
    yield Fact(lane)
    for bound in (extent, *valid.upper):
        yield Fact(add(add(scope.form(bound), lane, -1), constant(-1)))
    for bound in valid.lower:
        yield Fact(add(lane, scope.form(bound), -1))
