"""Every access form as one thing: the element index of each lane, one expression per dimension.

Proofs, the interpreter and the emitters' general path read accesses this way; emitters take the
short cut for slices where they can.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import TypeVar, assert_never

from sketchc.base import records
from sketchc.base.diagnostics import InternalError
from sketchc.ir import nodes as ir
from sketchc.ir.walk import changed

_T = TypeVar("_T")


def element_indices(access: ir.Access, extents: tuple[ir.Expr, ...]) -> tuple[ir.Expr, ...]:
    """The element index of each lane of a tile with these `extents`, per dimension of the tensor.

    Each is a scalar expression or an index tile whose layout says on which of the tile's axes it
    varies; it broadcasts, right-aligned, to the tile's shape.
    """
    rank = len(extents)
    result: list[ir.Expr] = []
    axis = 0
    for subscript in access.subscripts:
        match subscript:
            case ir.ScalarSubscript(index):
                result.append(index)
            case ir.SliceSubscript(lower, _, _, step):
                lanes = ir.Iota(extents[axis], ir.Literal(0), None, _on(axis, rank))
                scaled = lanes if step == ir.Literal(1) else ir.Binary("*", lanes, step)
                result.append(scaled if lower == ir.Literal(0) else ir.Binary("+", lower, scaled))
                axis += 1
            case ir.IndexSubscript(value, _, _, place):
                result.append(value)
                axis += place is not None
            case _:
                assert_never(subscript)
    return tuple(result)


def _on(axis: int, rank: int) -> tuple[bool, ...]:
    """The layout of a vector that varies along `axis` of a tile of this rank."""
    return tuple(other == axis for other in range(axis, rank))


def laid_out(own: Iterable[_T], layout: tuple[bool, ...] | None, new: _T) -> tuple[_T, ...]:
    """What belongs to each axis after `[:, None]`: `own` in order, `new` for each new axis."""
    if layout is None:
        return tuple(own)
    axes = iter(own)
    return tuple(next(axes) if kept else new for kept in layout)


def relayout(value: ir.Expr, layout: tuple[bool, ...], indexed: Container[str]) -> ir.Expr:
    """An index tile of rank 1 (or a scalar, left alone) laid out along one axis: `e[:, None]`.

    `indexed` holds the names of the bindings that have lanes. Raises `InternalError` for parts of
    a higher rank.
    """
    match value:
        case ir.Ref(name=name) if name not in indexed:
            return value
        case ir.Ref(layout=own) | ir.Iota(layout=own) | ir.TileLanes(layout=own):
            if own not in (None, (True,)):
                msg = "an index tile of rank 1 is expected"
                raise InternalError(msg)
            return records.evolve(value, layout=layout)
        case ir.Function():
            return value
        case _:
            return changed(value, lambda part: relayout(part, layout, indexed))


def kept_axes(before: Sequence[_T], after: Sequence[_T], one: _T) -> tuple[int | None, ...]:
    """For each axis of a shape, the axis that it is after `reshape`; None for one that is split or
    merged, or that has extent 1 and goes. Leading and trailing axes that both shapes share map one
    to one, also where axes of extent `one` come or go between them."""
    found: list[int | None] = [None for _ in before]
    old, new = list(range(len(before))), list(range(len(after)))
    for _ in range(2):
        while old and new and before[old[0]] == after[new[0]]:
            found[old.pop(0)] = new.pop(0)
        while old and new and before[old[-1]] == after[new[-1]]:
            found[old.pop()] = new.pop()
        old = [axis for axis in old if before[axis] != one]
        new = [axis for axis in new if after[axis] != one]
    return tuple(found)
