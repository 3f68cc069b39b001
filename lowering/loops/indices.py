"""Index arithmetic: row-major element indices, strides, and index tiles at given lanes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import assert_never

from sketchc.base.diagnostics import InternalError
from sketchc.ir import nodes as ir
from sketchc.ir.symbolic import constant_value
from sketchc.ir.walk import changed, children
from sketchc.launch.conditions import actual_extent

ZERO = ir.Literal(0)
ONE = ir.Literal(1)


def step_name(tensor: str, axis: int) -> str:
    """The host scalar that is 0 where a broadcastable axis has extent 1, else 1."""
    return f"{tensor}_step_{axis}"


def _plus(left: ir.Expr, right: ir.Expr) -> ir.Expr:
    if left == ZERO:
        return right
    return left if right == ZERO else ir.Binary("+", left, right)


def _times(left: ir.Expr, right: ir.Expr) -> ir.Expr:
    if ZERO in (left, right):
        return ZERO
    if left == ONE:
        return right
    return left if right == ONE else ir.Binary("*", left, right)


def _broadcast(tensor: ir.Tensor | None, axis: int) -> bool:
    return tensor is not None and axis < len(tensor.broadcast) and tensor.broadcast[axis]


def _extent(extents: tuple[ir.Expr, ...], axis: int, tensor: ir.Tensor | None) -> ir.Expr:
    if tensor is not None and _broadcast(tensor, axis):
        return ir.Ref(actual_extent(tensor.name, axis), ir.NameKind.LET)
    return extents[axis]


def row_major(
    indices: tuple[ir.Expr, ...], extents: tuple[ir.Expr, ...], tensor: ir.Tensor | None
) -> ir.Expr:
    """The element number of `indices`, in Horner's form. Axes of `tensor` that may have extent 1
    count with their actual extent and step."""
    total: ir.Expr = ZERO
    for axis, index in enumerate(indices):
        stepped = index
        if tensor is not None and _broadcast(tensor, axis):
            step = ir.Ref(step_name(tensor.name, axis), ir.NameKind.LET)
            stepped = _times(index, step)
        total = _plus(_times(total, _extent(extents, axis, tensor)), stepped)
    return total


def strides(extents: tuple[ir.Expr, ...], tensor: ir.Tensor | None) -> tuple[ir.Expr, ...]:
    """Elements from one index to the next, per axis."""
    found: list[ir.Expr] = []
    stride: ir.Expr = ONE
    for axis in range(len(extents) - 1, -1, -1):
        own = stride
        if tensor is not None and _broadcast(tensor, axis):
            own = _times(stride, ir.Ref(step_name(tensor.name, axis), ir.NameKind.LET))
        found.insert(0, own)
        stride = _times(_extent(extents, axis, tensor), stride)
    return tuple(found)


def resolve_index(
    expression: ir.Expr,
    lanes: tuple[ir.Expr, ...],
    bindings: Mapping[str, ir.Expr],
    element: Callable[[ir.TileLanes, tuple[ir.Expr, ...]], ir.Expr],
) -> ir.Expr:
    """An index tile's value at one lane. `lanes` gives the lane of each of its axes; operands of
    lower rank are aligned to the right. `element` gives a tile's value at its own lanes."""

    def inner(part: ir.Expr) -> ir.Expr:
        return resolve_index(part, lanes, bindings, element)

    match expression:
        case ir.Ref(name, kind, layout=layout):
            if kind is not ir.NameKind.BINDING or name not in bindings:
                return expression
            value = bindings[name]
            rank = index_rank(value, bindings)
            if rank == 0:
                return expression
            return resolve_index(value, _own(lanes, layout, rank), bindings, element)
        case ir.Literal() | ir.Unary() | ir.Binary() | ir.Choice() | ir.Function():
            return changed(expression, inner)
        case ir.Iota(extent, lower, _, layout):
            (lane,) = _own(lanes, layout, 1)
            return _plus(lower, ZERO if constant_value(extent) == 1 else lane)
        case ir.TileLanes(extents=extents, layout=layout):
            own = _own(lanes, layout, len(extents))
            return element(
                expression,
                tuple(
                    ZERO if constant_value(extent) == 1 else lane
                    for extent, lane in zip(extents, own, strict=True)
                ),
            )
        case _:
            assert_never(expression)


def _own(
    lanes: tuple[ir.Expr, ...], layout: tuple[bool, ...] | None, rank: int
) -> tuple[ir.Expr, ...]:
    """The lanes of an expression's own axes, given those of the axes around it."""
    if layout is None:
        return lanes[len(lanes) - rank :]
    aligned = lanes[len(lanes) - len(layout) :]
    own = tuple(lane for lane, mine in zip(aligned, layout, strict=True) if mine)
    if len(own) != rank:
        msg = "an index tile's layout does not fit its rank"
        raise InternalError(msg)
    return own


def index_rank(expression: ir.Expr, bindings: Mapping[str, ir.Expr]) -> int:
    """The number of axes of an index tile; 0 for a scalar."""
    match expression:
        case ir.Ref(name, kind, layout=layout):
            if kind is not ir.NameKind.BINDING or name not in bindings:
                return 0
            rank = index_rank(bindings[name], bindings)
            return rank if layout is None or rank == 0 else len(layout)
        case ir.Iota(layout=layout) | ir.TileLanes(layout=layout):
            return len(layout)
        case _:
            ranks = (index_rank(part, bindings) for part in children(expression))
            return max(ranks, default=0)
