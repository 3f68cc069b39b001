"""Scalar expressions and conditions of a sketch as Python text for the host."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import assert_never

import attrs

from sketchc.base.diagnostics import InternalError
from sketchc.ir import nodes as ir
from sketchc.ir.walk import children
from sketchc.launch.conditions import Condition, Kind, mentioned, refusal_text
from sketchc.launch.index_width import power_text
from sketchc.lowering.kernel import LibraryPart
from sketchc.lowering.precedence import PYTHON, Code
from sketchc.lowering.python_host import wrapping
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

    def refusal(self, sketch: ir.Sketch, condition: Condition) -> str:
        """The statement that refuses a launch unless a condition holds."""
        text = _escaped(refusal_text(condition))
        shown = ", ".join(f"{n} = {{{self.names[n]}}}" for n in mentioned(sketch, condition))
        message = f'f"{text.replace("{", "{{").replace("}", "}}")} ({shown})"'
        if not shown or len(message) > wrapping.WIDTH - 10:
            message = f'"{text}"'
        return f"require({self._holds(condition)}, {message})"

    def width(self, sketch: ir.Sketch, condition: Condition) -> list[str]:
        """The statements that refuse a launch whose integers may leave 64 bits; a long sum is one
        of its own."""
        match condition.holds:
            case ir.Binary("<", total, ir.Literal(int(limit))) if (
                len(self._holds(condition)) > wrapping.WIDTH - 20
            ):
                name = self.names.fresh("largest")
                text = _escaped(refusal_text(condition))
                return [
                    f"{name} = {self.expression(total)}",
                    f'require({name} < {power_text(limit)}, "{text}")',
                ]
            case _:
                return [self.refusal(sketch, condition)]

    def _holds(self, condition: Condition) -> str:
        match condition:
            case Condition(
                kind=Kind.WIDTH | Kind.FETCHED,
                holds=ir.Binary(left=total, right=ir.Literal(int(limit))),
            ):
                return f"{self.expression(total)} < {power_text(limit)}"
            case _:
                return str(self.expression(condition.holds))

    def helpers(self) -> LibraryPart:
        """The definitions that the text needs, callees first."""
        return part_of(HELPERS, (*_ALWAYS, *(self.used - {"math"})))

    def modules(self) -> list[str]:
        """The modules of Python itself that the text and its helpers need."""
        known = definitions(HELPERS)
        needed = with_callees(self.used - {"math"}, HELPERS)
        wanted = "math" in self.used or any("math" in known[name].reads for name in needed)
        return ["math"] if wanted else []


def _escaped(text: str) -> str:
    return text.replace(chr(34), chr(39))
