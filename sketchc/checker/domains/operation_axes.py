"""Where the axes of an operation's operands end up, and over which ones lanes meet (R2, R3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from sketchc.checker.facts.affine import constant
from sketchc.checker.facts.scope import Scope
from sketchc.ir import nodes as ir
from sketchc.ir.lanes import kept_axes
from sketchc.ops.table import OPS, Category, Shape

#: For each axis of an operand, the destination's axis that it becomes; None for one that is
#: consumed.
AxisMap = tuple[int | None, ...]

_T = TypeVar("_T")


def attribute_axes(compute: ir.Compute, name: str = "axis") -> tuple[int, ...]:
    """The value of an attribute that names one axis or several."""
    value = compute.attributes.get(name)
    if isinstance(value, int):
        return (value,)
    return tuple(value) if isinstance(value, tuple | list) else ()


def axis_map(
    compute: ir.Compute,
    position: int,
    extents: Sequence[ir.Expr],
    result: Sequence[ir.Expr],
    scope: Scope,
) -> AxisMap:
    """Where each axis of the operand at `position` ends up in a destination of shape `result`."""
    op = OPS[compute.operation]
    rank, offset = len(extents), len(result) - len(extents)
    aligned: AxisMap = tuple(axis + offset for axis in range(rank))
    match op.shape:
        case Shape.TRANSPOSED:
            return _swap(aligned)
        case Shape.REDUCED:
            return _reduced(attribute_axes(compute), rank, len(result))
        case Shape.MATRIX_PRODUCT:
            flag = compute.attributes.get(("trans_a", "trans_b")[position])
            last: AxisMap = ((len(result) - 2, None), (None, len(result) - 1))[position]
            return (*aligned[:-2], *(_swap(last) if flag else last))
        case Shape.TOP_K:
            axes = attribute_axes(compute)
            # An index of lower rank is aligned to the right, as in NumPy.
            return tuple(None if place in axes else place for place in aligned)
        case Shape.REARRANGED if op.name == "permute":
            order = attribute_axes(compute, "axes")
            return tuple(order.index(axis) for axis in range(rank))
        case Shape.REARRANGED if op.name == "reshape":
            return _reshaped(extents, result, scope)
        case _:
            return aligned


def _swap(items: tuple[_T, ...]) -> tuple[_T, ...]:
    return (*items[:-2], items[-1], items[-2])


def _reduced(axes: tuple[int, ...], rank: int, result: int) -> AxisMap:
    """The axes that survive a reduction; with keepdim the reduced ones have extent 1."""
    if rank == result:
        return tuple(None if axis in axes else axis for axis in range(rank))
    kept = [axis for axis in range(rank) if axis not in axes]
    return tuple(kept.index(axis) if axis in kept else None for axis in range(rank))


def _reshaped(extents: Sequence[ir.Expr], result: Sequence[ir.Expr], scope: Scope) -> AxisMap:
    """Leading and trailing axes that both shapes share map one to one, also when axes of extent 1
    come or go between them; the others are split or merged."""
    before = [scope.form(extent) for extent in extents]
    return kept_axes(before, [scope.form(extent) for extent in result], constant(1))


def own_axes(compute: ir.Compute, rank: int, first: int) -> tuple[int, ...]:
    """The axes that `axis=` names, as axes of an operand of this rank. It names those of the first
    operand, of rank `first`; an index of lower rank is aligned to the right."""
    return tuple(axis - (first - rank) for axis in attribute_axes(compute) if axis >= first - rank)


def cross_lane(compute: ir.Compute, position: int, rank: int, first: int) -> tuple[int, ...]:
    """The axes of an operand over which lanes meet; `first` is the rank of the first operand."""
    op = OPS[compute.operation]
    match op.category:
        case Category.REDUCTION | Category.INDEX | Category.SCAN | Category.SORTING:
            return own_axes(compute, rank, first)
        case Category.MATRIX:
            flag = bool(compute.attributes.get(("trans_a", "trans_b")[position]))
            return (rank - 1 if (position == 0) != flag else rank - 2,)
        case _:
            return ()
