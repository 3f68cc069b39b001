"""How the threads of a block share a matrix product: the shape of its blocks, and the shared memory
that operands pass through."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir.walk import references
from sketchc.lowering.cuda_c.vectors import most_lanes
from sketchc.lowering.loops import nodes

#: Warps of a block, as in `library/product.hpp`.
WARPS = 4
#: Types that matrix units multiply, with sums in f32.
MATRIX = (DType.F16, DType.BF16)
#: Rows and columns of a block that are tried, the largest first, and those for extents that only
#: the launch tells.
_SIDES, _UNKNOWN = (128, 64, 32), 64
#: See `library/product.hpp`: elements of a part, depth of all stages together.
_PART, _STAGED = 16, 128
_THREADS_DOWN, _ELEMENT_DEPTH = 16, 8


@attrs.frozen
class Shape:
    """The template arguments of `multiply_along`, the rows and columns of a block, and the bytes
    that its operands take in shared memory."""

    down: int
    tall: int
    wide: int
    depth: int
    rows: int
    columns: int
    bytes: int


def shape_of(call: nodes.Call, constants: Mapping[str, ir.Expr], most_bytes: int) -> Shape:
    """How a product is shared, in at most so many bytes of shared memory."""
    sides = [most_lanes(extent, constants) or _UNKNOWN for extent in call.extents[:2]]
    depth = most_lanes(call.extents[2], constants)
    for limit in _SIDES:
        rows, columns = (min(side, limit) for side in sides)
        found = _shape(call, rows, columns, depth is None or depth > 32)
        if found.bytes <= most_bytes:
            return found
    raise AssertionError("the smallest block needs less than what is always left")


def extra_bytes(
    program: nodes.Program,
    near: Mapping[str, int],
    constants: Mapping[str, ir.Expr],
    left: int,
) -> int:
    """The bytes of shared memory for operands of the products of a program, beside its storages;
    see `fits_in`."""
    shapes = [
        (each, shape_of(each, constants, left))
        for each in nodes.walk(program.body)
        if isinstance(each, nodes.Call) and each.name == "multiply"
    ]
    needed = (s.bytes for call, s in shapes if not fits_in(call, s, near, constants))
    return max(needed, default=0)


def fits_in(
    call: nodes.Call, shape: Shape, near: Mapping[str, int], constants: Mapping[str, ir.Expr]
) -> bool:
    """Whether operands may pass through the memory of the product's destination, whose elements are
    in registers meanwhile: `near` has the bytes of storages in shared memory."""
    sides = [most_lanes(extent, constants) for extent in call.extents[:2]]
    one = sides[0] is not None and sides[0] <= shape.rows
    one = one and sides[1] is not None and sides[1] <= shape.columns
    return one and near.get(call.views[2].buffer, 0) >= shape.bytes


def along(loop: nodes.SerialLoop) -> nodes.Call | None:
    """The product to which each turn of a loop adds, if there is nothing else in the loop."""
    body = [each for each in loop.body if not isinstance(each, nodes.Note)]
    call = body[0] if len(body) == 1 else None
    if not isinstance(call, nodes.Call) or call.name != "multiply":
        return None
    views = [view for view in call.views if isinstance(view, nodes.MatrixView)]
    steps = (step for view in views for step in (view.row, view.column))
    fixed = (*call.extents[:2], views[2].origin, *steps)
    moves = any(name.name == loop.variable for each in fixed for name in references(each))
    return None if moves or loop.direction != 1 else call


def lies_along(step: ir.Expr) -> bool:
    """Whether neighbours in memory are neighbours along an axis with this step."""
    return step == ir.Literal(1)


def _on_matrix_units(call: nodes.Call) -> bool:
    left, right, to = (view.dtype for view in call.views)
    return left is right and left in MATRIX and to is DType.F32


def _shape(call: nodes.Call, rows: int, columns: int, deep: bool) -> Shape:
    if _on_matrix_units(call):
        parts = -(-rows // _PART), -(-columns // _PART)
        return _of_warps(*parts, 64 if deep else 32, call.views[0].dtype)
    to, across = call.views[2].dtype, 2 * WARPS
    most = 64 if to.bytes > 4 else 128
    tall = -(-min(rows, most) // _THREADS_DOWN)
    wide = -(-min(columns, most) // across)
    rows, columns = tall * _THREADS_DOWN, wide * across
    size = 2 * _ELEMENT_DEPTH * (rows + columns) * to.bytes
    return Shape(0, tall, wide, _ELEMENT_DEPTH, rows, columns, size)


def _of_warps(down: int, across: int, depth: int, dtype: DType) -> Shape:
    """The shape for so many parts above each other and beside, with the fewest for each warp."""

    def parts(above: int) -> tuple[int, int]:
        return -(-down // above), -(-across // (WARPS // above))

    above = min((1, 2, 4), key=lambda each: (parts(each)[0] * parts(each)[1], sum(parts(each))))
    tall, wide = parts(above)
    rows, columns = above * tall * _PART, WARPS // above * wide * _PART
    padded = sum(1 << (side - 1).bit_length() for side in (rows, columns))
    return Shape(above, tall, wide, depth, rows, columns, _STAGED * padded * dtype.bytes)
