"""Element-wise operations as Triton expressions: one row per operation of the op table.

A writer takes the operands (already in the operation's evaluation type), the attributes and the
evaluation type, and returns the result's code. Results of comparisons and tests are `int1`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from sketchc.base.types import DType
from sketchc.lowering.precedence import PYTHON, Code
from sketchc.lowering.python_host.names import literal
from sketchc.lowering.triton.dialect import TL
from sketchc.lowering.triton.scope import Scope
from sketchc.ops.table import identity_value

#: Integer types that Triton widens beside others.
NARROW = frozenset({DType.I8, DType.U8, DType.I16})

_NAN_ALL = "propagate_nan=tl.PropagateNan.ALL"
_INFINITY = Code('float("inf")')
_ZERO, _ONE = Code("0"), Code("1")


@attrs.frozen
class Request:
    """One element-wise operation to write."""

    operands: tuple[Code, ...]
    attributes: Mapping[str, object]
    dtype: DType  # of the operands and of the evaluation
    scope: Scope
    scalar: bool = False  # all operands are scalars

    @property
    def first(self) -> Code:
        return self.operands[0]

    @property
    def bits(self) -> str:
        return str(self.dtype.bytes * 8)


Writer = Callable[[Request], Code]


def _operator(symbol: str, boolean: str | None = None) -> Writer:
    def write(request: Request) -> Code:
        chosen = boolean if boolean and request.dtype is DType.BOOL else symbol
        return PYTHON.fold(chosen, list(request.operands))

    return write


def _primitive(function: str) -> Writer:
    return lambda request: PYTHON.call(function, *request.operands)


def _device(function: str, *attributes: str) -> Writer:
    def write(request: Request) -> Code:
        extra = [literal(_number(request.attributes[name])) for name in attributes]
        return request.scope.call(function, *request.operands, *extra)

    return write


def _number(value: object) -> int | float:
    assert isinstance(value, (int, float))
    return value


def _rounded(function: Writer) -> Writer:
    """floor, ceil and the like leave integers alone."""
    return lambda request: function(request) if request.dtype.is_float else request.first


def extremum(request: Request, function: str, boolean: str) -> Code:
    """max or min of two operands; NaN wins."""
    if request.dtype is DType.BOOL:
        return PYTHON.binary(boolean, *request.operands)
    arguments = [str(operand) for operand in request.operands]
    return PYTHON.call(function, *arguments, *([_NAN_ALL] if request.dtype.is_float else []))


def _maximum(request: Request, left: Code, right: Code) -> Code:
    return extremum(attrs.evolve(request, operands=(left, right)), "tl.maximum", "|")


def _minimum(request: Request, left: Code, right: Code) -> Code:
    return extremum(attrs.evolve(request, operands=(left, right)), "tl.minimum", "&")


def _bound(request: Request, name: str) -> Code | None:
    value = request.attributes.get(name)
    if value is None:
        return None
    number = _number(value)
    if request.dtype.is_float:
        return literal(float(number))
    # A bound that the type cannot hold is no bound.
    low, high = (int(identity_value(name, request.dtype)) for name in ("lowest", "highest"))
    return typed(literal(min(max(int(number), low), high)), request.dtype)


def _clamp(request: Request) -> Code:
    result = request.first
    low, high = _bound(request, "low"), _bound(request, "high")
    if low is not None:
        result = _maximum(request, result, low)
    return result if high is None else _minimum(request, result, high)


def _hardswish(request: Request) -> Code:
    return PYTHON.binary("*", request.first, request.scope.call("hardsigmoid", request.first))


def _gelu(request: Request) -> Code:
    tanh = request.attributes.get("approximate") == "tanh"
    return request.scope.call("gelu_tanh" if tanh else "gelu", request.first)


def _leaky_relu(request: Request) -> Code:
    slope = literal(_number(request.attributes["slope"]))
    return _where_positive(request.first, PYTHON.binary("*", slope, request.first))


def _where_positive(value: Code, other: Code) -> Code:
    return PYTHON.call("tl.where", PYTHON.binary(">", value, _ZERO), value, other)


def _round(request: Request) -> Code:
    magic = "4503599627370496.0" if request.dtype is DType.F64 else "8388608.0"
    return request.scope.call("round_even", request.first, magic)


def _power(request: Request) -> Code:
    if not request.dtype.is_float:
        return request.scope.call("integer_power", *request.operands, request.bits)
    base, exponent = request.operands
    if exponent.text in ("2", "2.0"):
        return PYTHON.binary("*", base, base)
    return request.scope.call("power", base, exponent, repr(request.dtype is DType.F64))


def _floor_pair(integer: str, floating: str) -> Writer:
    def write(request: Request) -> Code:
        if not request.dtype.is_float:
            signed = repr(request.dtype.is_signed)
            return request.scope.call(integer, *request.operands, signed)
        if floating == "float_mod":
            return request.scope.call(floating, *request.operands)
        # f64 division is correctly rounded as it is.
        exact = request.dtype is DType.F64
        exact = exact or (request.scalar and not request.scope.dialect.scalar_div_rn)
        return request.scope.call(floating, *request.operands, repr(not exact))

    return write


def _shift(function: str) -> Writer:
    return lambda request: request.scope.call(function, *request.operands, request.bits)


def _abs(request: Request) -> Code:
    return request.first if request.dtype is DType.BOOL else PYTHON.call("tl.abs", request.first)


def _fma(request: Request) -> Code:
    a, b, c = request.operands
    return PYTHON.binary("+", PYTHON.binary("*", a, b), c)


def _magnitude_test(symbol: str) -> Writer:
    return lambda r: PYTHON.binary(symbol, PYTHON.call("tl.abs", r.first), _INFINITY)


def _tangent(request: Request) -> Code:
    sine, cosine = PYTHON.call("tl.sin", request.first), PYTHON.call("tl.cos", request.first)
    return PYTHON.binary("/", sine, cosine)


def _invert(request: Request) -> Code:
    if request.dtype is DType.BOOL:
        return PYTHON.binary("==", request.first, _ZERO)
    if request.dtype.is_signed:
        return PYTHON.unary("~", request.first)
    # Triton's interpreter has no -1 of an unsigned type.
    ones = literal(int(identity_value("highest", request.dtype)))
    return PYTHON.binary("^", request.first, typed(ones, request.dtype))


#: Operation -> writer. `cast`, `fill` and `where` depend on shapes and types, and stand in
#: `compute`; what moves lanes stands in `shuffles`.
WRITERS: dict[str, Writer] = {
    "copy": lambda request: request.first,
    "neg": lambda request: PYTHON.unary("-", request.first),
    "abs": _abs,
    "relu": lambda request: _maximum(request, request.first, _bound_zero(request)),
    "clamp": _clamp,
    "floor": _rounded(_primitive("tl.floor")),
    "ceil": _rounded(_primitive("tl.ceil")),
    "round": _rounded(_round),
    "trunc": _rounded(_device("truncate")),
    "sign": lambda r: r.scope.call("sign" if r.dtype.is_float else "integer_sign", r.first),
    "exp": _primitive("tl.exp"),
    "exp2": _primitive("tl.exp2"),
    "log": _primitive("tl.log"),
    "log2": _primitive("tl.log2"),
    "sqrt": _primitive("tl.sqrt"),
    "rsqrt": _primitive("tl.rsqrt"),
    "sin": _primitive("tl.sin"),
    "cos": _primitive("tl.cos"),
    "tan": _tangent,
    "atan": _device("arctangent"),
    "tanh": _device("tanh"),
    "erf": _primitive("tl.erf"),
    "sigmoid": _device("sigmoid"),
    "silu": _device("silu"),
    "gelu": _gelu,
    "softplus": _device("softplus"),
    "softsign": _device("softsign"),
    "hardsigmoid": _device("hardsigmoid"),
    "hardswish": _hardswish,
    "elu": _device("elu", "alpha"),
    "selu": _device("selu"),
    "leaky_relu": _leaky_relu,
    "add": _operator("+", "|"),
    "sub": _operator("-", "^"),
    "mul": _operator("*", "&"),
    "div": _operator("/"),
    "max": lambda request: extremum(request, "tl.maximum", "|"),
    "min": lambda request: extremum(request, "tl.minimum", "&"),
    "pow": _power,
    "atan2": _device("arctangent2"),
    "floordiv": _floor_pair("integer_floordiv", "float_floordiv"),
    "mod": _floor_pair("integer_mod", "float_mod"),
    "fma": _fma,
    "eq": _operator("=="),
    "ne": _operator("!="),
    "lt": _operator("<"),
    "le": _operator("<="),
    "gt": _operator(">"),
    "ge": _operator(">="),
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
    "shl": _shift("shift_left"),
    "shr": _shift("shift_right"),
}

#: Operations whose result is `int1` whatever the evaluation type.
TESTS = frozenset(
    {
        *("eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite"),
        *("logical_and", "logical_or", "logical_not"),
    }
)

#: Operations that look at floats only; integer operands are brought to f32.
FLOAT_TESTS = frozenset({"isnan", "isinf", "isfinite"})

#: Operations written as device functions of two operands, which must both be tensors.
TENSOR_OPERANDS = frozenset({"pow", "atan2", "floordiv", "mod", "shl", "shr"})

#: Operations that look at truth values only.
LOGICAL = frozenset({"logical_and", "logical_or", "logical_not"})
BITWISE = frozenset({"bitwise_and", "bitwise_or", "bitwise_xor"})


def _bound_zero(request: Request) -> Code:
    return Code("0.0") if request.dtype.is_float else typed(_ZERO, request.dtype)


def typed(number: Code, dtype: DType) -> Code:
    """A literal beside a tile: Triton takes it for an i32, in whose type the result then is where
    the tile's is narrower."""
    if dtype not in NARROW:
        return number
    return PYTHON.call("tl.full", "()", number, TL[dtype])
