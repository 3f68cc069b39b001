"""The names in Python host code, and the Python text of a sketch's scalar expressions."""

from __future__ import annotations

import keyword
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import assert_never

import attrs

from sketchc.base.diagnostics import InternalError
from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.launch.inputs import SymbolSource
from sketchc.lowering.kernel import LibraryPart
from sketchc.lowering.precedence import PYTHON, Code
from sketchc.lowering.python_host.library import definitions, part_of, with_callees

#: Names that every wrapper uses itself, and those that linters object to as ambiguous. What one
#: target's kernels use besides is in its record.
_USED = """torch math range min max abs float int bool tuple dict sum zip len out device programs
annotations LaunchError ValueError require check_tensor check_overlap check_elements check_integer
check_number check_bool plain kind_of remembered launch_kernel integer_kind row_major rounded
with_an_element absent arguments plan launches PLANS object isinstance hasattr getattr list map set
AttributeError RuntimeError TypeError l O I"""
RESERVED = frozenset((*keyword.kwlist, *_USED.split()))


class Names:
    """Injective map from sketch names to Python identifiers, plus fresh names beside them. No name
    of the sketch becomes one of `reserved`."""

    def __init__(self, sketch: ir.Sketch, reserved: frozenset[str] = frozenset()) -> None:
        reserved |= RESERVED
        self.taken = set(reserved)
        self.mapping: dict[str, str] = {}
        self.functions: dict[str, str] = {}  # device functions that have another name here
        # Names that stand as they are go first, so that a renamed one cannot take their place.
        for name in sorted(walk.declared_names(sketch), key=lambda name: name in reserved):
            if name not in self.mapping:
                self.mapping[name] = self.fresh(name)

    def fresh(self, wish: str) -> str:
        """`wish`, or the first free spelling with underscores appended."""
        name = wish
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def __getitem__(self, name: str) -> str:
        if name not in self.mapping:
            self.mapping[name] = self.fresh(name)
        return self.mapping[name]

    def given(self, tensor: str) -> str:
        """The name of the truth value that says whether an optional tensor is there."""
        return self.derived(tensor, "given")

    def derived(self, name: str, suffix: str) -> str:
        """The identifier of a sketch name with a suffix, `X_given`; equal calls give the same."""
        key = f"{name} {suffix}"
        if key not in self.mapping:
            self.mapping[key] = self.fresh(f"{self[name]}_{suffix}")
        return self.mapping[key]


#: Element types of the host's tensors.
TORCH = {dtype: f"torch.{dtype.numpy_name}" for dtype in DType}


def literal(value: int | float | bool) -> Code:
    """A Python literal; infinities and NaN through `float`."""
    if isinstance(value, float) and not math.isfinite(value):
        return Code(f'float("{value}")')
    level = PYTHON.unary_levels["-"] if not isinstance(value, bool) and value < 0 else 100
    return Code(repr(value), level)


#: The functions that a wrapper may carry with it, and those that every wrapper has.
HELPERS = (Path(__file__).with_name("helpers.py"),)
_ALWAYS = ("LaunchError", "require", "check_tensor")

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_FUNCTIONS: Mapping[str, str] = {
    **{name: f"math.{name}({{}})" for name in ("sqrt", "exp", "log", "log2")},
    "rsqrt": "(1.0 / math.sqrt({}))",
    "pow": "math.pow({}, {})",
    **{name: f"{name}({{}})" for name in ("abs", "float", "int")},
}


def is_literal(expression: ir.Expr, value: int) -> bool:
    """Whether an expression is the literal integer `value`."""
    match expression:
        case ir.Literal(found):
            return found == value and not isinstance(found, bool)
        case _:
            return False


def mirrored(expression: ir.Binary) -> ir.Binary:
    """A comparison with its sides exchanged where its left one is a literal; others as they are."""
    match expression:
        case ir.Binary(operator, ir.Literal() as left, right) if (
            operator in _MIRRORED and not isinstance(right, ir.Literal)
        ):
            return ir.Binary(_MIRRORED[operator], right, left, span=expression.span)
        case _:
            return expression


@attrs.define
class Host:
    """Prints expressions, and collects the helpers and modules that the printed text needs.

    `cdiv` is the function of the DSL's package that rounds quotients up. `used` are the functions
    of `helpers` that the text calls, and "math" where it needs that module.
    """

    names: Names
    cdiv: str
    used: set[str] = attrs.field(factory=set)

    def expression(self, expression: ir.Expr) -> Code:
        """The text of a scalar expression: Python's `//` and `%` round down, as the sketch's do."""
        match expression:
            case ir.Literal(value):
                return literal(value)
            case ir.Ref(name, ir.NameKind.PRESENT):
                return Code(self.names.given(name))
            case ir.Ref(name):
                return Code(self.names[name])
            case ir.Unary(operator, operand):
                return PYTHON.unary(operator, self.expression(operand))
            case ir.Binary():
                shown = mirrored(expression)
                left, right = self.expression(shown.left), self.expression(shown.right)
                match shown.operator:
                    case "cdiv":
                        return PYTHON.call(self.cdiv, left, right)
                    case "min" | "max":
                        return PYTHON.call(shown.operator, left, right)
                    case "+" if is_literal(shown.left, 0):
                        return right
                    case _:
                        return PYTHON.binary(shown.operator, left, right)
            case ir.Choice():
                condition, then, otherwise = map(self.expression, expression.parts)
                return Code(f"({then} if {condition} else {otherwise})")
            case ir.Function(name, arguments):
                text = _FUNCTIONS[name].format(*map(self.expression, arguments))
                self.used |= {"math"} if "math." in _FUNCTIONS[name] else set()
                return Code(text)
            case ir.Iota() | ir.TileLanes():
                raise InternalError("an index tile has no value on the host")
            case _:
                assert_never(expression)

    def solved(self, sources: Sequence[SymbolSource]) -> str:
        """The text of a symbol's value, by the shape of the first of `sources` that is given."""
        value = "0"
        for source in reversed(sources):
            name = self.names[source.tensor.name]
            size = f"{name}.shape[{source.axis}]"
            if source.offset != ir.Literal(0):
                size = f"({size} - ({self.expression(source.offset)}))"
            size += f" // {source.step}" if source.step > 1 else ""
            value = f"{size} if {name} is not None else {value}" if source.tensor.optional else size
        return value

    def call(self, helper: str, *arguments: object) -> str:
        """The call of a function of `helpers`, which the file then carries along."""
        self.used.add(helper)
        return str(PYTHON.call(helper, *map(str, arguments)))

    def helpers(self) -> LibraryPart:
        """The definitions that the text needs, callees first."""
        return part_of(HELPERS, (*_ALWAYS, *(self.used - {"math"})))

    def modules(self) -> list[str]:
        """The modules of Python itself that the text and its helpers need."""
        known = definitions(HELPERS)
        needed = with_callees(self.used - {"math"}, HELPERS)
        wanted = "math" in self.used or any("math" in known[name].reads for name in needed)
        return ["math"] if wanted else []
