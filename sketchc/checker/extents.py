"""Tile extents are not negative: proved where the tile is allocated, or checked at launch."""

from __future__ import annotations

from collections.abc import Iterator

from sketchc import ir
from sketchc.checker.prover import Prover
from sketchc.checker.scope import Scope, free_names
from sketchc.checker.verdicts import Finding
from sketchc.symbolic import show


def findings(prover: Prover) -> list[Finding]:
    """One launch check for each extent of host scalars that some sizes would make negative."""
    tiles = {tile.name: tile for tile in prover.sketch.tiles}
    result: dict[str, Finding] = {}
    for name, scope in _allocs(prover):
        variables = {loop.variable for loop in scope.loops} | scope.bindings.keys()
        for extent in tiles[name].extents:
            if scope.proves(scope.form(extent)) or free_names(extent) & variables:
                continue
            condition = ir.Binary("<=", ir.Literal(0), extent)
            text = show(condition)
            detail = f"extents are not negative when `{text}`, which the host checks"
            span = tiles[name].span
            proof = ir.Proof(
                "slice-fits",
                tiles[name].source_name,
                ir.Tier.CHECKED_AT_LAUNCH,
                detail,
                span=span,
            )
            require = ir.Require(condition, text, generated=True, span=span)
            result.setdefault(text, Finding(proof, (), (require,)))
    return list(result.values())


def _allocs(prover: Prover) -> Iterator[tuple[str, Scope]]:
    def visit(body: tuple[ir.Statement, ...], scope: Scope) -> Iterator[tuple[str, Scope]]:
        for statement in body:
            if isinstance(statement, ir.Alloc):
                yield statement.tile, scope
            elif isinstance(statement, ir.Bind):
                scope = scope.bind(statement.name, statement.value)
            elif isinstance(statement, ir.For):
                yield from visit(statement.body, scope.enter(statement))

    for phase in prover.sketch.phases:
        yield from visit(phase.body, prover.root)
