"""Tiles that the sketch does not name: for the steps of composites, and for operands that an
operation across lanes needs as tiles of their own."""

from __future__ import annotations

from sketchc.base.diagnostics import Span
from sketchc.base.types import DType
from sketchc.checker.context.context import Context
from sketchc.checker.context.names import TileState
from sketchc.ir import nodes as ir
from sketchc.ir.show import show, show_layout
from sketchc.ops.table import OPS


def fresh_tile(
    context: Context,
    stem: str,
    extents: tuple[ir.Expr, ...],
    dtype: DType,
    span: Span,
    source_name: str | None = None,
) -> TileState:
    """A tile without `init=` whose name begins with `stem`; its alloc is left to the caller. Where
    it only stands for a tile of the sketch, findings speak of that, `source_name`."""
    spelt = context.namer.fresh(stem)
    tile = TileState(
        name=spelt,
        source_name=source_name or spelt,
        extents=extents,
        dtype=dtype,
        initial=None,
        hints=(),
        loops=tuple(loop.identity for loop in context.loops),
        phase=context.phase,
        span=span,
    )
    context.tiles.append(tile)
    return tile


def copied(
    context: Context, operand: ir.Operand, stem: str, extents: tuple[ir.Expr, ...], dtype: DType
) -> tuple[tuple[ir.Statement, ...], TileState]:
    """Statements that copy an operand, as it is, into a tile of its own, and that tile."""
    span = operand.span
    tile = fresh_tile(context, stem, extents, dtype, span)
    attributes = {one.name: one.default for one in OPS["copy"].attributes}
    text = f"copy({shown_operand(operand)}, {tile.name})"
    copy = ir.Compute(
        "copy", (operand,), tile.name, dtype.compute, attributes, text=text, span=span
    )
    return (ir.Alloc(tile.name, span=span), copy), tile


def shown_operand(operand: ir.Operand) -> str:
    """An operand as a sketch writes it."""
    if isinstance(operand, ir.TileOperand):
        return operand.tile + ("" if operand.layout is None else show_layout(operand.layout))
    return show(operand.value)
