"""Operations that run along an axis in order: scans, argmax, argmin, sort and topk."""

from __future__ import annotations

import math

import attrs

from sketchc.base.types import DType, promote
from sketchc.ir import nodes as ir
from sketchc.lowering.precedence import PYTHON, Code
from sketchc.lowering.python_host.expressions import is_literal
from sketchc.lowering.python_host.names import literal
from sketchc.lowering.triton.cross_lane import accumulator_dtype, axis_of
from sketchc.lowering.triton.dialect import TL
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
    carrier,
    conditions,
    conjunction,
    lanes_along,
    lifted,
    operand_value,
    own_dtype,
    selected,
    taken,
    tile_name,
)
from sketchc.ops.table import identity_value

Assignments = list[tuple[str, Code]]

#: A topk with at most this many results takes them one by one; a larger one sorts.
MOST_SELECTED = 16
#: Triton's largest tensor, in elements.
MOST_ELEMENTS = 2**20


# ---------------------------------------------------------------- scans


def scan(statement: ir.Compute, neutral: bool, scope: Scope) -> Value:
    """cumsum and cumprod: void lanes are the identity."""
    operand, axis = statement.operands[0], axis_of(statement)
    source = scope.tile(tile_name(operand))
    destination = scope.tile(statement.destination)
    dtype = accumulator_dtype(statement, source.dtype, destination.dtype)
    identity = "zero" if statement.operation == "cumsum" else "one"
    code = selected(operand, () if neutral else (axis,), dtype, identity, scope)
    shape = scope.shape(source.name)
    exclusive = statement.attributes.get("exclusive", False)
    start = literal(0 if statement.operation == "cumsum" else 1)
    if exclusive and (not shape or shape[axis].text == "1"):
        return Value(start, None)
    if shape and shape[axis].text != "1":
        arguments: list[Code | str] = [code, str(axis)]
        if statement.attributes.get("reverse", False):
            arguments.append("reverse=True")
        code = PYTHON.call(f"tl.{statement.operation}", *arguments)
    if exclusive:
        code = _shifted(code, start, shape, statement, scope)
    return Value(code, dtype, shape)


def _shifted(code: Code, start: Code, shape: Shape, statement: ir.Compute, scope: Scope) -> Code:
    """A running result one lane later: each lane gets that of the lanes before it. Taking the
    lane's own value away again would lose digits, and is no number behind an infinity."""
    axis = axis_of(statement)
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
    operand, axis = statement.operands[0], axis_of(statement)
    source = scope.tile(tile_name(operand))
    assert isinstance(operand, ir.TileOperand)
    shape, target = scope.shape(source.name), scope.shape(statement.destination)
    mask = conjunction(conditions(operand.domain, source.name, scope, (axis,)))
    if not shape:
        if mask is None:
            return Value(Code("0"), None)
        return Value(PYTHON.call("tl.where", mask, "0", "-1"), DType.I32)
    largest = statement.operation == "argmax"
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
    """The key or tie of void entries: they come last."""
    return literal(int(identity_value("highest", dtype)))


def _number_tile(operand: ir.Operand, dtype: DType, shape: Shape, scope: Scope) -> Value:
    """The index operand of sort and topk, broadcast to the shape of the values."""
    value = operand_value(operand, dtype, len(shape), scope)
    value = lifted(value, len(shape))
    if value.shape == shape:
        return value
    code = broadcast_to(value.code, shape)
    return Value(code, dtype, shape)


def _mask(values: ir.Operand, numbers: ir.Operand, axis: int, scope: Scope) -> Code | None:
    """Where along the axis there are entries: where the values and their indices are valid."""
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
        domain[axis] = domain[axis].meet(own[place])
    return conjunction(conditions(tuple(domain), values.tile, scope, (axis,)))


def _sort(statement: ir.Compute, scope: Scope) -> tuple[Assignments, list[Value]]:
    operand, indices = statement.operands
    axis = axis_of(statement)
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
    value = operand_value(operand, own_dtype(operand, scope), 0, scope)
    code = _only_lane(value.code, len(value.shape))
    return Value(PYTHON.call("tl.cast", code, TL[dtype]), dtype)


def _top(statement: ir.Compute, scope: Scope) -> tuple[Assignments, list[Value]]:
    operand, indices = statement.operands
    axis, smallest = axis_of(statement), not statement.attributes.get("largest", True)
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
    """Indices in the order that breaks ties: the negative index of a place that nothing has taken
    yet comes after all others. Its own inverse."""
    assert index.dtype is not None
    last = literal(int(identity_value("highest", index.dtype)))
    return attrs.evolve(index, code=scope.call("unsigned_order", index.code, last))


def _sorted_extent(source: str, best: str, axis: int, scope: Scope) -> Code | None:
    """The extent with room for both sides of a topk by one sort; None where the results are few,
    or an extent is known at launch only."""
    planned = [scope.plan.tiles[name].extents[axis].value for name in (source, best)]
    rows = [e.value for a, e in enumerate(scope.plan.tiles[best].extents) if a != axis]
    given, wanted = planned
    if given is None or wanted is None or None in rows or wanted <= MOST_SELECTED:
        return None
    wide = 2 * max(given, wanted)
    return Code(str(wide)) if math.prod((wide, *(r or 1 for r in rows))) <= MOST_ELEMENTS else None
