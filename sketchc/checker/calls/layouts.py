"""Index tiles: where their lanes come from, and new axes (`m[:, None]`)."""

from __future__ import annotations

from sketchc.base import records
from sketchc.base.diagnostics import Span
from sketchc.checker.context.context import Context
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.walk import tiles_read


def has_lanes(value: ir.Expr) -> bool:
    """Whether an expression is an index tile by itself."""
    return any(isinstance(part, ir.Iota | ir.TileLanes) for part in walk.parts(value))


def is_loaded(context: Context, value: ir.Expr) -> bool:
    """Whether some lanes of an expression come from a tile, directly or through a binding."""
    if tiles_read(value):
        return True
    return any(reference.name in context.loaded for reference in walk.references(value))


def shaped(
    value: ir.Expr, layout: tuple[bool, ...], rank: int, span: Span, context: Context
) -> ir.Expr:
    """Push new axes down to the index tiles of an expression of `rank` axes."""
    match value:
        case ir.Iota(layout=own) | ir.TileLanes(layout=own):
            return records.evolve(value, layout=_composed(own, layout, rank))
        case ir.Ref(kind=ir.NameKind.BINDING, name=name) if name in context.index_ranks:
            own = value.layout or (True,) * context.index_ranks[name]
            return records.evolve(value, layout=_composed(own, layout, rank))
        case ir.Function():
            return value
        case _:
            return walk.changed(value, lambda part: shaped(part, layout, rank, span, context))


def _composed(own: tuple[bool, ...], layout: tuple[bool, ...], rank: int) -> tuple[bool, ...]:
    """The layout of a part (right-aligned in `rank` axes) after new axes are put in."""
    padded = iter((False,) * (rank - len(own)) + own)
    return tuple(next(padded) if kept else False for kept in layout)
