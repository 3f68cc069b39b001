"""Syntax nodes as canonical sketch text: expressions, declarations, single statements.

Products are tight (`i*T`), sums written with blanks (`a + b`) except inside subscripts and
products. `parse` of the text gives the node again. Whole files are printed by the formatter, which
also keeps comments and line breaks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, assert_never

from sketchc.base import records
from sketchc.base.diagnostics import Edit, Fix
from sketchc.base.precedence import (
    ATOM,
    CHOICE,
    PRECEDENCE,
    PRODUCT,
    SIGN,
    SUM,
    bracketed,
    operand_levels,
)
from sketchc.base.types import DType
from sketchc.parsing import syntax
from sketchc.parsing.syntax import SECTIONS

Part = syntax.Expression | syntax.Slice | syntax.NewAxis


def expression_text(node: Part, minimum: int = 0, tight: bool = False) -> str:
    """The text of an expression, in parentheses when it binds less than `minimum`."""
    text, binds = _expression(node, tight or minimum > SUM)
    return bracketed(text, binds, minimum)


def _expression(node: Part, tight: bool) -> tuple[str, int]:
    """The text and how tightly its outermost operator binds."""
    match node:
        case syntax.Name():
            return node.id, ATOM
        case syntax.Number():
            return node.text, ATOM
        case syntax.Boolean():
            return str(node.value), ATOM
        case syntax.String():
            return _string(node), ATOM
        case syntax.Unary():
            if node.operator == "not":
                return f"not {expression_text(node.operand, PRECEDENCE['not'])}", PRECEDENCE["not"]
            return node.operator + expression_text(node.operand, SIGN), SIGN
        case syntax.Binary():
            return _binary(node, tight)
        case syntax.Choice():
            then, condition = expression_text(node.then, 1), expression_text(node.condition, 1)
            return f"{then} if {condition} else {expression_text(node.otherwise)}", CHOICE
        case syntax.Call():
            return f"{node.function}({', '.join(arguments(node.arguments, node.keywords))})", ATOM
        case syntax.Subscript():
            inner = ", ".join(expression_text(part, tight=True) for part in node.subscripts)
            return f"{expression_text(node.base, ATOM)}[{inner}]", ATOM
        case syntax.List():
            return f"[{', '.join(expression_text(item) for item in node.items)}]", ATOM
        case syntax.Slice():
            return _slice(node), 0
        case syntax.NewAxis():
            return "None", ATOM
        case _:
            assert_never(node)


def _binary(node: syntax.Binary, tight: bool) -> tuple[str, int]:
    binds = PRECEDENCE[node.operator]
    lower, upper = operand_levels(node.operator)
    left, right = (
        expression_text(node.left, lower, tight),
        expression_text(node.right, upper, tight),
    )
    compact = node.operator in ("*", "/", "//") or (binds in (SUM, PRODUCT) and tight)
    blank = "" if compact else " "
    return f"{left}{blank}{node.operator}{blank}{right}", binds


def _slice(node: syntax.Slice) -> str:
    lower, upper, step = (
        "" if part is None else expression_text(part, tight=True)
        for part in (node.lower, node.upper, node.step)
    )
    return f"{lower}:{upper}:{step}" if node.step is not None else f"{lower}:{upper}"


def _string(node: syntax.String) -> str:
    return f"'{node.value}'" if '"' in node.value else f'"{node.value}"'


def arguments(
    positional: Sequence[syntax.Expression], keywords: Sequence[syntax.Keyword]
) -> list[str]:
    """The arguments of a call, one text each."""
    return [
        *(expression_text(argument) for argument in positional),
        *(f"{keyword.name}={expression_text(keyword.value)}" for keyword in keywords),
    ]


# ---------------------------------------------------------------- declarations


def section(node: syntax.Section) -> tuple[list[str], str]:
    """The texts of the items of a section, and the separator between them."""
    separator = "," if node.keyword in ("types", "symbols", "constexpr") else ";"
    if node.keyword == "params" and any(param.name in SECTIONS for param in node.items):
        separator = ","  # behind `;` a section keyword would begin a section; here it is a name
    return [_item(item) for item in node.items], separator


def _item(node: Any) -> str:
    """The text of a declaration, or of a condition of `require`."""
    match node:
        case syntax.TypeDeclaration(name, choices):
            return f"{name} in [{', '.join(dtype.value for dtype in choices)}]"
        case syntax.SymbolDeclaration(name, bound):
            return name + ("" if bound is None else f" <= {expression_text(bound, SUM)}")
        case syntax.ParamDeclaration(default=default):
            return _constant(node, default)
        case syntax.LetDeclaration(name, value):
            return f"{name} = {expression_text(value)}"
        case syntax.TensorDeclaration():
            return _tensor(node)
        case syntax.ViewDeclaration(name, extents, base):
            return f"{name}{_extents(extents)} = {base}"
        case syntax.ConstexprDeclaration(value=value, choices=choices):
            listed = ", ".join(map(expression_text, choices))
            return _constant(node, value) + (f" in [{listed}]" if choices else "")
        case _:
            return expression_text(node)


def _constant(
    node: syntax.ParamDeclaration | syntax.ConstexprDeclaration, value: syntax.Expression | None
) -> str:
    kind = "" if node.dtype is None else f": {_type(node, node.dtype)}"
    return f"{node.name}{kind}" + ("" if value is None else f" = {expression_text(value)}")


def _type(
    node: syntax.ParamDeclaration
    | syntax.ConstexprDeclaration
    | syntax.TensorDeclaration
    | syntax.Alloc,
    dtype: DType,
) -> str:
    """The element type `dtype` of a node, by the name that `types:` gives it."""
    return node.type_name or dtype.value


def _extents(extents: Sequence[syntax.Extent]) -> str:
    texts = (
        expression_text(e.value, SUM, tight=True) + ("|1" if e.broadcastable else "")
        for e in extents
    )
    return f"[{', '.join(texts)}]"


def _tensor(node: syntax.TensorDeclaration) -> str:
    role = f"{node.role} " if node.role else ""
    optional = "?" if node.optional else ""
    initial = "" if node.initial is None else f" = {expression_text(node.initial)}"
    return (
        f"{node.name}{_extents(node.extents)}: {role}{_type(node, node.dtype)}{optional}{initial}"
    )


def point(node: syntax.TilingPoint) -> str:
    """The text of one tuning point of an `available_tiling` block."""
    return ", ".join(f"{name} = {expression_text(value, SUM)}" for name, value in node.values)


# ---------------------------------------------------------------- statements

SimpleStatement = (
    syntax.Alloc
    | syntax.Transfer
    | syntax.Fetch
    | syntax.Compute
    | syntax.Invoke
    | syntax.Binding
    | syntax.Pass
)


def statement(node: SimpleStatement) -> tuple[str, list[str] | None]:
    """The head of a statement, and its call's arguments (None: the head is all)."""
    match node:
        case syntax.Alloc():
            return f"{node.name} = alloc", _alloc(node)
        case syntax.Transfer():
            sides = [expression_text(node.tile), expression_text(node.access)]
            if node.operation == "load":
                sides.reverse()
            return node.operation, [" -> ".join(sides), *arguments((), node.keywords)]
        case syntax.Fetch():
            return f"{node.name} = fetch", [expression_text(node.access)]
        case syntax.Compute():
            return node.operation, arguments(node.arguments, node.keywords)
        case syntax.Invoke():
            return node.sketch, _invoke(node)
        case syntax.Binding():
            names = ", ".join(name.id for name in node.names)
            return f"{names} = {', '.join(expression_text(value) for value in node.values)}", None
        case syntax.Pass():
            return "pass", None
        case _:
            assert_never(node)


def _invoke(node: syntax.Invoke) -> list[str]:
    """The arguments of a call in a program; the last input and the first output are one text."""
    if not node.inputs:
        return arguments((), node.keywords)
    *inputs, last = arguments(node.inputs, ())
    first, *outputs = arguments(node.outputs, ())
    return [*inputs, f"{last} -> {first}", *outputs, *arguments((), node.keywords)]


def _alloc(node: syntax.Alloc) -> list[str]:
    parts = [f"[{', '.join(expression_text(extent) for extent in node.extents)}]"]
    if node.dtype is not None:
        parts.append(_type(node, node.dtype))
    if node.init is not None:
        parts.append(f"init={expression_text(node.init)}")
    if node.hints:
        parts.append(f"llm_hint=[{', '.join(_string(word) for word in node.hints)}]")
    return parts


def hint(node: syntax.Hint) -> str:
    """The text of one `@llm_hint(...)` line."""
    return f"@llm_hint({', '.join(arguments(node.words, node.keywords))})"


def statement_text(node: syntax.Statement) -> str:
    """The text of a simple statement, or of the header of a loop or branch, hints omitted."""
    match node:
        case syntax.For():
            inner = ", ".join(expression_text(argument) for argument in node.arguments)
            return f"for {node.variable.id} in range({inner}):"
        case syntax.If():
            return f"if {expression_text(node.condition)}:"
        case _:
            head, arguments = statement(node)
            return head if arguments is None else f"{head}({', '.join(arguments)})"


def line_edit(node: syntax.Statement, lines: Iterable[str]) -> Edit:
    """The edit that puts `lines` in the place of a statement, with the statement's indentation."""
    indent = " " * (node.span.column - 1)
    return Edit(node.span, f"\n{indent}".join(lines))


def dtype_fix(node: syntax.Alloc, dtype: DType) -> Fix:
    """The fix that gives an alloc the element type `dtype`."""
    text = statement_text(records.evolve(node, dtype=dtype, type_name=None))
    return Fix(f"make `{node.name}` {dtype.value}", (Edit(node.span, text),))
