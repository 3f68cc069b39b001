"""Tile extents are not negative: proved where the tile is allocated, or checked at launch."""

from __future__ import annotations

from sketchc.checker.facts.answers import Finding
from sketchc.checker.facts.prover import Prover
from sketchc.checker.facts.sites import placed
from sketchc.ir import nodes as ir
from sketchc.ir.show import show
from sketchc.ir.walk import names


def findings(prover: Prover) -> list[Finding]:
    """One launch check for each extent of host scalars that some sizes would make negative."""
    tiles = {tile.name: tile for tile in prover.sketch.tiles}
    result: dict[str, Finding] = {}
    for statement, scope, _, _ in placed(prover.sketch, prover.root):
        if not isinstance(statement, ir.Alloc):
            continue
        name = statement.tile
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
