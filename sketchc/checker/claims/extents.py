"""Tile extents are not negative: proved where the tile is allocated, or checked at launch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from sketchc.checker.facts.answers import Finding
from sketchc.checker.facts.prover import Prover
from sketchc.checker.facts.scope import Scope, phase_scope
from sketchc.ir import nodes as ir
from sketchc.ir.show import show
from sketchc.ir.walk import names


def findings(prover: Prover) -> list[Finding]:
    """One launch check for each extent of host scalars that some sizes would make negative."""
    tiles = {tile.name: tile for tile in prover.sketch.tiles}
    result: dict[str, Finding] = {}
    for name, scope in _allocs(prover):
        variables = scope.forms.keys() - prover.root.forms.keys()
        for extent in tiles[name].extents:
            if scope.proves(scope.form(extent)) or names(extent) & variables:
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
            match statement:
                case ir.Alloc(tile):
                    yield tile, scope
                case ir.Bind() | ir.Fetch():
                    scope = scope.after(statement)
                case ir.For():
                    yield from visit(statement.body, scope.after(statement))
                case ir.If(condition, body=then, orelse=orelse):
                    yield from visit(then, scope.given(condition))
                    yield from visit(orelse, scope.given(condition, holds=False))
                case ir.Load() | ir.Store() | ir.Atomic() | ir.Compute():
                    pass
                case _:
                    assert_never(statement)

    for index, phase in enumerate(prover.sketch.phases):
        yield from visit(phase.body, phase_scope(prover.sketch, prover.root, index))
