"""Where the lanes of a tile lie in memory: a pointer and offsets, for every form of access.

An offset is the sum of a scalar (lane 0's, as far as it is known apart) and one vector for every
dimension that lanes vary along. Slices of step 1 are *plain*: their vectors are lane numbers, which
the Ascend front end needs in order to see blocks of memory.
"""

from __future__ import annotations

from typing import assert_never

import attrs

from sketchc.ir import nodes as ir
from sketchc.lowering.precedence import PYTHON, Code, parenthesised
from sketchc.lowering.python_host.expressions import is_literal
from sketchc.lowering.triton.expressions import broadcast, index_shape, kernel_expression
from sketchc.lowering.triton.scope import Scope, spread

Shape = tuple[Code, ...]


@attrs.frozen
class Place:
    """Element offsets from `pointer`: the parts are summed. `shape` is what the vectors among them
    broadcast to; the tensor has these extents, and strides where they are not those of a dense
    one."""

    tensor: str
    pointer: Code
    parts: tuple[Code, ...]
    shape: Shape
    extents: tuple[ir.Expr, ...]
    strides: tuple[Code, ...] | None

    @property
    def address(self) -> Code:
        return PYTHON.fold("+", [self.pointer, *self.parts])

    def inside(self, stem: str, scope: Scope) -> Code:
        """The address with offsets outside of the tensor brought to its ends; the wrapper gives a
        tensor without elements one."""
        scope.read_anyway[self.tensor] = None
        if not self.parts:
            return self.address
        last = self._last(scope)
        offset = PYTHON.call("tl.minimum", PYTHON.fold("+", list(self.parts)), last)
        offset = PYTHON.call("tl.maximum", offset, Code("0"))
        return PYTHON.binary("+", self.pointer, scope.bind(f"{stem}_at", offset))

    def _last(self, scope: Scope) -> Code:
        """The largest offset inside of the tensor."""
        one = Code("1")
        if self.strides is None:
            product = _product(self.extents, scope)
            return Code("0") if product is None else PYTHON.binary("-", product, one)
        reaches = [
            PYTHON.binary("*", PYTHON.binary("-", kernel_expression(e, scope), one), stride)
            for e, stride in zip(self.extents, self.strides, strict=True)
        ]
        return PYTHON.fold("+", reaches) if reaches else Code("0")


def is_plain(access: ir.Access) -> bool:
    """True where the access has scalars and slices of step 1 only."""
    return not any(
        isinstance(subscript, ir.IndexSubscript)
        or (isinstance(subscript, ir.SliceSubscript) and not is_literal(subscript.step, 1))
        for subscript in access.subscripts
    )


def tensor_pointer(name: str, scope: Scope) -> Code:
    """The kernel's argument for a tensor or the tensor under a view."""
    tensor = scope.plan.sketch.tensor(name)
    scope.tensors[tensor.name] = None
    return Code(scope.names[f"{tensor.name}_ptr"])


def place(access: ir.Access, tile: str | None, scope: Scope) -> Place:
    """Where an access reads or writes; `tile` is None for a scalar (all subscripts are)."""
    tensor = scope.plan.sketch.tensor(access.tensor)
    pointer = tensor_pointer(access.tensor, scope)
    origin, vectors, shape = _split(access, tile, scope)
    extents = scope.plan.sketch.extents(access.tensor)
    if any(tensor.broadcast) and access.tensor == tensor.name:
        strides = [_stride_name(tensor, axis, scope) for axis in range(len(extents))]
        parts = _strided_origin(origin, strides, scope)
        parts += [_times(lane, strides[d]) for d, lane in vectors]
        return Place(tensor.name, pointer, tuple(parts), shape, extents, tuple(strides))
    parts = _dense_origin(origin, extents, scope)
    parts += [_times(lane, _dense_stride(extents[d + 1 :], scope)) for d, lane in vectors]
    return Place(tensor.name, pointer, tuple(parts), shape, extents, None)


def _split(
    access: ir.Access, tile: str | None, scope: Scope
) -> tuple[list[ir.Expr], list[tuple[int, Code]], Shape]:
    """The scalar part of each dimension's index, the vectors by dimension, and their shape."""
    shape = scope.shape(tile) if tile is not None else ()
    reached: Shape = ()
    origin: list[ir.Expr] = []
    vectors: list[tuple[int, Code]] = []
    axis = 0
    for dimension, subscript in enumerate(access.subscripts):
        match subscript:
            case ir.ScalarSubscript(index):
                origin.append(index)
            case ir.SliceSubscript(lower, _, _, step):
                origin.append(lower)
                assert tile is not None
                if shape and scope.plan.tiles[tile].extents[axis].value != 1:
                    lane = spread(Code(scope.lane(shape[axis])), axis, len(shape))
                    if not is_literal(step, 1):
                        lane = PYTHON.binary("*", lane, kernel_expression(step, scope))
                    vectors.append((dimension, lane))
                    ones = [Code("1")] * len(shape)
                    ones[axis] = shape[axis]
                    reached = broadcast(reached, tuple(ones))
                axis += 1
            case ir.IndexSubscript(value, _, _, where):
                lanes = index_shape(value, scope)
                origin.append(ir.Literal(0) if lanes else value)
                if lanes:
                    vectors.append((dimension, kernel_expression(value, scope)))
                    reached = broadcast(reached, lanes)
                axis += where is not None
            case _:
                assert_never(subscript)
    return origin, vectors, reached


def _times(lane: Code, stride: Code | None) -> Code:
    return lane if stride is None else PYTHON.binary("*", lane, stride)


def _product(extents: tuple[ir.Expr, ...], scope: Scope) -> Code | None:
    codes = [kernel_expression(e, scope) for e in extents if not is_literal(e, 1)]
    return PYTHON.fold("*", codes) if codes else None


def _dense_stride(extents: tuple[ir.Expr, ...], scope: Scope) -> Code | None:
    product = _product(extents, scope)
    if product is None or product.level != PYTHON.binary_levels["*"]:
        return product
    return parenthesised(product)


def _dense_origin(origin: list[ir.Expr], extents: tuple[ir.Expr, ...], scope: Scope) -> list[Code]:
    """Offset of lane 0 by Horner's rule: `((b * F + f) * D1 + d) * D2`."""
    total: Code | None = None
    for index, extent in zip(origin, extents, strict=True):
        if total is not None and not is_literal(extent, 1):
            total = PYTHON.binary("*", total, kernel_expression(extent, scope))
        if not is_literal(index, 0):
            code = kernel_expression(index, scope)
            total = code if total is None else PYTHON.binary("+", total, code)
    if total is None:
        return []
    # Kept apart from the vectors: one scalar addition instead of one per lane.
    return [parenthesised(total) if total.level == PYTHON.binary_levels["+"] else total]


def _stride_name(tensor: ir.Tensor, axis: int, scope: Scope) -> Code:
    key = (tensor.name, axis)
    if key not in scope.strides:
        scope.strides[key] = scope.names[f"{tensor.name}_stride_{axis}"]
    return Code(scope.strides[key])


def _strided_origin(origin: list[ir.Expr], strides: list[Code], scope: Scope) -> list[Code]:
    """Offsets by run-time strides: an axis of extent 1 that is broadcast has stride 0."""
    return [
        PYTHON.binary("*", kernel_expression(index, scope), stride)
        for index, stride in zip(origin, strides, strict=True)
        if not is_literal(index, 0)
    ]
