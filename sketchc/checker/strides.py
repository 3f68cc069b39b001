"""The commonest mistake with tile loops, and its repairs: `range(ceil(M, T))` with `A[i:i+T]`.

The loop counts tiles, the slice counts elements. Either multiply (`i*T:(i+1)*T`), or let the loop
count elements (`range(0, M, T)`).
"""

from __future__ import annotations

from sketchc import ir
from sketchc.checker.sites import Site
from sketchc.diagnostics import Edit, Fix
from sketchc.source import NOWHERE
from sketchc.symbolic import equal, show


def overlap_fixes(site: Site) -> tuple[Fix, ...]:
    """Fixes for each loop of a site that counts tiles while the site's slices count elements."""
    fixes: list[Fix] = []
    for loop in site.loops:
        tiling = _tiles(loop)
        if tiling is None:
            continue
        extent, tile = tiling
        wrong = [s for s in site.access.subscripts if _counts_elements(s, loop, tile)]
        if not wrong:
            continue
        if loop.stop.span != NOWHERE:
            edit = Edit(loop.stop.span, f"{_from_zero(loop)}{show(extent)}, {show(tile)}")
            fixes.append(Fix(f"let `{loop.variable}` count elements", (edit,)))
        edits = tuple(
            Edit(
                s.lower.span.to(s.upper.span),
                f"{loop.variable}*{show(tile)}:({loop.variable}+1)*{show(tile)}",
            )
            for s in wrong
            if isinstance(s, ir.SliceSubscript) and s.lower.span != NOWHERE
        )
        if edits:
            fixes.append(Fix(f"let `{loop.variable}` count tiles here", edits))
    return tuple(fixes)


def _tiles(loop: ir.For) -> tuple[ir.Expr, ir.Expr] | None:
    """(M, T) of `range(ceil(M, T))`."""
    if loop.start != ir.Literal(0) or loop.step != ir.Literal(1):
        return None
    if isinstance(loop.stop, ir.Binary) and loop.stop.operator == "cdiv":
        return loop.stop.left, loop.stop.right
    return None


def _counts_elements(
    subscript: ir.ScalarSubscript | ir.SliceSubscript, loop: ir.For, tile: ir.Expr
) -> bool:
    """`i:i+T`"""
    if not isinstance(subscript, ir.SliceSubscript):
        return False
    if not isinstance(subscript.lower, ir.Ref) or subscript.lower.name != loop.variable:
        return False
    return equal(subscript.upper, ir.Binary("+", subscript.lower, tile))


def _from_zero(loop: ir.For) -> str:
    """`0, ` where the range was written without its start."""
    return "" if loop.start.span not in (NOWHERE, loop.stop.span) else "0, "
