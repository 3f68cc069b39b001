"""Which lanes around an accumulator go to a tensor as a whole tile.

Where they do, threads put them into a tile in shared memory, which the copy engine of the chip
writes: a thread has pairs of columns of a fragment, and would write 4 bytes at a time. What lies
beyond the tensor's ends the engine leaves out.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir.symbolic import simplify
from sketchc.ir.walk import references
from sketchc.lowering.loops import nodes
from sketchc.lowering.tilelang_cuda.products import Bound, alone, ends_there

#: Types of tensors that tiles are written to.
_TYPES = frozenset({DType.F16, DType.BF16, DType.F32})


@attrs.frozen
class Delivery:
    """The row of a tensor, in its own `shape`, that a rectangle of lanes writes, and the tensor's
    index of the tile's first element."""

    row: nodes.Row
    shape: tuple[ir.Expr, ...]
    window: tuple[ir.Expr, ...]


def delivery(
    loop: nodes.Loop,
    lanes: nodes.LaneLoop,
    outputs: Mapping[str, tuple[ir.Expr, ...]],
    extents: tuple[int, int],
    bound: Bound,
) -> Delivery | None:
    """What a rectangle around an accumulator with a fragment of these extents delivers; None where
    it writes anything else, or only some of its lanes. `outputs` are the tensors that nothing but
    the launch writes, with their shapes."""
    body, asked = alone(lanes.body)
    if asked or any(isinstance(each, nodes.Branch) for each in nodes.walk(body)):
        return None
    written = [each for each in body if not isinstance(each, nodes.Note | nodes.Define)]
    match written:
        case [nodes.Write(name, ir.Ref(lane))] if lane == lanes.variable:
            rows = [row for row in lanes.rows if row.name == name and row.buffer in outputs]
        case _:
            return None
    if not rows or rows[0].dtype not in _TYPES:
        return None
    (row,) = rows
    shape = outputs[row.buffer]
    window = _window(row.base, shape, loop.variable)
    if window is None:
        return None
    ends = zip((loop.upper, lanes.upper), window[-2:], shape[-2:], extents, strict=True)
    whole = all(ends_there(*each, bound) for each in ends)
    return Delivery(row, shape, window) if whole else None


def _window(base: ir.Expr, shape: tuple[ir.Expr, ...], variable: str) -> tuple[ir.Expr, ...] | None:
    """The index, along each axis, of the element of a tensor of this shape at which row 0 of a tile
    begins, where `base` is that of a row with the number `variable`."""
    if len(shape) < 2:
        return None
    starts: list[ir.Expr] = []
    for extent in reversed(shape[1:]):
        start: ir.Expr = ir.Literal(0)
        match base:
            case ir.Binary("+", ir.Binary("*", rest, size), start) if size == extent:
                pass
            case ir.Binary("*", rest, size) if size == extent:
                pass
            case _:
                return None
        starts.insert(0, start)
        base = rest
    starts.insert(0, base)
    row = ir.Ref(variable, ir.NameKind.LOOP)
    starts[-2] = simplify(ir.Binary("-", starts[-2], row))
    if any(each.name == variable for start in starts for each in references(start)):
        return None
    return tuple(starts)
