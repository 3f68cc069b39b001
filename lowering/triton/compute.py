"""Compute statements of one kernel: operands, element-wise operations, reductions, products."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from sketchc import ir
from sketchc.diagnostics import InternalError
from sketchc.lowering.passes.choose_fills import identity_value
from sketchc.lowering.precedence import PYTHON, Code
from sketchc.lowering.triton.dialect import TL
from sketchc.lowering.triton.expressions import kernel_expression, literal, on_host
from sketchc.lowering.triton.memory import conditions, conjunction, convert, fill_code
from sketchc.lowering.triton.operations import (
    FLOAT_TESTS,
    LOGICAL,
    TENSOR_OPERANDS,
    TESTS,
    WRITERS,
    Request,
)
from sketchc.lowering.triton.scope import Scope
from sketchc.ops import OPS, Category
from sketchc.types import DType, promote

Shape = tuple[Code, ...]


@attrs.frozen
class Value:
    """A result: its code, its type (None: a Python number that takes any), its physical shape."""

    code: Code
    dtype: DType | None
    shape: Shape = ()


def compute(statement: ir.Compute, neutral: frozenset[int], scope: Scope) -> Code:
    """The new version of the destination, in its type and physical shape."""
    row = OPS[statement.operation]
    match row.category:
        case Category.REDUCTION:
            value = _reduction(statement, 0 in neutral, scope)
        case Category.MATRIX:
            value = _product(statement, neutral, scope)
        case _:
            value = _elementwise(statement, scope)
    tile = scope.plan.sketch.tile(statement.destination)
    code = _fit(value, tile.dtype, scope.shape(tile.name))
    if not statement.masked:
        return code
    mask = conjunction(conditions(statement.written, tile.name, scope))
    return code if mask is None else PYTHON.call("tl.where", mask, code, scope.names[tile.name])


def _fit(value: Value, dtype: DType, shape: Shape) -> Code:
    """`value` cast and broadcast to a tile: every write has the tile's exact type."""
    if value.dtype is None or (value.shape == () and shape != ()):
        return full(shape, value.code, dtype)
    code = convert(value.code, value.dtype, dtype)
    if value.shape == shape:
        return code
    return PYTHON.call("tl.broadcast_to", code, shape_code(shape))


def shape_code(shape: Shape) -> str:
    """A shape as a tuple."""
    inner = ", ".join(extent.text for extent in shape)
    return f"({inner},)" if len(shape) == 1 else f"({inner})"


# ---------------------------------------------------------------- operands


def operand_value(operand: ir.Operand, dtype: DType, rank: int, scope: Scope) -> Value:
    """An operand in the evaluation type, with axes in front up to `rank`."""
    match operand:
        case ir.TileOperand(name):
            tile = scope.plan.sketch.tile(name)
            shape = scope.shape(name)
            code = Code(scope.names[name])
            missing = rank - len(shape)
            if shape and missing > 0:
                marks = ", ".join(["None"] * missing + [":"] * len(shape))
                code = PYTHON.postfix(code, f"[{marks}]")
                shape = (*(Code("1") for _ in range(missing)), *shape)
            return Value(convert(code, tile.dtype, dtype), dtype, shape)
        case ir.ScalarOperand(value):
            return scalar_value(value, operand.dtype, dtype, scope)
        case ir.IndexOperand(value, own, extents):
            code = kernel_expression(value, scope)
            codes = tuple(scope.extent_code(scope.physical(e), e) for e in extents)
            if dtype is not own:
                code = (
                    PYTHON.binary("!=", code, Code("0"))
                    if dtype is DType.BOOL
                    else PYTHON.call("tl.cast", code, TL[dtype])
                )
            front = tuple(Code("1") for _ in range(rank - len(codes)))
            return Value(code, dtype, (*front, *codes))


def scalar_value(value: ir.Expr, own: DType, dtype: DType, scope: Scope) -> Value:
    """A scalar operand in the evaluation type; a literal stays a Python number."""
    match value:
        case ir.Literal(number):
            return _number(number, dtype)
        case ir.Unary("-", ir.Literal(number)):
            return _number(-number, dtype)
        case _:
            pass
    if own.is_float and on_host(value):
        return _host_float(value, dtype, scope)
    code = kernel_expression(value, scope)
    if own is DType.BOOL and dtype is DType.BOOL:
        return Value(code, None)
    if dtype is DType.BOOL:
        return Value(PYTHON.binary("!=", code, Code("0")), None)
    return Value(PYTHON.call("tl.cast", code, TL[dtype]), dtype)


def _number(number: int | float | bool, dtype: DType) -> Value:
    code = fill_code(number, dtype)
    if dtype is DType.F64:
        # Triton takes a bare float for an f32.
        return Value(full((), code, dtype), dtype)
    return Value(code, None)


def _host_float(value: ir.Expr, dtype: DType, scope: Scope) -> Value:
    """A float known on the host: a parameter, or an expression computed there in f64."""
    if isinstance(value, ir.Ref) and value.kind is ir.NameKind.CONSTANT:
        number = scope.constant(value)
        if dtype is DType.F64 and number is not None:
            return _number(number, dtype)
        return Value(kernel_expression(value, scope), None)
    if isinstance(value, ir.Ref):
        code = kernel_expression(value, scope)
    else:
        if value not in scope.hoisted:
            scope.hoisted[value] = scope.names.fresh(f"scalar_{len(scope.hoisted) + 1}")
        code = Code(scope.hoisted[value])
    if dtype is not (DType.F64 if scope.memory_scalars else DType.F32):
        code = PYTHON.call("tl.cast", code, TL[dtype])
    return Value(code, dtype)


# ---------------------------------------------------------------- element-wise


def _elementwise(statement: ir.Compute, scope: Scope) -> Value:
    name, dtype = statement.operation, statement.dtype
    tile = scope.plan.sketch.tile(statement.destination)
    rank = len(scope.shape(tile.name))
    match name:
        case "fill":
            value = operand_value(statement.operands[0], tile.dtype, rank, scope)
            return attrs.evolve(value, dtype=None) if value.shape == () else value
        case "cast":
            return _cast(statement, tile.dtype, rank, scope)
        case "broadcast":
            return operand_value(statement.operands[0], tile.dtype, rank, scope)
        case "transpose":
            return _transpose(statement, scope)
        case "where":
            condition = operand_value(statement.operands[0], DType.BOOL, rank, scope)
            values = [operand_value(o, dtype, rank, scope) for o in statement.operands[1:]]
            code = PYTHON.call("tl.where", condition.code, *(v.code for v in values))
            return Value(code, dtype, _broadcast([condition, *values]))
        case _:
            pass
    if name in LOGICAL:
        dtype = DType.BOOL
    elif name in FLOAT_TESTS and not dtype.is_float:
        dtype = DType.F32
    values = [operand_value(operand, dtype, rank, scope) for operand in statement.operands]
    squares = name == "pow" and values[1].code.text in ("2", "2.0")
    if name in TENSOR_OPERANDS and not squares:
        shape = _broadcast(values)
        values = [_tensor(value, dtype, shape) for value in values]
    elif all(value.dtype is None for value in values):
        values[0] = _tensor(values[0], dtype)
    shape = _broadcast(values)
    operands = tuple(value.code for value in values)
    request = Request(operands, statement.attributes, dtype, scope, scalar=not shape)
    return Value(WRITERS[name](request), DType.BOOL if name in TESTS else dtype, shape)


def _tensor(value: Value, dtype: DType, shape: Shape = ()) -> Value:
    """A Python number, or a scalar beside a tile, as a tensor of this shape."""
    if value.dtype is not None and (value.shape or not shape):
        return value
    return Value(full(shape, value.code, dtype), dtype, shape)


def full(shape: Shape, value: Code, dtype: DType) -> Code:
    """A tensor of one value. The interpreter cannot make bf16 constants, hence by way of f32."""
    if dtype is DType.BF16:
        return convert(full(shape, value, DType.F32), DType.F32, dtype)
    return PYTHON.call("tl.full", shape_code(shape), value, TL[dtype])


def _broadcast(values: list[Value]) -> Shape:
    """The shape of an element-wise result."""
    result: Shape = ()
    for value in values:
        if not result:
            result = value.shape
        elif value.shape:
            pairs = zip(result, value.shape, strict=True)
            result = tuple(b if a.text == "1" else a for a, b in pairs)
    return result


def _transpose(statement: ir.Compute, scope: Scope) -> Value:
    source = _tile(statement.operands[0])
    shape = scope.shape(source)
    dtype = scope.plan.sketch.tile(source).dtype
    if not shape:
        return Value(Code(scope.names[source]), dtype)
    swapped = (*shape[:-2], shape[-1], shape[-2])
    if len(shape) == 2:
        return Value(PYTHON.call("tl.trans", scope.names[source]), dtype, swapped)
    order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    text = ", ".join(str(axis) for axis in order)
    return Value(PYTHON.call("tl.permute", scope.names[source], f"({text})"), dtype, swapped)


def _tile(operand: ir.Operand) -> str:
    if not isinstance(operand, ir.TileOperand):
        msg = "a cross-lane operation takes tiles"
        raise InternalError(msg)
    return operand.tile


_ROUNDING = {"down": "tl.floor", "up": "tl.ceil"}


def _cast(statement: ir.Compute, target: DType, rank: int, scope: Scope) -> Value:
    """An explicit conversion, with a rounding direction and saturation where asked."""
    operand = statement.operands[0]
    source = _own_dtype(operand, scope)
    value = operand_value(operand, source, rank, scope)
    mode = str(statement.attributes.get("round", "nearest"))
    if value.dtype is None or target is DType.BOOL:
        return value
    if target.is_float:
        narrows = source.is_float and target.bytes < source.bytes
        if mode == "nearest" or not narrows:
            return value
        return _directed_cast(value, target, mode, scope)
    code = value.code
    if source.is_float:
        if source.compute is not source:
            code, source = convert(code, source, DType.F32), DType.F32
        request = Request((code,), {}, source, scope)
        match mode:
            case "nearest":
                code = WRITERS["round"](request)
            case "zero":
                code = WRITERS["trunc"](request)
            case _:
                code = PYTHON.call(_ROUNDING[mode], code)
    if not statement.attributes.get("sat", False) or source is DType.BOOL:
        return Value(code, source, value.shape)
    return Value(_saturated(code, source, target, scope), target, value.shape)


def _own_dtype(operand: ir.Operand, scope: Scope) -> DType:
    match operand:
        case ir.TileOperand(name):
            return scope.plan.sketch.tile(name).dtype
        case ir.ScalarOperand(_, dtype) | ir.IndexOperand(_, dtype):
            return dtype


def _saturated(code: Code, source: DType, target: DType, scope: Scope) -> Code:
    low, high = (int(identity_value(name, target)) for name in ("lowest", "highest"))
    if source.is_float:
        arguments = [Code(TL[target]), literal(low), literal(high), literal(float(high + 1))]
        return scope.call("saturate", code, *arguments)
    if source.bytes <= target.bytes:
        return convert(code, source, target)
    clamped = PYTHON.call("tl.minimum", code, literal(high))
    return convert(PYTHON.call("tl.maximum", clamped, literal(low)), source, target)


def _directed_cast(value: Value, target: DType, mode: str, scope: Scope) -> Value:
    integer = {2: DType.I16, 4: DType.I32}[target.bytes]
    lowest = literal(int(identity_value("lowest", integer)))
    arguments = (value.code, TL[target], TL[integer], lowest, f'"{mode}"')
    return Value(scope.call("directed_cast", *arguments), target, value.shape)


# ---------------------------------------------------------------- cross-lane


def _selected(
    operand: ir.Operand, axes: tuple[int, ...], dtype: DType, identity: str, scope: Scope
) -> Code:
    """A tile with the identity at the void lanes of `axes`."""
    assert isinstance(operand, ir.TileOperand)
    tile = scope.plan.sketch.tile(operand.tile)
    code = Code(scope.names[operand.tile])
    if identity in ("true", "false"):
        code = convert(convert(code, tile.dtype, DType.BOOL), DType.BOOL, dtype)
    else:
        code = convert(code, tile.dtype, dtype)
    mask = conjunction(conditions(operand.domain, operand.tile, scope, axes))
    if mask is None:
        return code
    return PYTHON.call("tl.where", mask, code, fill_code(identity_value(identity, dtype), dtype))


def _reduction_dtype(statement: ir.Compute, source: DType, destination: DType) -> DType:
    """The type in which lanes are combined; f16 and bf16 in f32 (LOWERING 16)."""
    match statement.operation:
        case "reduce_any" | "reduce_all":
            return DType.I32
        case "reduce_max" | "reduce_min":
            return DType.I32 if source is DType.BOOL else source.compute
        case _ if source.is_float:
            wide = DType.F64 in (source, destination)
            return DType.F64 if wide else DType.F32
        case _:
            return destination.compute


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
    scope.functions[combine] = None
    return lambda code, axis: PYTHON.call("tl.reduce", code, str(axis), combine)


def _reduction(statement: ir.Compute, neutral: bool, scope: Scope) -> Value:
    operand = statement.operands[0]
    source = scope.plan.sketch.tile(_tile(operand))
    destination = scope.plan.sketch.tile(statement.destination)
    dtype = _reduction_dtype(statement, source.dtype, destination.dtype)
    given = statement.attributes["axis"]
    assert isinstance(given, tuple)
    axes: tuple[int, ...] = given
    identity = OPS[statement.operation].identity or "zero"
    truth = statement.operation in ("reduce_any", "reduce_all")
    code = _selected(operand, () if neutral else axes, dtype, identity, scope)
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


def _product(statement: ir.Compute, neutral: frozenset[int], scope: Scope) -> Value:
    """gemm, matmul and dot: `tl.dot`, or a broadcast product and a sum where it cannot."""
    sketch = scope.plan.sketch
    names = [_tile(operand) for operand in statement.operands]
    destination = sketch.tile(statement.destination)
    flags = [bool(statement.attributes.get(name)) for name in ("trans_a", "trans_b")]
    dtype = promote(*(sketch.tile(name).dtype for name in names))
    accumulator = destination.dtype.compute if dtype is not DType.F64 else dtype
    shape = scope.shape(destination.name)
    blocks = [bool(scope.shape(name)) for name in names]
    smallest = scope.plan.capabilities.matrix_minimum.get(dtype.value, 1)
    # A bucket is a run-time choice: the wrapper makes it at least the smallest depth.
    depth_extent = scope.plan.tiles[names[0]].extents[1 ^ flags[0]].value or smallest
    by_dot = (
        all(blocks)
        and bool(shape)
        and depth_extent >= smallest
        and dtype in scope.dialect.dot_dtypes
        and accumulator is not DType.F64
    )
    if not by_dot:
        dtype = accumulator
    codes = []
    for index, operand in enumerate(statement.operands):
        depth = (1, 0)[index] ^ flags[index]
        axes = () if index in neutral else (depth,)
        code = _selected(operand, axes, dtype, "zero", scope)
        transposed = flags[index] and scope.shape(names[index])
        codes.append(PYTHON.call("tl.trans", code) if transposed else code)
    old = None
    if OPS[statement.operation].accumulates:
        old = convert(Code(scope.names[destination.name]), destination.dtype, accumulator)
    if by_dot:
        precision = scope.dialect.precision(str(statement.attributes.get("precision", "ieee")))
        return Value(_dot(codes, old, precision, accumulator), accumulator, shape)
    code = _broadcast_product(codes, blocks, shape, accumulator.is_float, scope)
    return Value(code if old is None else PYTHON.binary("+", old, code), accumulator, shape)


def _dot(codes: list[Code], old: Code | None, precision: str, accumulator: DType) -> Code:
    arguments: list[Code | str] = [*codes]
    if old is not None:
        arguments.append(old)
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
        scope.functions["product_sum"] = None
        total = PYTHON.call("product_sum", *parts)
    else:
        total = PYTHON.call("tl.sum", product, "axis=1")
    if shape:
        return total
    return PYTHON.call("tl.sum", PYTHON.call("tl.sum", total, "axis=1"), "axis=0")
