"""Compute statements of one kernel: which emitter writes them, and the element-wise operations.

Each element-wise operation of the op table has a writer, which takes the operands (already in the
operation's evaluation type), the attributes and the evaluation type, and returns the result's code.
Results of comparisons and tests are `int1`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import numpy as np

from sketchc.base.types import DType
from sketchc.interpreter.operations import cast
from sketchc.ir import nodes as ir
from sketchc.ir.walk import operand_dtype
from sketchc.lowering.plan import takes_as_it_is
from sketchc.lowering.precedence import PYTHON, Code
from sketchc.lowering.python_host.expressions import literal
from sketchc.lowering.triton import cross_lane
from sketchc.lowering.triton.dialect import TL, carrier
from sketchc.lowering.triton.scope import Scope, chosen
from sketchc.lowering.triton.values import (
    Value,
    as_tensor,
    broadcast_shape,
    conditions,
    conjunction,
    convert,
    fill_code,
    fit,
    full,
    operand_value,
    scalar_value,
)
from sketchc.ops.table import COMPARISONS, OPS, Category, Fact, Result, identity_value

#: Integer types that Triton widens beside others.
NARROW = frozenset({DType.I8, DType.U8, DType.I16})

_NAN_ALL = "propagate_nan=tl.PropagateNan.ALL"
_INFINITY = Code('float("inf")')
_ZERO, _ONE = Code("0"), Code("1")


@attrs.frozen
class Request:
    """One element-wise operation to write."""

    operands: tuple[Code, ...]
    attributes: Mapping[str, Any]
    dtype: DType  # of the operands and of the evaluation
    scope: Scope
    scalar: bool = False  # all operands are scalars

    @property
    def first(self) -> Code:
        """The first operand."""
        return self.operands[0]

    @property
    def approximate(self) -> bool:
        """Whether Triton's primitives approximate in this type; see `Dialect.approximates`."""
        return self.scope.dialect.approximates and self.dtype is DType.F32

    @property
    def bits(self) -> str:
        """The width of the type in bits, as text."""
        return str(self.dtype.bytes * 8)

    def call(self, function: str, *more: Code | str) -> Code:
        """A call of a device function of this package on the operands and `more`."""
        return self.scope.call(function, *self.operands, *more)


Writer = Callable[[Request], Code]


def _operator(symbol: str, boolean: str | None = None) -> Writer:
    def write(request: Request) -> Code:
        chosen = boolean if boolean and request.dtype is DType.BOOL else symbol
        return PYTHON.fold(chosen, list(request.operands))

    return write


def _primitive(function: str) -> Writer:
    return lambda request: PYTHON.call(function, *request.operands)


def _device(function: str, *attributes: str) -> Writer:
    return lambda r: r.call(function, *(literal(r.attributes[name]) for name in attributes))


def _rounded(function: Writer) -> Writer:
    """A writer that leaves integers alone, as floor, ceil and the like do."""
    return lambda request: function(request) if request.dtype.is_float else request.first


def _extremum(function: str, boolean: str) -> Writer:
    """max or min of two operands; NaN wins."""

    def write(request: Request) -> Code:
        if request.dtype is DType.BOOL:
            return PYTHON.binary(boolean, *request.operands)
        nan = [_NAN_ALL] if request.dtype.is_float else []
        return PYTHON.call(function, *request.operands, *nan)

    return write


_maximum, _minimum = _extremum("tl.maximum", "|"), _extremum("tl.minimum", "&")


def _clamp(request: Request) -> Code:
    result, dtype = request.first, request.dtype
    for name, limited in (("low", _maximum), ("high", _minimum)):
        bound = request.attributes.get(name)
        if bound is None:
            continue
        if dtype.is_float:
            number = literal(float(bound))
        else:
            # A bound that the type cannot hold is no bound.
            low, high = (int(identity_value(end, dtype)) for end in ("lowest", "highest"))
            number = typed(literal(min(max(int(bound), low), high)), dtype)
        result = limited(attrs.evolve(request, operands=(result, number)))
    return result


def _quotient(request: Request) -> Code:
    if request.approximate:
        return PYTHON.call("tl.div_rn", *request.operands)
    return PYTHON.binary("/", *request.operands)


def _exponential(request: Request) -> Code:
    if request.approximate:
        return request.call("exponential")
    return PYTHON.call("tl.exp", request.first)


def _exponential_less_1(request: Request) -> Code:
    """The device function `expm1` near 0, where the difference cancels; the difference elsewhere,
    since `tl.exp` is inexact for large operands."""
    near = request.call("expm1")
    if not request.approximate:
        return near
    size = PYTHON.call("tl.abs", request.first)
    far = PYTHON.binary("-", request.call("exponential"), Code("1.0"))
    return PYTHON.call("tl.where", PYTHON.binary("<", size, Code("1.0")), near, far)


def _root(request: Request) -> Code:
    return PYTHON.call("tl.sqrt_rn" if request.approximate else "tl.sqrt", request.first)


def _inverse_root(request: Request) -> Code:
    if request.approximate:
        return PYTHON.binary("/", Code("1.0"), _root(request))
    return PYTHON.call("tl.rsqrt", request.first)


def _whole(mode: str) -> Writer:
    """floor ("down") or ceil ("up")."""

    def write(request: Request) -> Code:
        if request.approximate:
            return request.call(f"round_{mode}")
        return PYTHON.call({"down": "tl.floor", "up": "tl.ceil"}[mode], request.first)

    return write


def _relu(request: Request) -> Code:
    zero = Code("0.0") if request.dtype.is_float else typed(_ZERO, request.dtype)
    return _maximum(attrs.evolve(request, operands=(request.first, zero)))


def _leaky_relu(request: Request) -> Code:
    positive = PYTHON.binary(">", request.first, _ZERO)
    scaled = PYTHON.binary("*", literal(request.attributes["slope"]), request.first)
    return PYTHON.call("tl.where", positive, request.first, scaled)


def _round(request: Request) -> Code:
    magic = "4503599627370496.0" if request.dtype is DType.F64 else "8388608.0"
    return request.call("round_even", magic)


def _power(request: Request) -> Code:
    if not request.dtype.is_float:
        return request.call("integer_power", request.bits)
    base, exponent = request.operands
    if exponent.text in ("2", "2.0"):
        return PYTHON.binary("*", base, base)
    return request.call("power", repr(request.dtype is DType.F64))


def _floor_pair(integer: str, floating: str) -> Writer:
    def write(request: Request) -> Code:
        if not request.dtype.is_float:
            return request.call(integer, repr(request.dtype.is_signed))
        if floating == "float_mod":
            return request.call(floating)
        # f64 division is correctly rounded as it is.
        exact = request.dtype is DType.F64
        exact = exact or (request.scalar and not request.scope.dialect.scalar_div_rn)
        return request.call(floating, repr(not exact))

    return write


def _magnitude_test(symbol: str) -> Writer:
    return lambda r: PYTHON.binary(symbol, PYTHON.call("tl.abs", r.first), _INFINITY)


def _invert(request: Request) -> Code:
    if request.dtype is DType.BOOL:
        return PYTHON.binary("==", request.first, _ZERO)
    if request.dtype.is_signed:
        return PYTHON.unary("~", request.first)
    # Triton's interpreter has no -1 of an unsigned type.
    ones = literal(int(identity_value("highest", request.dtype)))
    return PYTHON.binary("^", request.first, typed(ones, request.dtype))


#: Operations that Triton and this package's device functions have under their own names.
_PRIMITIVES = ("exp2", "log", "log2", "sin", "cos", "erf")
_DEVICE = ("log1p", "tanh", "sigmoid", "silu", "softplus", "softsign", "hardsigmoid", "selu")

#: Operation -> writer. `cast`, `fill` and `where` depend on shapes and types, and stand in
#: `compute`; what moves lanes stands in `cross_lane`.
WRITERS: dict[str, Writer] = {
    **{name: _operator(sign) for sign, name in COMPARISONS.items()},
    **{name: _primitive(f"tl.{name}") for name in _PRIMITIVES},
    **{name: _device(name) for name in _DEVICE},
    "copy": lambda request: request.first,
    "neg": lambda request: PYTHON.unary("-", request.first),
    "abs": lambda r: r.first if r.dtype is DType.BOOL else PYTHON.call("tl.abs", r.first),
    "relu": _relu,
    "clamp": _clamp,
    "exp": _exponential,
    "expm1": _exponential_less_1,
    "sqrt": _root,
    "rsqrt": _inverse_root,
    "floor": _rounded(_whole("down")),
    "ceil": _rounded(_whole("up")),
    "round": _rounded(_round),
    "trunc": _rounded(_device("truncate")),
    "sign": lambda r: r.call("sign" if r.dtype.is_float else "integer_sign"),
    "tan": lambda r: PYTHON.binary("/", *(PYTHON.call(f"tl.{f}", r.first) for f in ("sin", "cos"))),
    "atan": _device("arctangent"),
    "gelu": lambda r: r.call("gelu_tanh" if r.attributes.get("approximate") == "tanh" else "gelu"),
    "hardswish": lambda r: PYTHON.binary("*", r.first, r.call("hardsigmoid")),
    "elu": _device("elu", "alpha"),
    "leaky_relu": _leaky_relu,
    "add": _operator("+", "|"),
    "sub": _operator("-", "^"),
    "mul": _operator("*", "&"),
    "div": _quotient,
    "max": _maximum,
    "min": _minimum,
    "pow": _power,
    "atan2": _device("arctangent2"),
    "floordiv": _floor_pair("integer_floordiv", "float_floordiv"),
    "mod": _floor_pair("integer_mod", "float_mod"),
    "fma": lambda r: PYTHON.binary("+", PYTHON.binary("*", *r.operands[:2]), r.operands[2]),
    "isnan": lambda request: PYTHON.binary("!=", request.first, request.first),
    "isinf": _magnitude_test("=="),
    "isfinite": _magnitude_test("<"),
    "logical_and": _operator("&"),
    "logical_or": _operator("|"),
    "logical_not": lambda request: PYTHON.binary("==", request.first, _ZERO),
    "bitwise_and": _operator("&"),
    "bitwise_or": _operator("|"),
    "bitwise_xor": _operator("^"),
    "bitwise_not": _invert,
    "shl": lambda request: request.call("shift_left", request.bits),
    "shr": lambda request: request.call("shift_right", request.bits),
}

#: Operations written as device functions of two operands, which must both be tensors.
TENSOR_OPERANDS = frozenset({"pow", "atan2", "floordiv", "mod", "shl", "shr"})

BITWISE = frozenset({"bitwise_and", "bitwise_or", "bitwise_xor"})


def typed(number: Code, dtype: DType) -> Code:
    """A literal beside a tile of type `dtype`, as a tensor where that type is narrower than i32:
    Triton takes a bare literal for an i32, and the result would be one, too."""
    if dtype not in NARROW:
        return number
    return PYTHON.call("tl.full", "()", number, TL[dtype])


def compute(statement: ir.Compute, neutral: frozenset[int], scope: Scope) -> list[tuple[str, Code]]:
    """The assignments of a statement, the last ones to its destinations, in their types and shapes.

    An operation with several results is computed into fresh names first.
    """
    row = OPS[statement.operation]
    before: list[tuple[str, Code]] = []
    match row.category:
        case Category.REDUCTION:
            values = [cross_lane.reduction(statement, 0 in neutral, scope)]
        case Category.MATRIX:
            values = [cross_lane.product(statement, neutral, scope)]
        case Category.SCAN:
            values = [cross_lane.scan(statement, 0 in neutral, scope)]
        case Category.INDEX:
            values = [cross_lane.extremum_index(statement, scope)]
        case Category.SORTING:
            before, values = cross_lane.sorting(statement, scope)
        case Category.LAYOUT:
            values = [cross_lane.rearranged(statement, scope)]
        case Category.RANDOM:
            values = [_random(statement, scope)]
        case _:
            values = [_elementwise(statement, scope)]
    written = [
        (scope.names[name], _written(value, name, statement, neutral, scope))
        for name, value in zip(statement.destinations, values, strict=True)
    ]
    return [*before, *written]


def _written(
    value: Value, destination: str, statement: ir.Compute, neutral: frozenset[int], scope: Scope
) -> Code:
    """The destination's new version: `value` in its type and shape, on the lanes written."""
    tile = scope.tile(destination)
    code = fit(value, tile.dtype, scope.shape(tile.name))
    adds = Fact.ADDS in OPS[statement.operation].facts
    if not statement.masked or (adds and neutral):  # others are zero where the tile stays as it is
        return code
    mask = conjunction(conditions(statement.written, tile.name, scope))
    return chosen(mask, code, scope.names[tile.name])


# ---------------------------------------------------------------- element-wise


def _elementwise(statement: ir.Compute, scope: Scope) -> Value:
    name, dtype = statement.operation, statement.dtype
    tile = scope.tile(statement.destination)
    rank = len(scope.shape(tile.name))
    match name:
        case "fill":
            value = operand_value(statement.operands[0], tile.dtype, rank, scope)
            return attrs.evolve(value, dtype=None) if value.shape == () else value
        case "cast":
            return _cast(statement, tile.dtype, rank, scope)
        case "where":
            condition = operand_value(statement.operands[0], DType.BOOL, rank, scope)
            values = [operand_value(o, dtype, rank, scope) for o in statement.operands[1:]]
            values = [as_tensor(value, dtype) for value in values] if dtype in _TYPED else values
            code = PYTHON.call("tl.where", condition.code, *(v.code for v in values))
            return Value(code, dtype, broadcast_shape([condition, *values]))
    row = OPS[name]
    if Fact.LOGICAL in row.facts:
        values = [_truth(operand, dtype, rank, scope) for operand in statement.operands]
        dtype = DType.BOOL
    else:
        if name in ("isnan", "isinf", "isfinite") and not dtype.is_float:
            dtype = DType.F32  # they look at floats only
        values = [operand_value(operand, dtype, rank, scope) for operand in statement.operands]
    if dtype in NARROW:
        values = [as_tensor(value, dtype) for value in values]
    if scope.dialect.interval_masks and (dtype is DType.BOOL or name in BITWISE):
        values[0] = as_tensor(values[0], dtype)  # older front ends have no Python number before `&`
    squares = name == "pow" and values[1].code.text in ("2", "2.0")
    if name in TENSOR_OPERANDS and not squares:
        shape = broadcast_shape(values)
        values = [as_tensor(value, dtype, shape) for value in values]
    elif all(value.dtype is None for value in values):
        values[0] = as_tensor(values[0], dtype)
    shape = broadcast_shape(values)
    operands = tuple(value.code for value in values)
    request = Request(operands, statement.attributes, dtype, scope, scalar=not shape)
    return Value(WRITERS[name](request), DType.BOOL if row.result is Result.BOOL else dtype, shape)


def _truth(operand: ir.Operand, dtype: DType, rank: int, scope: Scope) -> Value:
    """An operand as a truth value; a float scalar is compared with zero in the operation's type.

    The comparison goes through `tl.where`: beside a tile, Triton's interpreter would repeat a
    comparison of scalars in the type of the values compared.
    """
    match operand:
        case ir.ScalarOperand(ir.Literal() | ir.Unary("-", ir.Literal())):
            pass
        case ir.ScalarOperand(value) if operand.dtype.is_float and dtype.is_float:
            number = scalar_value(value, operand.dtype, dtype, scope)
            test = PYTHON.binary("!=", number.code, Code("0"))
            return Value(PYTHON.call("tl.where", test, "True", "False"), DType.BOOL)
    return operand_value(operand, DType.BOOL, rank, scope)


#: Types of which both sides of a choice may be literals: Triton takes those for f32 or i32.
_TYPED = frozenset({*NARROW, DType.U32, DType.I64, DType.F64})


def _cast(statement: ir.Compute, target: DType, rank: int, scope: Scope) -> Value:
    """An explicit conversion, with a rounding direction and saturation where asked."""
    operand = statement.operands[0]
    source = operand_dtype(operand, scope.tile)
    if isinstance(operand, ir.ScalarOperand) and not takes_as_it_is(statement):
        return operand_value(operand, target, rank, scope)
    number = scope.constant(operand.value) if isinstance(operand, ir.ScalarOperand) else None
    if number is not None:
        folded = cast(np.asarray(number), target, statement.attributes).item()
        return Value(full((), fill_code(folded, target), target), target)
    value = operand_value(operand, source, rank, scope)
    mode = str(statement.attributes.get("round", "nearest"))
    if target is DType.BOOL:
        return value
    if isinstance(operand, ir.ScalarOperand):  # a number, in Triton's interpreter
        value = Value(full((), value.code, source), source)
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
                code = _whole(mode)(request)
    if not statement.attributes.get("sat", False) or source is DType.BOOL:
        return Value(code, source, value.shape)
    return Value(_saturated(code, source, target, scope), target, value.shape)


def _saturated(code: Code, source: DType, target: DType, scope: Scope) -> Code:
    low, high = (int(identity_value(name, target)) for name in ("lowest", "highest"))
    if source.is_float:
        bounds = [literal(low), literal(high), literal(float(low)), literal(float(high + 1))]
        wide = carrier(target)
        return convert(scope.call("saturate", code, TL[wide], *bounds), wide, target)
    least, most = (int(identity_value(name, source)) for name in ("lowest", "highest"))
    # A signed type holds every value of the source.
    wide = carrier(source)
    code = convert(code, source, wide)
    if most > high:
        code = PYTHON.call("tl.minimum", code, literal(high))
    if least < low:
        code = PYTHON.call("tl.maximum", code, literal(low))
    return convert(code, wide, target)


def _directed_cast(value: Value, target: DType, mode: str, scope: Scope) -> Value:
    integer = {2: DType.I16, 4: DType.I32}[target.bytes]
    lowest = literal(int(identity_value("lowest", integer)))
    arguments = (value.code, TL[target], TL[integer], lowest, f'"{mode}"')
    return Value(scope.call("directed_cast", *arguments), target, value.shape)


_GENERATORS = {"rand": "uniform", "randn": "normal"}


def _random(statement: ir.Compute, scope: Scope) -> Value:
    """One number per offset, in f32; `_written` converts it to the destination's type and shape."""
    rank = len(scope.shape(statement.destination))
    values = [operand_value(operand, DType.I64, rank, scope) for operand in statement.operands]
    words = [
        value.code if value.shape else PYTHON.call("tl.cast", value.code, TL[DType.I64])
        for value in values
    ]
    code = scope.call(_GENERATORS[statement.operation], *words)
    return Value(code, DType.F32, values[1].shape)
