"""Operations across lanes in any order: reductions, matrix products (by `tl.dot`, or a broadcast
product and a sum), and what moves values (transpose, permute, reshape, concat, broadcast)."""

from __future__ import annotations

import math
from collections.abc import Callable

import attrs

from sketchc.base.diagnostics import InternalError
from sketchc.base.types import DType, promote
from sketchc.ir import nodes as ir
from sketchc.lowering.plan import PhysicalExtent, Plan
from sketchc.lowering.precedence import PYTHON, Code, parenthesised
from sketchc.lowering.python_host.names import literal
from sketchc.lowering.triton.dialect import DOT_DTYPES, TL, Dialect, precision
from sketchc.lowering.triton.scope import (
    Scope,
    Shape,
    broadcast_to,
    kernel_expression,
    laid_out,
    shape_code,
)
from sketchc.lowering.triton.values import (
    Value,
    carried,
    carrier,
    convert,
    full,
    lanes_along,
    operand_value,
    selected,
    taken,
    tile_name,
)
from sketchc.ops.table import OPS

_HALVES = (DType.F16, DType.BF16)
_BYTES = (DType.I8, DType.U8)


def product_dtype(operands: DType, destination: DType) -> DType:
    """The type in which products are added up, of integers at least 32 bits."""
    return operands if operands is DType.F64 else carrier(destination)


def _factors(product: ir.Compute, sketch: ir.Sketch) -> tuple[list[str], DType]:
    """The tiles that a product multiplies, and the type that holds both."""
    names = [tile_name(operand) for operand in product.operands]
    return names, promote(*(sketch.tile(name).dtype for name in names))


def dot_refusal(plan: Plan, product: ir.Compute) -> str:
    """Why `tl.dot` does not take a product; "" where it does."""
    sketch = plan.sketch
    names, dtype = _factors(product, sketch)
    if dtype not in DOT_DTYPES:
        return f"tl.dot does not take {dtype.value} here"
    depth = plan.tiles[names[0]].extents[0 if product.attributes.get("trans_a") else 1].value
    smallest = plan.capabilities.matrix_minimum.get(dtype.value, 1)
    # A bucket is a run-time choice: the wrapper makes it at least the smallest depth.
    if depth is not None and depth < smallest:
        return f"its depth {depth} is less than the {smallest} that tl.dot takes"
    accumulator = product_dtype(dtype, sketch.tile(product.destination).dtype)
    if accumulator is not (DType.F32 if dtype.is_float else DType.I32):
        return f"tl.dot does not add up in {accumulator.value}"
    for name in (*names, product.destination):
        if all(extent.value == 1 for extent in plan.tiles[name].extents):
            return f"{name} has one element"
    return ""


def product_unit(plan: Plan, product: ir.Compute, dialect: Dialect) -> tuple[str, str]:
    """What a product runs on, and why."""
    _, dtype = _factors(product, plan.sketch)
    shown = f"{product.operation} of {dtype.value}"
    refusal = dot_refusal(plan, product)
    if refusal:
        return f"{shown}: a broadcast product and a sum", refusal
    if not dialect.launch_options:
        return f"{shown}: tl.dot, for the cube cores", ""
    if dtype in (*_HALVES, *_BYTES):
        return f"{shown}: tl.dot on the tensor cores", ""
    cheapest = precision(product, plan)
    if cheapest == "ieee":
        return (
            f"{shown}: tl.dot on the FMA units",
            'precision="ieee" is exact f32; "tf32x3" runs on the tensor cores with nearly its '
            "accuracy",
        )
    return f'{shown}: tl.dot on the tensor cores, precision="{cheapest}"', ""


#: A product of more terms is added up column by column instead of all at once.
MOST_AT_ONCE = 2**16


def accumulator_dtype(statement: ir.Compute, source: DType, destination: DType) -> DType:
    """The type in which lanes are combined; f16 and bf16 in f32 (LOWERING 16), integers in the
    destination's width, at least 32 bits."""
    match statement.operation:
        case "reduce_any" | "reduce_all":
            return DType.I32
        case "reduce_max" | "reduce_min":
            return carrier(source)
        case _ if source.is_float:
            return DType.F64 if DType.F64 in (source, destination) else DType.F32
        case _:
            return carrier(destination)


def _reduce_call(operation: str, floats: bool, scope: Scope) -> Callable[[Code, int], Code]:
    """How one axis is reduced. A `tl.max` drops NaN, hence the combine functions."""
    if operation == "reduce_sum":
        return lambda code, axis: PYTHON.call("tl.sum", code, f"axis={axis}")
    if operation == "reduce_prod":
        if not floats and not scope.dialect.integer_products:
            return lambda code, axis: scope.call("integer_product", code, literal(axis))
        combine = "product"
    elif floats:
        combine = "nan_maximum" if operation == "reduce_max" else "nan_minimum"
    else:
        function = "tl.max" if operation in ("reduce_max", "reduce_any") else "tl.min"
        return lambda code, axis: PYTHON.call(function, code, f"axis={axis}")
    combine = scope.function(combine)
    return lambda code, axis: PYTHON.call("tl.reduce", code, str(axis), combine)


def reduction(statement: ir.Compute, neutral: bool, scope: Scope) -> Value:
    """The result of a reduction over one or more axes."""
    operand = statement.operands[0]
    source = scope.tile(tile_name(operand))
    destination = scope.tile(statement.destination)
    dtype = accumulator_dtype(statement, source.dtype, destination.dtype)
    axes = _axes(statement, "axis")
    row = OPS[statement.operation]
    identity = row.identity or "zero"
    code = selected(operand, () if neutral else axes, dtype, identity, scope)
    shape = scope.shape(source.name)
    target = scope.shape(destination.name)
    reduce = _reduce_call(statement.operation, dtype.is_float, scope)
    if shape:
        # A destination of one element is a Triton scalar: axes of extent 1 go too.
        gone = axes if target else tuple(range(len(shape)))
        for axis in sorted(gone, reverse=True):
            code = reduce(code, axis)
        if target and len(target) == len(shape):
            code = laid_out(code, tuple(axis not in axes for axis in range(len(shape))))
    return Value(code, DType.I32 if row.truth else dtype, target)


def product(statement: ir.Compute, neutral: frozenset[int], scope: Scope) -> Value:
    """gemm, matmul and dot: `tl.dot`, or a broadcast product and a sum where it cannot."""
    sketch = scope.plan.sketch
    names, dtype = _factors(statement, sketch)
    destination = sketch.tile(statement.destination)
    flags = [bool(statement.attributes.get(name)) for name in ("trans_a", "trans_b")]
    accumulator = product_dtype(dtype, destination.dtype)
    shape = scope.shape(destination.name)
    blocks = [bool(scope.shape(name)) for name in names]
    by_dot = not dot_refusal(scope.plan, statement)
    if not by_dot:
        dtype = accumulator
    codes = []
    depths = [(1, 0)[index] ^ flag for index, flag in enumerate(flags)]
    for index, operand in enumerate(statement.operands):
        operand, needed = _deep(statement.operands, depths, index, index in neutral)
        axes = (depths[index],) if needed else ()
        code = selected(operand, axes, dtype, "zero", scope)
        transposed = flags[index] and scope.shape(names[index])
        codes.append(PYTHON.call("tl.trans", code) if transposed else code)
    old = None
    if OPS[statement.operation].accumulates:
        old = convert(Code(scope.names[destination.name]), destination.dtype, accumulator)
    if by_dot:
        cheapest = precision(statement, scope.plan)
        return Value(_dot(codes, old, cheapest, accumulator), accumulator, shape)
    terms = (*scope.plan.tiles[names[0]].extents, scope.plan.tiles[destination.name].extents[-1])
    if all(blocks) and shape and _count(terms) > MOST_AT_ONCE:
        code = scope.call("looped_product", *codes)
    else:
        code = _broadcast_product(codes, blocks, shape, accumulator.is_float, scope)
    return Value(code if old is None else PYTHON.binary("+", old, code), accumulator, shape)


def _deep(
    operands: tuple[ir.Operand, ...], depths: list[int], index: int, neutral: bool
) -> tuple[ir.TileOperand, bool]:
    """An operand of a product, valid along the depth where both operands are, and whether lanes of
    it must be cleared there.

    What one holds where the other is void may be NaN, and a zero beside it would not silence it: an
    operand whose own void lanes are zero is cleared where only the other's are void.
    """
    operand, other = operands[index], operands[1 - index]
    assert isinstance(operand, ir.TileOperand)
    assert isinstance(other, ir.TileOperand)
    own = operand.domain[depths[index]] if operand.domain else ir.FULL
    beside = other.domain[depths[1 - index]] if other.domain else ir.FULL
    both = own.meet(beside)
    domain = list(operand.domain or (ir.FULL, ir.FULL))
    domain[depths[index]] = both
    return attrs.evolve(operand, domain=tuple(domain)), not neutral or both != own


def _count(extents: tuple[PhysicalExtent, ...]) -> int:
    """The elements of a block; more than any limit where an extent is known at launch only."""
    known = [extent.value for extent in extents if extent.value is not None]
    return math.prod(known) if len(known) == len(extents) else 2 * MOST_AT_ONCE


def _dot(codes: list[Code], old: Code | None, precision: str, accumulator: DType) -> Code:
    arguments: list[Code | str] = [*codes]
    if old is not None:
        arguments.append(old)
    if accumulator.is_float:
        arguments.append(f'input_precision="{precision}"')
    if accumulator is not DType.F32:
        arguments.append(f"out_dtype={TL[accumulator]}")
    return PYTHON.call("tl.dot", *arguments)


def _broadcast_product(
    codes: list[Code], blocks: list[bool], shape: Shape, floating: bool, scope: Scope
) -> Code:
    """sum over k of a[m, k] * b[k, n], for types and depths that `tl.dot` refuses."""
    parts = [
        PYTHON.postfix(code, mark) if block else code
        for code, block, mark in zip(codes, blocks, ("[:, :, None]", "[None, :, :]"), strict=True)
    ]
    product = PYTHON.binary("*", *parts)
    if not any(blocks):
        return product
    if floating and all(blocks):
        total = scope.call("product_sum", *parts)
    else:
        total = PYTHON.call("tl.sum", product, "axis=1")
    if shape:
        return total
    return PYTHON.call("tl.sum", PYTHON.call("tl.sum", total, "axis=1"), "axis=0")


def rearranged(statement: ir.Compute, scope: Scope) -> Value:
    """The result of a layout operation."""
    match statement.operation:
        case "broadcast":
            tile = scope.tile(statement.destination)
            rank = len(scope.shape(tile.name))
            return operand_value(statement.operands[0], tile.dtype, rank, scope)
        case "transpose":
            source = tile_name(statement.operands[0])
            rank = len(scope.plan.tiles[source].extents)
            return _permuted(source, (*range(rank - 2), rank - 1, rank - 2), scope)
        case "permute":
            return _permuted(tile_name(statement.operands[0]), _axes(statement, "axes"), scope)
        case "reshape":
            return _reshaped(statement, scope)
        case "concat":
            return _concatenated(statement, scope)
        case name:
            msg = f"no layout operation {name}"
            raise InternalError(msg)


def axis_of(statement: ir.Compute) -> int:
    """The one axis of an operation along an axis."""
    (axis,) = _axes(statement, "axis")
    return axis


def _axes(statement: ir.Compute, attribute: str) -> tuple[int, ...]:
    axes = statement.attributes[attribute]
    assert isinstance(axes, tuple)
    return axes


def _permuted(source: str, order: tuple[int, ...], scope: Scope) -> Value:
    shape = scope.shape(source)
    dtype = scope.tile(source).dtype
    name = scope.names[source]
    if not shape or order == tuple(range(len(order))):
        return Value(Code(name), dtype, shape)
    result = tuple(shape[axis] for axis in order)
    if len(shape) == 2:
        return Value(PYTHON.call("tl.trans", name), dtype, result)
    text = ", ".join(str(axis) for axis in order)
    return Value(PYTHON.call("tl.permute", name, f"({text})"), dtype, result)


# ---------------------------------------------------------------- reshape


def _reshaped(statement: ir.Compute, scope: Scope) -> Value:
    """Row-major over the *logical* extents: where an axis that is split or merged is padded, a
    gather; else Triton's own reshape."""
    source = scope.plan.tiles[tile_name(statement.operands[0])]
    target = scope.plan.tiles[statement.destination]
    name, dtype = source.tile.name, source.tile.dtype
    old, new = scope.shape(name), scope.shape(target.tile.name)
    code = Code(scope.names[name])
    if not old or not new:
        # One element on both sides: extents that are 1 however they are written.
        return Value(code, dtype, old)
    inner = _differing(
        list(zip(source.tile.extents, source.extents, strict=True)),
        list(zip(target.tile.extents, target.extents, strict=True)),
    )
    if not any(extent.padded or extent.value is None for extent in inner):
        return Value(PYTHON.call("tl.reshape", code, shape_code(new)), dtype, new)
    index = _row_major_lanes(statement.destination, name, scope)
    total = _product(old)
    index = PYTHON.call("tl.minimum", index, PYTHON.binary("-", total, Code("1")))
    index = PYTHON.call("tl.reshape", index, shape_code((_product(new),)))
    value, back = carried(code, dtype)
    flat = PYTHON.call("tl.reshape", value, shape_code((total,)))
    moved = taken(flat, index, 0, scope)
    return Value(PYTHON.call("tl.reshape", moved, shape_code(new)), back, new)


Axis = tuple[ir.Expr, PhysicalExtent]


def _differing(old: list[Axis], new: list[Axis]) -> list[PhysicalExtent]:
    """The physical extents that are left when equal leading and trailing axes, and those of extent
    1, are taken away."""
    one = ir.Literal(1)
    old, new = ([axis for axis in axes if axis[0] != one] for axes in (old, new))
    while old and new and old[0] == new[0]:
        old, new = old[1:], new[1:]
    while old and new and old[-1] == new[-1]:
        old, new = old[:-1], new[:-1]
    return [extent for _, extent in (*old, *new)]


def _product(shape: Shape) -> Code:
    return PYTHON.fold("*", list(shape))


def _row_major_lanes(target: str, source: str, scope: Scope) -> Code:
    """For each lane of `target`, the physical row-major lane of `source` that it takes, broadcast
    to the shape of `target`."""
    planned, given = scope.plan.tiles[target].tile, scope.plan.tiles[source].tile
    shape = scope.shape(target)
    flat: Code | None = None
    for axis, extent in enumerate(planned.extents):
        lane = lanes_along(axis, shape, scope)
        if flat is not None:
            row = PYTHON.binary("*", flat, kernel_expression(extent, scope))
            lane = PYTHON.binary("+", row, lane)
        flat = lane
    assert flat is not None
    parts: list[Code] = []
    stride: Code | None = None
    physical: Code | None = None
    pairs = zip(given.extents, scope.shape(source), strict=True)
    for position, (extent, code) in reversed(list(enumerate(pairs))):
        coordinate = flat if stride is None else PYTHON.binary("//", flat, stride)
        logical = kernel_expression(extent, scope)
        if position > 0:
            coordinate = PYTHON.binary("%", coordinate, logical)
        parts.append(coordinate if physical is None else PYTHON.binary("*", coordinate, physical))
        stride = parenthesised(logical if stride is None else PYTHON.binary("*", stride, logical))
        physical = parenthesised(code if physical is None else PYTHON.binary("*", physical, code))
    return broadcast_to(PYTHON.fold("+", parts[::-1]), shape)


# ---------------------------------------------------------------- concat


def _concatenated(statement: ir.Compute, scope: Scope) -> Value:
    """Each side read at its own lanes, then a choice by lane."""
    axis = axis_of(statement)
    target = scope.shape(statement.destination)
    first = scope.plan.tiles[tile_name(statement.operands[0])].tile
    rank = len(first.extents)
    lanes = lanes_along(axis, target, scope)
    border = kernel_expression(first.extents[axis], scope)
    behind = PYTHON.call("tl.maximum", PYTHON.binary("-", lanes, border), "0")
    sides, back = [], statement.dtype
    for operand, places in zip(statement.operands, (lanes, behind), strict=True):
        value = operand_value(operand, statement.dtype, rank, scope)
        code, back = carried(value.code, statement.dtype)
        shape = scope.shape(tile_name(operand))
        if not shape or shape[axis].text == "1":
            sides.append(code if shape else full(target, code, back))
            continue
        last = PYTHON.binary("-", shape[axis], literal(1))
        index = (*shape[:axis], target[axis], *shape[axis + 1 :])
        places = broadcast_to(PYTHON.call("tl.minimum", places, last), index)
        sides.append(taken(code, places, axis, scope))
    condition = PYTHON.binary("<", lanes, border)
    return Value(PYTHON.call("tl.where", condition, *sides), back, target)
