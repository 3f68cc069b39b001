"""C++ text of names, scalar expressions, typed values and conditions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import assert_never

import attrs

from sketchc.base.diagnostics import InternalError
from sketchc.base.reserved import CPP_KEYWORDS
from sketchc.base.types import DType, wrapped
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import scalar_dtype
from sketchc.ir.symbolic import OPPOSITE
from sketchc.launch.conditions import Condition, Kind
from sketchc.lowering.loops import nodes
from sketchc.lowering.loops.nodes import LOGICAL
from sketchc.lowering.precedence import CPP, Code, at_least, parenthesised
from sketchc.ops.table import COMPARISONS, OPS, Fact

#: Macros and types that the generated file includes, and its own namespaces and locals.
_INCLUDED = """
INFINITY NAN HUGE_VAL INT64_C UINT64_C EOF NULL assert errno signbit isnan isinf isfinite int8_t
int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t size_t std sketch linux unix
SKETCH_VECTORS thread_arena threads status grid
thread block_memory scratch scratch_memory scratch_bytes first end part
threadIdx blockIdx blockDim gridDim warpSize
"""

RESERVED = CPP_KEYWORDS.union(_INCLUDED.split())

#: Functions of the C library that an `extern "C"` entry point must not redefine.
_LIBRARY_NAMES = """
main abs acos asin atan atan2 cbrt ceil copysign cos cosh div erf erfc exp exp2 expm1 exit fabs
fdim floor fma fmax fmin fmod free frexp gamma hypot index j0 j1 jn ldexp lgamma log log10 log1p
log2 logb lrint malloc modf nearbyint pow printf puts rand read remainder remove rename rint round
scalb signal sin sinh sleep sort sqrt strlen system tan tanh tgamma time trunc wait write y0 y1 yn
"""
_LIBRARY = frozenset(_LIBRARY_NAMES.split())


def identifier(name: str, reserved: frozenset[str] = frozenset()) -> str:
    """`name`, or `name_` where C++, or the target, has another use for it."""
    return f"{name}_" if name in RESERVED | reserved else name


def entry_name(sketch: str, reserved: frozenset[str] = frozenset()) -> str:
    """The exported function's name: the sketch's, unless the C library has a function so named."""
    return f"{sketch}_sketch" if sketch in RESERVED | _LIBRARY | reserved else sketch


#: The library functions that make floats of two bytes; a file with the type has its function.
_NARROW = {DType.F16: "to_half", DType.BF16: "to_bfloat16"}
_HELPERS = {"//": "floor_div", "%": "floor_mod", "cdiv": "ceil_div"}
_FUNCTIONS = {
    "sqrt": "std::sqrt",
    "exp": "std::exp",
    "log": "std::log",
    "log2": "std::log2",
    "pow": "std::pow",
}
#: Integers that C++ promotes to int before it calculates.
PROMOTED = frozenset({DType.I16, DType.I8, DType.U8})
#: Operations whose C++ text has the type of its operands whatever that is.
_KEEPS_TYPE = frozenset({"where", "clamp"})
_MODES = {"down": "-1", "up": "1", "zero": "0"}
_OPERATORS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    **{name: sign for sign, name in COMPARISONS.items()},
    "logical_and": "&&",
    "logical_or": "||",
}
_BITWISE = {"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^"}
#: Rows whose function in the library has another name.
_RENAMED = {"abs": "absolute", "floordiv": "floor_div", "mod": "floor_mod"}
_OF_FLOATS = {"floordiv": "whole_quotient", "mod": "floor_rest"}
#: Attributes that become further arguments, in this order.
_ATTRIBUTES = {"elu": ("alpha",), "leaky_relu": ("slope",)}


def is_short(operation: str) -> bool:
    """Whether an element-wise operation is an operator of C++, or picks one of its operands."""
    return operation in _OPERATORS or Fact.SELECTS in OPS[operation].facts


@attrs.define
class Expressions:
    """Prints the expressions of one file; `used` collects the pieces of the library in them,
    `names` the names of the sketch and of the generated code."""

    used: set[str] = attrs.field(factory=set)
    names: set[str] = attrs.field(factory=set)

    def name(self, name: str) -> str:
        """A name as the file spells it."""
        self.names.add(name)
        return identifier(name)

    def helper(self, name: str, *arguments: Code | str, types: str = "") -> Code:
        """A call of a function of the library, with these arguments of its template."""
        function = self.library(name)
        return CPP.call(f"{function}<{types}>" if types else function, *arguments)

    def library(self, name: str) -> str:
        """A name of the library, whose piece the file then carries."""
        self.used.add(name)
        return f"sketch::{name}"

    def kind(self, dtype: DType) -> str:
        """The C++ name of an element type."""
        if dtype in _NARROW:
            self.used.add(_NARROW[dtype])
        return dtype.cpp_name

    def listed(self, expressions: Iterable[ir.Expr]) -> str:
        """The texts of expressions, with commas between them."""
        return ", ".join(str(self.scalar(expression)) for expression in expressions)

    def rounded(self, code: Code, dtype: DType) -> Code:
        """A double rounded to the narrower type `dtype`; one of two bytes is held in a float."""
        return self._widened(self._to_float(code, DType.F64, dtype, "default"), dtype)

    def _widened(self, code: Code, dtype: DType) -> Code:
        """A float of two bytes converted to one of four; values of other types as they are."""
        if dtype not in _NARROW:
            return code
        self.kind(dtype)
        return CPP.call("sketch::to_float", code)

    # ------------------------------------------------------------ scalars

    def scalar(self, expression: ir.Expr) -> Code:
        """The text of an integer, float or bool expression."""
        match expression:
            case ir.Literal(value):
                return literal(value)
            case ir.Ref(name, ir.NameKind.PRESENT):
                return CPP.binary("!=", Code(self.name(name)), Code("nullptr"))
            case ir.Ref(name):
                return Code(self.name(name))
            case ir.Unary("not", operand):
                return CPP.unary("!", self.scalar(operand))
            case ir.Unary(operator, operand):
                return CPP.unary(operator, self.scalar(operand))
            case ir.Binary():
                return self._binary(expression)
            case ir.Choice():
                condition, then, otherwise = (self._in_brackets(part) for part in expression.parts)
                return parenthesised(Code(f"{condition} ? {then} : {otherwise}"))
            case ir.Function(name, arguments):
                return self._function(name, arguments)
            case ir.Iota() | ir.TileLanes():
                raise AssertionError("an index tile reached the printer")
            case _:
                assert_never(expression)

    def _in_brackets(self, expression: ir.Expr) -> Code:
        """A part of a choice, in parentheses where it has an operator."""
        code = self.scalar(expression)
        plain = isinstance(expression, ir.Literal | ir.Ref | ir.Function | ir.Choice)
        return code if plain else parenthesised(code)

    def _as_real(self, expression: ir.Expr) -> Code:
        if isinstance(expression, ir.Literal) and not isinstance(expression.value, bool):
            return _float_literal(float(expression.value), DType.F64)
        code = self.scalar(expression)
        if scalar_dtype(expression) is DType.F64:
            return code
        return CPP.call("static_cast<double>", code)

    def _binary(self, expression: ir.Binary) -> Code:
        operator, left, right = expression.operator, expression.left, expression.right
        if operator in LOGICAL:
            return logical(operator, self.scalar(left), self.scalar(right))
        operands = (left, right)
        real = operator == "/" or DType.F64 in (scalar_dtype(left), scalar_dtype(right))
        first, second = (self._as_real(part) if real else self.scalar(part) for part in operands)
        match operator:
            case "min" | "max":
                kind = "double" if real else "int64_t"
                return CPP.call(f"std::{operator}<{kind}>", first, second)
            case "//" | "%" | "cdiv":
                name = _HELPERS[operator]
                name = name if real else self.division(name, right)
                return self.helper(name, first, second)
            case _:
                return CPP.binary(operator, first, second)

    def division(self, name: str, divisor: ir.Expr) -> str:
        """The library's function for a division of integers, by default the one of this `name`."""
        return name

    def fails(self, holds: ir.Expr) -> Code:
        """The C++ test that a condition does not hold."""
        match holds:
            case ir.Unary("not", operand):
                return self.scalar(operand)
            case ir.Binary("and" | "or" as operator, left, right):
                return logical(
                    "or" if operator == "and" else "and", self.fails(left), self.fails(right)
                )
            case ir.Binary(operator, left, right) if operator in OPPOSITE and DType.F64 not in (
                scalar_dtype(left),
                scalar_dtype(right),
            ):
                return self.scalar(ir.Binary(OPPOSITE[operator], left, right))
            case _:
                return CPP.unary("!", self.scalar(holds))

    def _function(self, name: str, arguments: tuple[ir.Expr, ...]) -> Code:
        match name:
            case "float":
                return self._as_real(arguments[0])
            case "int":
                return self.helper("truncate", self._as_real(arguments[0]))
            case "abs":
                if scalar_dtype(arguments[0]) is DType.F64:
                    return CPP.call("std::fabs", self.scalar(arguments[0]))
                return CPP.call("std::abs", self.scalar(arguments[0]))
            case "rsqrt":
                root = CPP.call("std::sqrt", self._as_real(arguments[0]))
                return CPP.binary("/", Code("1.0"), root)
            case _:
                return CPP.call(
                    _FUNCTIONS[name], *(self._as_real(argument) for argument in arguments)
                )

    # ------------------------------------------------------------ values

    def value(self, node: nodes.Value) -> Code:
        """The text of a typed value."""
        match node:
            case nodes.Number(number, dtype):
                return self.number_literal(number, dtype)
            case nodes.Local(name):
                return Code(self.name(name))
            case nodes.Scalar(expression, _):
                return self.scalar(expression)
            case nodes.Element(buffer, index):
                return Code(f"{self.name(buffer)}[{self.scalar(index)}]")
            case nodes.Convert(inner, dtype, rounding, saturate):
                return self._convert(inner, dtype, rounding, saturate)
            case nodes.Apply():
                code = self._apply(node)
                if node.dtype in PROMOTED and node.operation not in _KEEPS_TYPE:
                    # Arithmetic on short integers happens on int.
                    return CPP.call(f"static_cast<{self.kind(node.dtype)}>", code)
                return code
            case nodes.Select(condition, then, otherwise):
                parts = (self.value(then), self._argument(otherwise))
                return conditional(self.scalar(condition), *parts)
            case _:
                assert_never(node)

    def constant(self, value: int | float | bool, dtype: DType) -> Code:
        """A number as a literal of the type in which the host holds values of type `dtype`."""
        return literal(float(value) if dtype.is_float else value)

    def number_literal(self, number: int | float | bool, dtype: DType) -> Code:
        """A number as a literal of an element type."""
        if dtype in (DType.F16, DType.BF16):
            return self.helper(_NARROW[dtype], _float_literal(float(number), DType.F32))
        if dtype.is_float:
            return _float_literal(float(number), dtype)
        if dtype is DType.BOOL:
            return literal(bool(number))
        number = wrapped(int(number), dtype)
        if dtype is DType.I32 and int(number) == -(2**31):
            return Code("std::numeric_limits<int32_t>::min()")
        if dtype is DType.U32:
            return Code(f"{int(number)}U")
        return literal(int(number))

    def _convert(self, inner: nodes.Value, dtype: DType, rounding: str, saturate: bool) -> Code:
        source = inner.dtype
        if isinstance(inner, nodes.Scalar):
            source = scalar_dtype(inner.value)
        if source is dtype:
            return self.value(inner)
        if isinstance(inner, nodes.Number):
            if rounding == "default" or dtype is DType.BOOL:
                return self.number_literal(inner.value, dtype)
            if dtype.is_float and source.is_float:
                return self._to_float(
                    self.number_literal(inner.value, DType.F64), DType.F64, dtype, rounding
                )
        code = self.value(inner)
        if source in _NARROW:
            code = self._widened(code, source)
            source = DType.F32
            if source is dtype:
                return code
        if dtype is DType.BOOL:
            zero = self.number_literal(0, source)
            return CPP.binary("!=", code, zero)
        if dtype.is_float:
            return self._to_float(code, source, dtype, rounding)
        kind = self.kind(dtype)
        if source.is_float:
            mode = "nearest" if rounding == "default" else rounding
            helper = "saturated" if saturate else "to_integer"
            return self.helper(helper, self.helper(f"round_{mode}", code), types=kind)
        if saturate and source is not DType.BOOL:
            return self.helper("clamped", CPP.call("int64_t", code), types=kind)
        return CPP.call(f"static_cast<{kind}>", code)

    def _to_float(self, code: Code, source: DType, dtype: DType, rounding: str) -> Code:
        kind = self.kind(dtype)
        narrows = source.is_float and dtype.bytes < source.bytes
        if rounding in _MODES and narrows:
            return self.helper("directed", code, types=f"{kind}, {_MODES[rounding]}")
        if dtype in _NARROW:
            wide = code if source.is_float else CPP.call("static_cast<double>", code)
            return self.helper(_NARROW[dtype], wide)
        return CPP.call(f"static_cast<{kind}>", code)

    def _apply(self, node: nodes.Apply) -> Code:
        codes = [self._argument(argument) for argument in node.arguments]
        operation = node.operation
        if operation in _OPERATORS:
            return CPP.binary(_OPERATORS[operation], *codes)
        if operation in _BITWISE:
            if node.operands is DType.BOOL:
                # `&` on bool promotes to int; the result must stay a bool.
                return CPP.call("static_cast<bool>", CPP.binary(_BITWISE[operation], *codes))
            return CPP.binary(_BITWISE[operation], *codes)
        match operation:
            case "floordiv" | "mod" if node.operands.is_float:
                return self.helper(_OF_FLOATS[operation], *codes)
            case "neg":
                return CPP.unary("-", codes[0])
            case "fma":
                return CPP.binary("+", CPP.binary("*", codes[0], codes[1]), codes[2])
            case "logical_not":
                return CPP.unary("!", codes[0])
            case "bitwise_not":
                return CPP.unary("!" if node.operands is DType.BOOL else "~", codes[0])
            case "where":
                return conditional(*codes)
            case "clamp":
                return self._clamp(node, codes[0])
            case "gelu" if node.attributes.get("approximate") == "tanh":
                return self.helper("gelu_tanh", *codes)
            case _:
                extra = [
                    self._typed_literal(node.attributes[name], node.operands)
                    for name in _ATTRIBUTES.get(operation, ())
                ]
                return self.helper(_RENAMED.get(operation, operation), *codes, *extra)

    def _argument(self, argument: nodes.Value) -> Code:
        """An operand; a literal that C++ takes for an int has its type spelled, for templates."""
        if isinstance(argument, nodes.Number):
            return self._typed_literal(argument.value, argument.dtype)
        return self.value(argument)

    def _typed_literal(self, number: int | float | bool, dtype: DType) -> Code:
        code = self.number_literal(number, dtype)
        exact = dtype is DType.I64 or dtype in PROMOTED
        return Code(f"{self.kind(dtype)}{{{code}}}") if exact else code

    def _clamp(self, node: nodes.Apply, code: Code) -> Code:
        for attribute, helper in (("low", "at_least"), ("high", "at_most")):
            bound = node.attributes.get(attribute)
            if bound is not None:
                if node.operands.is_integer and node.operands.limits is not None:
                    # What the type cannot hold is no bound: the type's own limit.
                    least, greatest = node.operands.limits
                    bound = min(max(int(bound), least), greatest)
                code = self.helper(helper, code, self._typed_literal(bound, node.operands))
        return code


def literal(value: int | float | bool) -> Code:
    """A number or truth value of the sketch; integers beyond 32 bits get a type of 64 bits."""
    if isinstance(value, bool):
        return Code("true" if value else "false")
    if isinstance(value, float):
        return _float_literal(value, DType.F64)
    if value == -(2**63):
        return Code("std::numeric_limits<int64_t>::min()")
    text = str(value) if abs(value) < 2**31 else f"INT64_C({abs(value)})"
    if abs(value) >= 2**31 and value < 0:
        text = f"-{text}"
    return Code(text, CPP.unary_levels["-"] if value < 0 else 100)


def logical(operator: str, left: Code, right: Code) -> Code:
    """`and` or `or` of two conditions. Compilers warn about `a || b && c`: an inner part with the
    other operator is parenthesised."""
    own = CPP.binary_levels[LOGICAL[operator]]
    levels = {CPP.binary_levels[spelling] for spelling in LOGICAL.values()} - {own}
    parts = [parenthesised(code) if code.level in levels else code for code in (left, right)]
    return CPP.binary(LOGICAL[operator], *parts)


def conditional(condition: Code, then: Code, otherwise: Code) -> Code:
    """`condition ? then : otherwise`."""
    shown = (at_least(code, CPP.postfix_level) for code in (condition, then, otherwise))
    return Code("{} ? {} : {}".format(*shown), 1)


def _float_literal(number: float, dtype: DType) -> Code:
    kind = dtype.cpp_name
    if math.isnan(number):
        return Code(f"std::numeric_limits<{kind}>::quiet_NaN()")
    if math.isinf(number):
        text = f"std::numeric_limits<{kind}>::infinity()"
        return Code(text) if number > 0 else CPP.unary("-", Code(text))
    if dtype is DType.F32 and abs(number) > 3.4028235677973366e38:
        return _float_literal(math.copysign(math.inf, number), dtype)
    text = repr(abs(number))
    if "." not in text and "e" not in text:
        text += ".0"
    code = Code(text + ("f" if dtype is DType.F32 else ""))
    return CPP.unary("-", code) if math.copysign(1.0, number) < 0 else code


def broken(condition: Condition, code: Expressions) -> Code:
    """The C++ test that a launch condition does not hold."""
    match condition.kind, condition.holds:
        case Kind.ELEMENTS, holds:
            return _too_large(holds, code)
        case Kind.WIDTH | Kind.FETCHED, ir.Binary("<", total, ir.Literal(int(limit))):
            return CPP.postfix(_natural(total, code), f".reaches(UINT64_C({limit}))")
        case _:
            return code.fails(condition.holds)


def _too_large(holds: ir.Expr, code: Expressions) -> Code:
    match holds:
        case ir.Binary("and", left, right):
            return logical("or", _too_large(left, code), _too_large(right, code))
        case ir.Binary("<", product, _):
            return code.helper("too_large", f"{{{code.listed(_extents(product))}}}")
        case _:
            raise InternalError("not a condition on numbers of elements")


def _extents(product: ir.Expr) -> list[ir.Expr]:
    match product:
        case ir.Binary("*", left, right):
            return [*_extents(left), *_extents(right)]
        case ir.Binary("max", extent, _):
            return [extent]
        case _:
            return [product]


def _natural(total: ir.Expr, code: Expressions, first: bool = True) -> Code:
    """A sum of products in the library's type `natural`: wrapping the `first` factor is enough."""
    match total:
        case ir.Binary("+", left, right):
            alone = not isinstance(right, ir.Binary)
            return CPP.binary("+", _natural(left, code), _natural(right, code, first=not alone))
        case ir.Binary("*", left, right):
            return CPP.binary("*", _natural(left, code, first), _natural(right, code, first=False))
        case ir.Function("abs", (operand,)):
            return _natural(operand, code, first)
        case _:
            return code.helper("natural", code.scalar(total)) if first else code.scalar(total)
