"""TileLang text of scalar expressions and typed values.

A kernel is traced: its Python text builds expressions of TileLang's compiler. Operations are its
operators and intrinsics, or plain Python functions of `element_functions`, which the file carries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import assert_never

import attrs

from sketchc.base.types import DType, wrapped
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import scalar_dtype
from sketchc.ir.symbolic import constant_value
from sketchc.ir.walk import parts, substitute
from sketchc.launch.magnitudes import never_negative
from sketchc.lowering.loops import nodes
from sketchc.lowering.plan import literals
from sketchc.lowering.precedence import PYTHON, Code
from sketchc.lowering.python_host.expressions import Names, literal, mirrored
from sketchc.lowering.tilelang_cuda.choices import MOST, choices, of_functions
from sketchc.ops.table import COMPARISONS, OPS, Fact

_ONE = Code("1")
#: What TileLang calls element types.
TYPES = {dtype: dtype.numpy_name for dtype in DType}
#: Floats that are only stored: arithmetic happens on wider ones.
STORED = frozenset({DType.F16, DType.BF16})
#: Literals of these types have a constructor of the same name; integers beyond 32 bits need one.
_WIDE = 2**31

_OPERATORS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    **{name: sign for sign, name in COMPARISONS.items()},
}
_BITWISE = {"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^"}
_LOGICAL = {"logical_and": "T.And", "logical_or": "T.Or"}
_ON_BOOLS = {"bitwise_and": "T.And", "bitwise_or": "T.Or"}
#: Operations that are one intrinsic of TileLang.
_INTRINSICS = frozenset(
    [
        "exp",
        "exp2",
        "log",
        "log2",
        "log1p",
        "sin",
        "cos",
        "tan",
        "atan",
        "tanh",
        "erf",
        "sqrt",
        "floor",
        "ceil",
        "trunc",
        "atan2",
    ]
)
#: Operations of floats that are no operation on integers.
_WHOLE_ALREADY = frozenset({"floor", "ceil", "round", "trunc"})
#: Device functions of another name than their operation, for floats and for integers.
_OF_FLOATS = {
    "max": "largest",
    "min": "smallest",
    "abs": "absolute",
    "round": "round_even",
    "floordiv": "whole_quotient",
    "mod": "floor_rest",
    "pow": "power",
}
_OF_INTEGERS = {
    "max": "larger",
    "min": "lesser",
    "abs": "magnitude",
    "floordiv": "floor_div",
    "mod": "floor_mod",
    "pow": "whole_power",
}
#: Functions of the random words.
_RANDOM = {"rand": "uniform", "randn": "normal"}
#: Attributes that become further arguments, in this order.
_ATTRIBUTES = {"elu": ("alpha",), "leaky_relu": ("slope",)}
#: Functions of scalars.
_FUNCTIONS = {"sqrt": "T.sqrt", "exp": "T.exp", "log": "T.log", "log2": "T.log2", "pow": "T.pow"}


@attrs.define
class Expressions:
    """Prints the expressions of one kernel. `functions` are the device functions called, `scalars`
    the names of the sketch and of the generated code that it reads, with their types; `pending`
    are lines before the next statement."""

    sketch: ir.Sketch
    names: Names
    functions: dict[str, None] = attrs.field(factory=dict, kw_only=True)
    scalars: dict[str, ir.Ref] = attrs.field(factory=dict, kw_only=True)
    pending: list[str] = attrs.field(factory=list, kw_only=True)
    #: names that are defined in the kernel
    own: set[str] = attrs.field(factory=set, kw_only=True)
    #: where elements of a buffer lie: the memory's name and the first element's index
    places: dict[str, tuple[str, Code]] = attrs.field(factory=dict, kw_only=True)
    buffers: dict[str, None] = attrs.field(factory=dict, kw_only=True)
    #: whether names are never negative
    known: dict[str, bool] = attrs.field(factory=dict, kw_only=True)
    #: choices within each other in what names stand for, and of functions
    nested: dict[str, int] = attrs.field(factory=dict, kw_only=True)
    _lazy: int = 0
    _constants: Mapping[str, ir.Expr] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._constants = literals(self.sketch)
        self.known |= {one.name: one.value >= 0 for one in self.sketch.constants}
        for let in self.sketch.lets:
            self.known[let.name] = never_negative(let.value, self.known)

    # ------------------------------------------------------------ names

    def word(self, name: str) -> str:
        """The spelling of a name that emitted text has beside those of the sketch."""
        return word(self.names, name)

    def define(self, name: str) -> str:
        """The spelling of a name that the kernel itself defines."""
        self.own.add(name)
        return self.names[name]

    def call(self, function: str, *arguments: Code | str) -> Code:
        """A call of a device function."""
        self.functions[function] = None
        spelled = self.names.functions.get(function, function)
        self.nested[spelled] = of_functions().get(function, 0)
        return PYTHON.call(spelled, *arguments)

    def bind(self, stem: str, code: Code, dtype: DType | None) -> Code:
        """A name for a value, assigned before the statement at hand, of type `dtype` where that is
        given."""
        if self._lazy or code.text.isidentifier() or _is_number(code.text):
            return code
        name = self.names.fresh(stem)
        self.pending += self.assigned(name, code, dtype, dtype is not None and dtype.is_integer)
        return Code(name)

    def assigned(self, name: str, code: Code, dtype: DType | None, variable: bool) -> list[str]:
        """The lines that give a value a spelled name. It gets a variable where one is asked for, as
        computed integers do, whose expressions the compiler would repeat; and for many choices."""
        depth = choices(code.text, self.nested)
        variable = variable or (dtype is not None and depth > MOST)
        self.nested[name] = 0 if variable else depth
        declared = [f'{name} = T.alloc_var("{TYPES[dtype]}")'] if dtype and variable else []
        return [*declared, f"{name} = {code}"]

    @contextmanager
    def lazily(self) -> Iterator[None]:
        """What is printed in this context is perhaps not evaluated: nothing is bound before."""
        self._lazy += 1
        yield
        self._lazy -= 1

    # ------------------------------------------------------------ scalars

    def constant(self, expression: ir.Expr) -> int | float | bool | None:
        """The value of an expression over compile-time constants; None for any other."""
        return constant_value(substitute(expression, self._constants))

    def wide(self, expression: ir.Expr) -> Code:
        """An integer expression in 64 bits, also where its value is known."""
        value = self.constant(expression)
        if value is None:
            return self.scalar(expression)
        shown = self.scalar(expression) if abs(value) < _WIDE else Code(str(value))
        return PYTHON.call("T.int64", shown)

    def scalar(self, expression: ir.Expr) -> Code:
        """A scalar expression in its natural type: i64, f64 or bool."""
        match expression:
            case ir.Literal(value):
                if isinstance(value, float):
                    return self.number(value, DType.F64)
                if not isinstance(value, bool) and abs(value) >= _WIDE:
                    return PYTHON.call("T.int64", str(value))
                return literal(value)
            case ir.Ref():
                return self._reference(expression)
            case ir.Unary("not", operand):
                # The compiler takes the negation of a comparison for its opposite: see `opposite`.
                # A name may stand for one.
                named = (part for part in parts(operand) if isinstance(part, ir.Ref))
                integers = all(scalar_dtype(part) is DType.I64 for part in named)
                asked = self.truth(operand)
                return PYTHON.call("T.Not", asked) if integers else self.call("opposite", asked)
            case ir.Unary(operator, operand):
                return PYTHON.unary(operator, self.scalar(operand))
            case ir.Binary():
                return self._binary(expression)
            case ir.Choice(condition, then, otherwise):
                asked = self.truth(condition)
                with self.lazily():
                    sides = [self.wide(side) for side in (then, otherwise)]
                return PYTHON.call("T.if_then_else", asked, *sides)
            case ir.Function(name, arguments):
                return self._function(name, arguments)
            case ir.Iota() | ir.TileLanes():
                raise AssertionError("an index tile reached the printer")
            case _:
                assert_never(expression)

    def truth(self, condition: ir.Expr) -> Code:
        """A condition as an operand: Python's own truth values are no expressions."""
        code = self.scalar(condition)
        if scalar_dtype(condition) is not DType.BOOL:  # a name for a part of a condition
            return PYTHON.binary("!=", code, Code("0"))
        return PYTHON.call("T.bool", code) if code.text in ("True", "False") else code

    def _reference(self, expression: ir.Ref) -> Code:
        if expression.kind is ir.NameKind.PRESENT:
            name = f"{expression.name} given"
            self.scalars[name] = expression
            return Code(self.names.given(expression.name))
        if expression.name not in self.own and expression.name not in self._constants:
            self.scalars[expression.name] = expression
        return Code(self.names[expression.name])

    def _binary(self, expression: ir.Binary) -> Code:
        expression = mirrored(expression)
        operator, left, right = expression.operator, expression.left, expression.right
        if operator in ("and", "or"):
            sides = self.truth(left), self.truth(right)
            return PYTHON.call({"and": "T.And", "or": "T.Or"}[operator], *sides)
        if operator == "/" or DType.F64 in (scalar_dtype(left), scalar_dtype(right)):
            first, second = self._real(left), self._real(right)
        else:
            first, second = self.scalar(left), self.scalar(right)
            if operator in ("==", "!=") or self.constant(left) is not None:
                first = self.wide(left) if scalar_dtype(left) is DType.I64 else first
        match operator:
            case "min" | "max":
                return PYTHON.call(f"T.{operator}", self._typed(left, first), second)
            case "//" | "%" | "cdiv":
                return self._divided(operator, (left, right), [first, second])
            case _:
                return PYTHON.binary(operator, first, second)

    def _typed(self, expression: ir.Expr, code: Code) -> Code:
        known = scalar_dtype(expression) is DType.I64 and self.constant(expression) is not None
        return self.wide(expression) if known else code

    def _divided(self, operator: str, parts: tuple[ir.Expr, ir.Expr], codes: list[Code]) -> Code:
        """A quotient that is rounded down, or up, or what it leaves. Divisors that are no constants
        may be anything on lanes that nobody reads, and must not trap (LOWERING 5)."""
        first, second = codes
        value = self.constant(parts[1])
        fixed = value is not None and value > 0
        if all(never_negative(part, self.known) for part in parts):
            if self.constant(parts[0]) is not None:
                first = self.wide(parts[0])
            if operator == "cdiv":
                operator, first = "//", PYTHON.binary("+", first, PYTHON.binary("-", second, _ONE))
            divisor = second if fixed else PYTHON.call("T.max", second, _ONE)
            return PYTHON.call({"//": "T.truncdiv", "%": "T.truncmod"}[operator], first, divisor)
        if fixed and operator != "cdiv":
            return PYTHON.binary(operator, first, second)
        names = {"//": "floor_div", "%": "floor_mod", "cdiv": "ceil_div"}
        wide = [
            self.wide(part) if self.constant(part) is not None else code
            for part, code in zip(parts, codes, strict=True)
        ]
        return self.call(names[operator], *wide)

    def _real(self, expression: ir.Expr) -> Code:
        value = self.constant(expression)
        if value is not None and not isinstance(value, bool):
            return self.number(float(value), DType.F64)
        code = self.scalar(expression)
        return code if scalar_dtype(expression) is DType.F64 else cast(code, DType.F64)

    def _function(self, name: str, arguments: tuple[ir.Expr, ...]) -> Code:
        match name:
            case "float":
                return self._real(arguments[0])
            case "int":
                return cast(PYTHON.call("T.trunc", self._real(arguments[0])), DType.I64)
            case "abs":
                own = self.wide(arguments[0])
                return PYTHON.call("T.abs", own)
            case "rsqrt":
                root = PYTHON.call("T.sqrt", self._real(arguments[0]))
                return PYTHON.binary("/", self.number(1.0, DType.F64), root)
            case _:
                return PYTHON.call(_FUNCTIONS[name], *map(self._real, arguments))

    # ------------------------------------------------------------ values

    def value(self, node: nodes.Value) -> Code:
        """The text of a typed value."""
        match node:
            case nodes.Number(number, dtype):
                return self.number(number, dtype)
            case nodes.Local(name):
                return Code(self.names[name])
            case nodes.Scalar(expression, dtype):
                return self._scalar_value(expression, dtype)
            case nodes.Element(buffer, index):
                return self.element(buffer, index)
            case nodes.Convert(inner, dtype, rounding, saturate):
                return self._convert(inner, dtype, rounding, saturate)
            case nodes.Apply():
                return self._apply(node)
            case nodes.Select(condition, then, otherwise):
                asked = self.truth(condition)
                with self.lazily():
                    sides = self.value(then), self.value(otherwise)
                return PYTHON.call("T.if_then_else", asked, *sides)
            case _:
                assert_never(node)

    def element(self, buffer: str, index: ir.Expr) -> Code:
        """An element of a buffer, as a value or as what is assigned to."""
        memory, first = self.places.get(buffer, (buffer, Code("0")))
        self.buffers[memory] = None
        at = self.scalar(index)
        if first.text != "0":
            at = first if at.text == "0" else PYTHON.binary("+", first, at)
        return Code(f"{self.memory(memory)}[{at}]")

    def memory(self, buffer: str) -> str:
        """The spelling of a buffer in the kernel."""
        return self.names[buffer]

    def _scalar_value(self, expression: ir.Expr, dtype: DType) -> Code:
        known = self.constant(expression)
        if known is not None:
            return self.number(known, dtype)
        code = self.scalar(expression)
        return code if scalar_dtype(expression) is dtype else cast(code, dtype)

    def number(self, number: int | float | bool, dtype: DType) -> Code:
        """A number as a literal of an element type."""
        if dtype is DType.BOOL:
            return PYTHON.call("T.bool", str(bool(number)))
        if dtype in STORED:
            return cast(self.number(number, DType.F32), dtype)
        if dtype.is_float:
            return PYTHON.call(f"T.{TYPES[dtype]}", literal(float(number)))
        whole = int(wrapped(int(number), dtype))
        if whole == -(2**63):
            return Code("(T.int64(-9223372036854775807) - T.int64(1))")
        return PYTHON.call(f"T.{TYPES[dtype]}", str(whole))

    def _convert(self, inner: nodes.Value, dtype: DType, rounding: str, saturate: bool) -> Code:
        source = scalar_dtype(inner.value) if isinstance(inner, nodes.Scalar) else inner.dtype
        if source is dtype:
            return self.value(inner)
        if isinstance(inner, nodes.Number) and rounding == "default" and not saturate:
            return self.number(inner.value, dtype)
        code = self.value(inner)
        if isinstance(inner, nodes.Scalar):
            code = self._scalar_value(inner.value, source)
        if source in STORED:
            code, source = cast(code, DType.F32), DType.F32
            if source is dtype:
                return code
        if dtype is DType.BOOL:
            return PYTHON.binary("!=", code, self.number(0, source))
        if dtype.is_float:
            return self._to_float(code, source, dtype, rounding)
        if source.is_float:
            mode = "nearest" if rounding == "default" else rounding
            rounded = self.call(f"round_{mode}", code)
            bound = self.bind("rounded", rounded, source)
            how = "saturated" if saturate else "to_integer"
            least, most = dtype.limits or (0, 1)
            limits = literal(float(least)), literal(float(most + 1))
            if saturate:
                ends = self.number(least, dtype), self.number(most, dtype)
                return self.call(how, bound, f'"{TYPES[dtype]}"', *limits, *ends)
            return self.call(how, bound, f'"{TYPES[dtype]}"', *limits)
        if saturate and source is not DType.BOOL and dtype is not DType.I64:
            least, most = dtype.limits or (0, 1)
            wide = cast(code, DType.I64)
            nearest = PYTHON.call(
                "T.min",
                PYTHON.call("T.max", wide, self.number(least, DType.I64)),
                self.number(most, DType.I64),
            )
            return cast(nearest, dtype)
        return cast(code, dtype)

    def _to_float(self, code: Code, source: DType, dtype: DType, rounding: str) -> Code:
        narrows = source.is_float and dtype.bytes < source.bytes
        if rounding in ("down", "up", "zero") and narrows:
            word = "uint16" if dtype.bytes == 2 else "uint32"
            bound = self.bind("exact", cast(code, DType.F64), DType.F64)
            return self.call("directed", bound, f'"{TYPES[dtype]}"', f'"{word}"', f'"{rounding}"')
        return cast(code, dtype)

    def _apply(self, node: nodes.Apply) -> Code:
        operation, dtype = node.operation, node.operands
        arguments = list(node.arguments)
        if operation == "where":
            codes = [self.value(argument) for argument in arguments]
            return PYTHON.call("T.Select", *codes)
        codes = [self.value(argument) for argument in arguments]
        if operation in _OPERATORS:
            code = self._operator(operation, codes, dtype)
            return code if operation in COMPARISONS else self._whole(code, dtype)
        if operation in _LOGICAL:
            return PYTHON.call(_LOGICAL[operation], *codes)
        if operation in _BITWISE:
            if dtype is DType.BOOL:
                if operation in _ON_BOOLS:
                    return PYTHON.call(_ON_BOOLS[operation], *codes)
                return PYTHON.binary("!=", *codes)
            return PYTHON.binary(_BITWISE[operation], *codes)
        match operation:
            case "neg" if dtype.is_integer and not dtype.is_signed:
                # From a variable: the compiler refuses such a difference of numbers.
                start = self.names.fresh("nothing")
                self.pending += self.assigned(start, self.number(0, dtype), dtype, True)
                return self._whole(PYTHON.binary("-", Code(start), codes[0]), dtype)
            case "neg":
                return self._whole(PYTHON.unary("-", codes[0]), dtype)
            case "div" if dtype.is_float:
                return PYTHON.binary("/", *codes)
            case "fma":
                product = PYTHON.binary("*", codes[0], codes[1])
                return self._whole(PYTHON.binary("+", product, codes[2]), dtype)
            case "logical_not":  # of a truth value, whatever the type of the tile is
                return self.call("opposite", codes[0])
            case "bitwise_not" if dtype is DType.BOOL:
                return self.call("opposite", codes[0])
            case "bitwise_not":
                return self._whole(PYTHON.unary("~", codes[0]), dtype)
            case "clamp":
                return self._clamp(node, codes[0])
            case "isnan" | "isinf" | "isfinite" if not dtype.is_float:
                return self.number(operation == "isfinite", DType.BOOL)
            case "copy":
                return codes[0]
        return self._named(node, codes)

    def _operator(self, operation: str, codes: list[Code], dtype: DType) -> Code:
        if dtype is DType.BOOL:
            match operation:
                case "add":
                    return PYTHON.call("T.Or", *codes)
                case "mul":
                    return PYTHON.call("T.And", *codes)
                case "sub":
                    return PYTHON.binary("!=", *codes)
            codes = [cast(code, DType.I32) for code in codes]
        return PYTHON.binary(_OPERATORS[operation], *codes)

    def _whole(self, code: Code, dtype: DType) -> Code:
        """A result in its own type: C computes integers of fewer than 32 bits as int, which shows
        where the result is converted."""
        narrow = dtype.is_integer and dtype.bytes < DType.I32.bytes
        return self.bind("wrapped", code, dtype) if narrow else code

    def _named(self, node: nodes.Apply, codes: list[Code]) -> Code:
        """An operation that is an intrinsic, or a device function."""
        operation, dtype = node.operation, node.operands
        if operation in _WHOLE_ALREADY and not dtype.is_float:
            return codes[0]
        if operation == "relu" and dtype.is_integer and not dtype.is_signed:
            return codes[0]  # the compiler ends where an unsigned number is compared with 0
        if operation in _INTRINSICS:
            return PYTHON.call(f"T.{operation}", *codes)
        if operation in _RANDOM:
            return self._random(operation, codes)
        bound = [self.bind("operand", code, dtype) for code in codes]
        extra: list[Code | str] = [
            self.number(node.attributes[name], dtype) for name in _ATTRIBUTES.get(operation, ())
        ]
        if operation == "gelu" and node.attributes.get("approximate") == "tanh":
            return self.call("gelu_tanh", *bound)
        renamed = _OF_FLOATS if dtype.is_float else _OF_INTEGERS
        if dtype is DType.BOOL and operation in ("max", "min"):
            return PYTHON.call({"max": "T.Or", "min": "T.And"}[operation], *bound)
        if operation in ("shl", "shr"):
            extra.append(str(8 * dtype.bytes - 1))
        if operation in ("relu", "sign"):
            extra.append(self.number(0, dtype))
        if operation == "pow" and not dtype.is_float:
            extra.append(str(8 * dtype.bytes))
        code = self.call(renamed.get(operation, operation), *bound, *extra)
        kept = Fact.CONVERTS not in OPS[operation].facts
        return self.bind("result", code, dtype) if kept and dtype.is_integer else code

    def _random(self, operation: str, codes: list[Code]) -> Code:
        """A random number, from the words that the generator leaves in memory."""
        words = self.names.fresh("words")
        self.pending.append(f'{words} = T.alloc_local((1,), "uint64")')
        self.pending.append(str(self.call("philox", words, *codes)))
        return self.call(_RANDOM[operation], f"{words}[0]")

    def _clamp(self, node: nodes.Apply, code: Code) -> Code:
        for attribute, helper in (("low", "at_least"), ("high", "at_most")):
            bound = node.attributes.get(attribute)
            if bound is not None:
                if node.operands.is_integer and node.operands.limits is not None:
                    # What the type cannot hold is no bound: the type's own limit.
                    least, greatest = node.operands.limits
                    bound = min(max(int(bound), least), greatest)
                    if bound == (least if attribute == "low" else greatest):
                        continue  # none: and no unsigned number may be asked for less than 0
                held = self.bind("operand", code, node.operands)
                code = self.call(helper, held, self.number(bound, node.operands))
        return code


def word(names: Names, name: str) -> str:
    """The spelling in one file of a name that is no sketch's: one that the sketch does not use."""
    key = f"{name} of the emitter"
    if key not in names.mapping:
        names.mapping[key] = names.fresh(name)
    return names.mapping[key]


def cast(code: Code, dtype: DType) -> Code:
    """A value in another type."""
    return PYTHON.call("T.cast", code, f'"{TYPES[dtype]}"')


def _is_number(text: str) -> bool:
    return (
        text.startswith("T.")
        and text.endswith(")")
        and text.count("(") == 1
        and (text[2:].partition("(")[0] in TYPES.values())
    )
