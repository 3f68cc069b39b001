"""Operations across lanes: in any order (reductions, matrix products by `tl.dot` or a broadcast
product and a sum, and what moves values: transpose, permute, reshape, concat, broadcast), and along
an axis in order (scans, argmax, argmin, sort and topk)."""

from __future__ import annotations

import math
from collections.abc import Callable

import attrs

from sketchc.base.diagnostics import InternalError
from sketchc.base.types import DType, promote
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic, walk
from sketchc.ir.walk import operand_dtype
from sketchc.lowering.plan import PhysicalExtent
from sketchc.lowering.precedence import PYTHON, Code, parenthesised
from sketchc.lowering.precisions import SPLIT
from sketchc.lowering.python_host.expressions import is_literal, literal
from sketchc.lowering.triton.dialect import TL, carrier
from sketchc.lowering.triton.products import (
    dot_precision,
    dot_refusal,
    factors,
    product_dtype,
    tile_name,
)
from sketchc.lowering.triton.scope import (
    Scope,
    Shape,
    broadcast_to,
    chosen,
    kernel_expression,
    laid_out,
    shape_code,
)
from sketchc.lowering.triton.values import (
    Value,
    conditions,
    conjunction,
    convert,
    full,
    lanes_along,
    lifted,
    operand_value,
    selected,
    taken,
)
from sketchc.ops.table import OPS, Fact, Layout, Result, identity_value

#: A product of more terms is added up column by column instead of all at once.
MOST_AT_ONCE = 2**16


def accumulator_dtype(statement: ir.Compute, source: DType, destination: DType) -> DType:
    """The type in which lanes are combined; f16 and bf16 in f32 (LOWERING 16), integers in the
    destination's width, at least 32 bits."""
    row = OPS[statement.operation]
    if row.truth:
        return DType.I32
    if row.result is Result.SAME:
        return carrier(source)
    if source.is_float:
        return DType.F64 if DType.F64 in (source, destination) else DType.F32
    return carrier(destination)


def _reduce_call(identity: str, dtype: DType, scope: Scope) -> Callable[[Code, int], Code]:
    """The writer of a reduction over one axis. `tl.max` drops NaN, hence the combine functions."""
    if identity == "zero":
        return lambda code, axis: PYTHON.call("tl.sum", code, f"axis={axis}")
    if identity == "one":
        if not dtype.is_float and not scope.dialect.integer_products:
            return lambda code, axis: scope.call("integer_product", code, literal(axis))
        if dtype.is_float:
            double = repr(dtype is DType.F64)
            return lambda code, axis: scope.call("whole_product", code, literal(axis), double)
        combine = "product"
    elif dtype.is_float:
        combine = "nan_maximum" if identity == "lowest" else "nan_minimum"
    else:
        function = "tl.max" if identity in ("lowest", "false") else "tl.min"
        return lambda code, axis: PYTHON.call(function, code, f"axis={axis}")
    combine = scope.function(combine)
    return lambda code, axis: PYTHON.call("tl.reduce", code, str(axis), combine)


def reduction(statement: ir.Compute, neutral: bool, scope: Scope) -> Value:
    """The result of a reduction over one or more axes."""
    if (end := _end_of_lanes(statement, scope)) is not None:
        return end
    operand = statement.operands[0]
    source = scope.tile(tile_name(operand))
    destination = scope.tile(statement.destination)
    dtype = accumulator_dtype(statement, source.dtype, destination.dtype)
    axes = statement.axes
    row = OPS[statement.operation]
    identity = row.identity or "zero"
    code = selected(operand, () if neutral else axes, dtype, identity, scope)
    shape = scope.shape(source.name)
    target = scope.shape(destination.name)
    reduce = _reduce_call(identity, dtype, scope)
    if shape:
        # A destination of one element is a Triton scalar: axes of extent 1 go too.
        gone = axes if target else tuple(range(len(shape)))
        for axis in sorted(gone, reverse=True):
            code = reduce(code, axis)
        if target and len(target) == len(shape):
            code = laid_out(code, tuple(axis not in axes for axis in range(len(shape))))
    return Value(code, DType.I32 if row.truth else dtype, target)


def _end_of_lanes(statement: ir.Compute, scope: Scope) -> Value | None:
    """The first or last valid lane of a row, where a reduction of the numbers of its lanes asks for
    it and all lanes before a bound are valid; None for any other reduction. (Of a row without valid
    lanes, the last one is before the first.)"""
    operand = statement.operands[0]
    if statement.operation not in ("reduce_min", "reduce_max") or len(statement.axes) != 1:
        return None
    if not isinstance(operand, ir.TileOperand) or scope.shape(statement.destination):
        return None
    planned = scope.plan.tiles[operand.tile]
    domain = operand.domain[0] if operand.domain else ir.FULL
    if len(planned.extents) != 1 or domain.lower or not _numbers_lanes(operand.tile, scope):
        return None
    if statement.operation == "reduce_min":
        return Value(literal(0), None)
    bounds = [kernel_expression(each, scope) for each in (*domain.upper, planned.tile.extents[0])]
    last = bounds.pop()
    for bound in bounds:
        last = PYTHON.call("tl.minimum", bound, last)
    last = PYTHON.binary("-", last, literal(1))
    return Value(PYTHON.call("tl.cast", last, TL[DType.I64]), DType.I64)


def _numbers_lanes(tile: str, scope: Scope) -> bool:
    """Whether a tile holds the number of each of its lanes, wherever it is valid."""
    made = [s for s in walk.in_phases(scope.plan.phases) if tile in walk.writes(s)]
    made = [s for s in made if not isinstance(s, ir.Alloc)]
    match made:
        case [ir.Compute("where", operands=(_, ir.IndexOperand(number) as one, other))]:
            return one == other and isinstance(number, ir.Iota) and number.lower == ir.Literal(0)
    return False


def product(statement: ir.Compute, neutral: frozenset[int], scope: Scope) -> Value:
    """gemm, matmul and dot: `tl.dot`, or a broadcast product and a sum where it cannot."""
    sketch = scope.plan.sketch
    names, dtype = factors(statement, sketch)
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
        cheapest = dot_precision(scope.plan, statement)
        if cheapest != SPLIT:
            return Value(_dot(codes, old, cheapest, accumulator), accumulator, shape)
        code = scope.call("split_product", *codes)
        return Value(_added(old, code), accumulator, shape)
    terms = (*scope.plan.tiles[names[0]].extents, scope.plan.tiles[destination.name].extents[-1])
    if all(blocks) and shape and _count(terms) > MOST_AT_ONCE:
        code = scope.call("looped_product", *codes)
    else:
        code = _broadcast_product(codes, blocks, shape, accumulator.is_float, scope)
    return Value(_added(old, code), accumulator, shape)


def _added(old: Code | None, code: Code) -> Code:
    return code if old is None else PYTHON.binary("+", old, code)


def _deep(
    operands: tuple[ir.Operand, ...], depths: list[int], index: int, neutral: bool
) -> tuple[ir.TileOperand, bool]:
    """An operand of a product, valid along the depth where both operands are, and whether lanes of
    it must be cleared there.

    An operand may hold NaN where the other one is void, and zero times NaN is NaN: an operand whose
    own void lanes are zero is cleared where only the other's are void.
    """
    operand, other = operands[index], operands[1 - index]
    assert isinstance(operand, ir.TileOperand)
    assert isinstance(other, ir.TileOperand)
    own = operand.domain[depths[index]] if operand.domain else ir.FULL
    beside = other.domain[depths[1 - index]] if other.domain else ir.FULL
    both = symbolic.meet(own, beside)
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
    match OPS[statement.operation].layout:
        case Layout.REPEATED:
            tile = scope.tile(statement.destination)
            rank = len(scope.shape(tile.name))
            return operand_value(statement.operands[0], tile.dtype, rank, scope)
        case Layout.TRANSPOSED:
            source = tile_name(statement.operands[0])
            rank = len(scope.plan.tiles[source].extents)
            return _permuted(source, (*range(rank - 2), rank - 1, rank - 2), scope)
        case Layout.PERMUTED:
            return _permuted(tile_name(statement.operands[0]), statement.axes, scope)
        case Layout.RESHAPED:
            return _reshaped(statement, scope)
        case Layout.JOINED:
            return _concatenated(statement, scope)
        case None:
            raise InternalError(f"no layout operation {statement.operation}")


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
    back = carrier(dtype)
    flat = PYTHON.call("tl.reshape", convert(code, dtype, back), shape_code((total,)))
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
    """Each operand gathered at the lanes of the result, then a choice by lane."""
    (axis,) = statement.axes
    target = scope.shape(statement.destination)
    first = scope.plan.tiles[tile_name(statement.operands[0])].tile
    rank = len(first.extents)
    lanes = lanes_along(axis, target, scope)
    border = kernel_expression(first.extents[axis], scope)
    behind = PYTHON.call("tl.maximum", PYTHON.binary("-", lanes, border), "0")
    sides, back = [], carrier(statement.dtype)
    for operand, places in zip(statement.operands, (lanes, behind), strict=True):
        value = operand_value(operand, statement.dtype, rank, scope)
        code = convert(value.code, statement.dtype, back)
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


Assignments = list[tuple[str, Code]]

#: A topk with at most this many results takes them one by one; a larger one sorts.
MOST_SELECTED = 16
#: Triton's largest tensor, in elements.
MOST_ELEMENTS = 2**20


# ---------------------------------------------------------------- scans


def scan(statement: ir.Compute, neutral: bool, scope: Scope) -> Value:
    """The running results of a scan; void lanes hold the identity."""
    operand, (axis,) = statement.operands[0], statement.axes
    source = scope.tile(tile_name(operand))
    destination = scope.tile(statement.destination)
    dtype = accumulator_dtype(statement, source.dtype, destination.dtype)
    identity = OPS[statement.operation].identity
    assert identity is not None
    code = selected(operand, () if neutral else (axis,), dtype, identity, scope)
    shape = scope.shape(source.name)
    exclusive = statement.attributes.get("exclusive", False)
    start = literal(identity_value(identity, DType.I64))
    if exclusive and (not shape or shape[axis].text == "1"):
        return Value(start, None)
    if shape and shape[axis].text != "1":
        reverse = bool(statement.attributes.get("reverse", False))
        if identity == "one" and dtype.is_float:
            arguments = [str(axis), repr(reverse), repr(dtype is DType.F64)]
            code = scope.call("running_product", code, *arguments)
        else:
            flags = ["reverse=True"] if reverse else []
            code = PYTHON.call(f"tl.{statement.operation}", code, str(axis), *flags)
    if exclusive:
        code = _shifted(code, start, shape, statement, scope)
    return Value(code, dtype, shape)


def _shifted(code: Code, start: Code, shape: Shape, statement: ir.Compute, scope: Scope) -> Code:
    """A running result moved by one lane: each lane gets that of the lanes before it, the first
    `start`. Subtracting the lane's own value would lose digits, and give NaN behind an infinity."""
    (axis,) = statement.axes
    lanes = lanes_along(axis, shape, scope)
    last = PYTHON.binary("-", shape[axis], literal(1))
    if statement.attributes.get("reverse", False):
        end = PYTHON.binary("==", lanes, last)
        places = PYTHON.call("tl.minimum", PYTHON.binary("+", lanes, literal(1)), last)
    else:
        end = PYTHON.binary("==", lanes, literal(0))
        places = PYTHON.call("tl.maximum", PYTHON.binary("-", lanes, literal(1)), literal(0))
    moved = taken(code, broadcast_to(places, shape), axis, scope)
    return PYTHON.call("tl.where", end, start, moved)


# ---------------------------------------------------------------- argmax and argmin


def extremum_index(statement: ir.Compute, scope: Scope) -> Value:
    """The lane of the first extremum; NaN wins, void lanes never do, -1 where all are void."""
    operand, (axis,) = statement.operands[0], statement.axes
    source = scope.tile(tile_name(operand))
    assert isinstance(operand, ir.TileOperand)
    shape, target = scope.shape(source.name), scope.shape(statement.destination)
    mask = conjunction(conditions(operand.domain, source.name, scope, (axis,)))
    if not shape:
        if mask is None:
            return Value(Code("0"), None)
        return Value(PYTHON.call("tl.where", mask, "0", "-1"), DType.I32)
    largest = Fact.LARGEST in OPS[statement.operation].facts
    dtype = carrier(source.dtype)
    code = selected(operand, (axis,), dtype, "lowest" if largest else "highest", scope)
    lanes = chosen(mask, lanes_along(axis, shape, scope), shape[axis])
    kind = "float" if dtype.is_float else "integer"
    code = scope.call(f"{kind}_extremum_lane", code, lanes, str(axis), repr(largest))
    if not target:  # a Triton scalar: the other axes, of extent 1, go too
        code = _only_lane(code, len(shape) - 1)
    elif len(target) == len(shape):
        code = laid_out(code, tuple(other != axis for other in range(len(shape))))
    return Value(code, DType.I32, target)


# ---------------------------------------------------------------- sort and topk


def sorting(statement: ir.Compute, scope: Scope) -> tuple[Assignments, list[Value]]:
    """Assignments to fresh names, then the values of the two destinations."""
    if statement.operation == "sort":
        return _sort(statement, scope)
    return _top(statement, scope)


def _key(code: Code, dtype: DType, smallest: bool, scope: Scope) -> Code:
    """Integers in the order of values, ascending (`smallest`) or descending."""
    if dtype.is_float:
        code = scope.call("double_key" if dtype is DType.F64 else "float_key", code)
    return code if smallest else PYTHON.unary("~", code)


def _key_dtype(dtype: DType) -> DType:
    return {DType.F32: DType.I32, DType.F64: DType.I64}.get(dtype, dtype)


def _last(dtype: DType) -> Code:
    """The key or tie of void entries, which puts them last."""
    return literal(int(identity_value("highest", dtype)))


def _number_tile(operand: ir.Operand, dtype: DType, shape: Shape, scope: Scope) -> Value:
    """The index operand of sort or topk, broadcast to the shape of the values."""
    value = operand_value(operand, dtype, len(shape), scope)
    value = lifted(value, len(shape))
    if value.shape == shape:
        return value
    code = broadcast_to(value.code, shape)
    return Value(code, dtype, shape)


def _mask(values: ir.Operand, numbers: ir.Operand, axis: int, scope: Scope) -> Code | None:
    """The mask of the entries along the axis: lanes where values and indices are both valid."""
    assert isinstance(values, ir.TileOperand)
    planned = scope.plan.tiles[values.tile].tile
    domain = list(values.domain or (ir.FULL,) * len(planned.extents))
    match numbers:
        case ir.TileOperand(name, own):
            extents = scope.tile(name).extents
        case ir.IndexOperand(_, _, extents, own):
            pass
        case ir.ScalarOperand():
            extents, own = (), ()
    place = axis - (len(planned.extents) - len(extents))
    repeats = place < 0 or (
        is_literal(extents[place], 1) and extents[place] != planned.extents[axis]
    )
    if own and not repeats:
        domain[axis] = symbolic.meet(domain[axis], own[place])
    return conjunction(conditions(tuple(domain), values.tile, scope, (axis,)))


def _sort(statement: ir.Compute, scope: Scope) -> tuple[Assignments, list[Value]]:
    operand, indices = statement.operands
    (axis,) = statement.axes
    source = scope.tile(tile_name(operand))
    rank = len(scope.plan.tiles[source.name].extents)
    value = operand_value(operand, carrier(source.dtype), rank, scope)
    dtype = carrier(scope.tile(statement.others[0]).dtype)
    if not value.shape:
        return [], [value, _scalar_index(indices, dtype, scope)]
    numbers = _number_tile(indices, dtype, value.shape, scope)
    smallest = not statement.attributes.get("descending", False)
    mask, whole = _mask(operand, indices, axis, scope), carrier(source.dtype)
    keys = chosen(mask, _key(value.code, whole, smallest, scope), _last(_key_dtype(whole)))
    lanes = broadcast_to(lanes_along(axis, value.shape, scope), value.shape)
    key, order = scope.names.fresh("key"), scope.names.fresh("order")
    words = repr(scope.dialect.gathers_words)
    call = scope.call("sorted_lanes", Code(key), Code(key), lanes, str(axis), "False", words)
    results = [
        attrs.evolve(part, code=taken(part.code, Code(order), axis, scope))
        for part in (value, numbers)
    ]
    return [(key, keys), (order, call)], results


def _only_lane(code: Code, rank: int) -> Code:
    """A block of one element as a Triton scalar."""
    for _ in range(rank):
        code = PYTHON.call("tl.max", code, "axis=0")
    return code


def _scalar_index(operand: ir.Operand, dtype: DType, scope: Scope) -> Value:
    """The index of the one element of a tile."""
    value = operand_value(operand, operand_dtype(operand, scope.tile), 0, scope)
    code = _only_lane(value.code, len(value.shape))
    return Value(PYTHON.call("tl.cast", code, TL[dtype]), dtype)


def _top(statement: ir.Compute, scope: Scope) -> tuple[Assignments, list[Value]]:
    operand, indices = statement.operands
    (axis,), smallest = statement.axes, not statement.attributes.get("largest", True)
    source = scope.tile(tile_name(operand))
    best, places = (scope.tile(name) for name in statement.destinations)
    rank = len(scope.plan.tiles[best.name].extents)
    dtype, tie_dtype = carrier(promote(source.dtype, best.dtype)), carrier(places.dtype)
    key_dtype = _key_dtype(dtype)
    last = (_last(key_dtype), _last(tie_dtype), str(axis))
    wide = _sorted_extent(source.name, best.name, axis, scope)
    old = (ir.TileOperand(best.name, statement.domain), ir.TileOperand(places.name))
    arguments: list[Code] = []
    shape: Shape = ()
    for values, numbers in ((operand, indices), old):
        value = lifted(operand_value(values, dtype, rank, scope), rank)
        code, shape = value.code, value.shape
        tie = _unsigned(_number_tile(numbers, tie_dtype, shape, scope), scope)
        mask = _mask(values, numbers, axis, scope)
        lanes = lanes_along(axis, shape, scope)
        arguments.append(chosen(mask, _key(code, dtype, smallest, scope), last[0]))
        arguments.append(chosen(mask, tie.code, last[1]))
        bits = f".to({TL[key_dtype]}, bitcast=True)"
        arguments.append(PYTHON.postfix(code, bits) if dtype.is_float else code)
        if wide is None:
            # 1 for every valid entry.
            ones = PYTHON.call("tl.full", shape_code(shape), "1", TL[DType.I32])
            arguments += [chosen(mask, ones, "0"), lanes]
    words, ties = scope.names.fresh("top_words"), scope.names.fresh("top_ties")
    if wide is None:
        count = kernel_expression(best.extents[axis], scope)
        call = scope.call("select_top", *arguments, count, *last)
    else:
        blocks = [(*shape[:axis], e, *shape[axis + 1 :]) for e in (wide, shape[axis])]
        numbered = (broadcast_to(lanes_along(axis, block, scope), block) for block in blocks)
        gathers = repr(scope.dialect.gathers_words)
        call = scope.call("merge_top", *arguments, *numbered, *last, gathers)
    target = scope.shape(best.name)
    results = []
    for name, whole in ((words, key_dtype), (ties, tie_dtype)):
        code = Code(name) if target else _only_lane(Code(name), rank)
        results.append(Value(code, whole, target))
    results[1] = _unsigned(results[1], scope)
    if dtype.is_float:
        back = PYTHON.postfix(results[0].code, f".to({TL[dtype]}, bitcast=True)")
        results[0] = Value(back, dtype, target)
    return [(f"{words}, {ties}", call)], results


def _unsigned(index: Value, scope: Scope) -> Value:
    """Indices mapped to the order that breaks ties: the negative index of a place that nothing has
    taken yet comes after all others. The mapping is its own inverse."""
    assert index.dtype is not None
    last = literal(int(identity_value("highest", index.dtype)))
    return attrs.evolve(index, code=scope.call("unsigned_order", index.code, last))


def _sorted_extent(source: str, best: str, axis: int, scope: Scope) -> Code | None:
    """The extent with room for the source and the old best of a topk in one sort; None where the
    results are few, an extent is known at launch only, or the block would be too large."""
    planned = [scope.plan.tiles[name].extents[axis].value for name in (source, best)]
    rows = [e.value for a, e in enumerate(scope.plan.tiles[best].extents) if a != axis]
    given, wanted = planned
    if given is None or wanted is None or None in rows or wanted <= MOST_SELECTED:
        return None
    wide = 2 * max(given, wanted)
    return Code(str(wide)) if math.prod((wide, *(r or 1 for r in rows))) <= MOST_ELEMENTS else None
