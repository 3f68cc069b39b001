"""Reductions and matrix products of one kernel."""

from __future__ import annotations

import math
from collections.abc import Callable

import attrs

from sketchc.base.types import DType, promote
from sketchc.ir import nodes as ir
from sketchc.lowering.plan import PhysicalExtent
from sketchc.lowering.precedence import PYTHON, Code
from sketchc.lowering.python_host.names import literal
from sketchc.lowering.triton import products
from sketchc.lowering.triton.dialect import TL
from sketchc.lowering.triton.memory import convert
from sketchc.lowering.triton.scope import Scope
from sketchc.lowering.triton.values import Shape, Value, carrier, selected, tile_name
from sketchc.ops.table import OPS

#: A product of more terms is added up column by column instead of all at once.
MOST_AT_ONCE = 2**16


def accumulator_dtype(statement: ir.Compute, source: DType, destination: DType) -> DType:
    """The type in which lanes are combined; f16 and bf16 in f32 (LOWERING 16)."""
    match statement.operation:
        case "reduce_any" | "reduce_all":
            return DType.I32
        case "reduce_max" | "reduce_min":
            return source.compute if source.is_float else carrier(source)
        case _ if source.is_float:
            wide = DType.F64 in (source, destination)
            return DType.F64 if wide else DType.F32
        case _:
            return destination.compute if destination.is_float else carrier(destination)


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
    operand = statement.operands[0]
    source = scope.plan.sketch.tile(tile_name(operand))
    destination = scope.plan.sketch.tile(statement.destination)
    dtype = accumulator_dtype(statement, source.dtype, destination.dtype)
    given = statement.attributes["axis"]
    assert isinstance(given, tuple)
    axes: tuple[int, ...] = given
    identity = OPS[statement.operation].identity or "zero"
    truth = OPS[statement.operation].truth
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
            marks = ", ".join("None" if axis in axes else ":" for axis in range(len(shape)))
            code = PYTHON.postfix(code, f"[{marks}]")
    result = DType.I32 if truth else dtype
    return Value(code, result, target)


def product(statement: ir.Compute, neutral: frozenset[int], scope: Scope) -> Value:
    """gemm, matmul and dot: `tl.dot`, or a broadcast product and a sum where it cannot."""
    sketch = scope.plan.sketch
    names = [tile_name(operand) for operand in statement.operands]
    destination = sketch.tile(statement.destination)
    flags = [bool(statement.attributes.get(name)) for name in ("trans_a", "trans_b")]
    dtype = promote(*(sketch.tile(name).dtype for name in names))
    accumulator = products.accumulator_dtype(dtype, destination.dtype)
    shape = scope.shape(destination.name)
    blocks = [bool(scope.shape(name)) for name in names]
    by_dot = not products.dot_refusal(scope.plan, statement, scope.dialect)
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
        precision = scope.dialect.precision(str(statement.attributes.get("precision", "ieee")))
        return Value(_dot(codes, old, precision, accumulator), accumulator, shape)
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
