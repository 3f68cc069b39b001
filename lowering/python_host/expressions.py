"""Scalar expressions and conditions of a sketch as Python text for the host."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import assert_never

import attrs

from sketchc.base.diagnostics import InternalError
from sketchc.ir import nodes as ir
from sketchc.ir.walk import children
from sketchc.lowering.kernel import LibraryPart
from sketchc.lowering.precedence import PYTHON, Code
from sketchc.lowering.python_host.library import definitions, part_of, with_callees
from sketchc.lowering.python_host.names import Names, literal

#: The functions that a wrapper may carry with it, and those that every wrapper has.
HELPERS = Path(__file__).with_name("helpers.py")
_ALWAYS = ("LaunchError", "require", "check_tensor")

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_FUNCTIONS: Mapping[str, str] = {
    **{name: f"math.{name}({{}})" for name in ("sqrt", "exp", "log", "log2")},
    "rsqrt": "(1.0 / math.sqrt({}))",
    "pow": "math.pow({}, {})",
    **{name: f"{name}({{}})" for name in ("abs", "float", "int")},
}


def is_literal(expression: ir.Expr, value: int) -> bool:
    """Whether an expression is this integer as it is written."""
    match expression:
        case ir.Literal(found):
            return found == value and not isinstance(found, bool)
        case _:
            return False


def mirrored(expression: ir.Binary) -> ir.Binary:
    """A comparison with a literal on its left the other way round, as people write it."""
    match expression:
        case ir.Binary(operator, ir.Literal() as left, right) if (
            operator in _MIRRORED and not isinstance(right, ir.Literal)
        ):
            return ir.Binary(_MIRRORED[operator], right, left, span=expression.span)
        case _:
            return expression


def on_host(expression: ir.Expr) -> bool:
    """True where the host can compute the expression: no loop variable, binding or lane."""
    match expression:
        case ir.Ref(_, kind):
            return kind not in (ir.NameKind.LOOP, ir.NameKind.BINDING)
        case ir.Iota() | ir.TileLanes():
            return False
        case _:
            return all(map(on_host, children(expression)))


@attrs.define
class Host:
    """Prints expressions, and collects what the printed text takes from elsewhere.

    `cdiv` is what rounds quotients up: a function of the DSL's package. `used` are the functions
    of `helpers` that the text calls, and "math" where it needs that module.
    """

    names: Names
    cdiv: str
    used: set[str] = attrs.field(factory=set)

    def expression(self, expression: ir.Expr) -> Code:
        """A scalar expression: Python's `//` and `%` already floor."""
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
                msg = "an index tile has no value on the host"
                raise InternalError(msg)
            case _:
                assert_never(expression)

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
