"""Sorting a call's arguments into operands, attributes and destinations.

The destinations stand last, or are given as `dst=`: one, or a list of them. Attributes are
keywords; `axis` may also stand between the operands and the destinations.
"""

from __future__ import annotations

from collections.abc import Mapping

from sketchc.base import records
from sketchc.base.diagnostics import Edit, Fix, Span
from sketchc.checker.calls.expressions import constant
from sketchc.checker.calls.scalars import number
from sketchc.checker.context.context import Context, InvalidError
from sketchc.checker.context.fixits import late_positional_fix
from sketchc.checker.context.names import closest
from sketchc.ir import nodes as ir
from sketchc.ops.table import Attribute, Op
from sketchc.parsing import syntax


@records.frozen
class Arguments:
    """`axes` as written (not normalised); `attributes` with defaults filled in."""

    operands: tuple[syntax.Expression, ...]
    destinations: tuple[syntax.Expression, ...]
    attributes: Mapping[str, object]
    axes: tuple[int, ...] = ()


def gather(context: Context, node: syntax.Compute, row: Op) -> Arguments:
    """Sort the arguments of a call; raises `InvalidError` after reporting a wrong one."""
    known = {attribute.name: attribute for attribute in row.attributes}
    keywords = _keywords(context, node, row, known)
    dst = keywords.pop("dst", None)
    positional = list(node.arguments)
    named = [a for a in row.attributes if a.positional and a.name not in keywords]
    expected = len(row.operands) + len(named) + (row.outputs if dst is None else 0)
    if dst is not None:
        destinations = dst.items if isinstance(dst, syntax.List) else (dst,)
        if len(destinations) != row.outputs:
            raise _wrong_destinations(context, row, dst.span, len(destinations))
    if len(positional) != expected:
        if dst is None and row.outputs > 1 and len(positional) == expected - 1:
            raise _wrong_destinations(context, row, node.span, row.outputs - 1)
        raise _wrong_count(context, node, row, expected)
    if dst is None:
        destinations = tuple(positional[-row.outputs :])
        del positional[-row.outputs :]
    operands = tuple(positional[: len(row.operands)])
    for attribute, value in zip(named, positional[len(row.operands) :], strict=True):
        keywords[attribute.name] = value
    attributes: dict[str, object] = {a.name: a.default for a in row.attributes}
    axes: tuple[int, ...] = ()
    for name, value in keywords.items():
        attribute = known[name]
        if attribute.kind == "axes":
            axes = _axes(context, value)
        else:
            attributes[name] = _value(context, attribute, value)
    if node.late_positional:  # of a call that is right otherwise
        context.warn(
            node.span,
            "SK0603",
            "a positional argument follows a keyword",
            "accepted: the last positional is the destination",
            fixes=(late_positional_fix(node),),
        )
    return Arguments(operands, destinations, attributes, axes)


def _keywords(
    context: Context, node: syntax.Compute, row: Op, known: Mapping[str, Attribute]
) -> dict[str, syntax.Expression]:
    result: dict[str, syntax.Expression] = {}
    for keyword in node.keywords:
        if keyword.name != "dst" and keyword.name not in known:
            meant = closest(keyword.name, (*known, "dst"))
            takes = ", ".join(f"`{name}`" for name in (*known, "dst"))
            raise context.error(
                keyword.span,
                "SK0211",
                f"`{row.name}` has no argument `{keyword.name}`",
                f"it takes {takes}" if meant is None else f"did you mean `{meant}`?",
                help=_order(row) if keyword.name in row.operands else "",
            )
        if keyword.name in result:
            raise context.error(
                keyword.span, "SK0211", f"`{keyword.name}` is given twice", "second value"
            )
        result[keyword.name] = keyword.value
    return result


def _order(row: Op) -> str:
    """How operands are given."""
    outputs = ("dst",) if row.outputs == 1 else tuple(f"dst{n}" for n in range(row.outputs))
    return f"operands have no keywords: write `{row.name}({', '.join((*row.operands, *outputs))})`"


def _wrong_count(context: Context, node: syntax.Compute, row: Op, expected: int) -> InvalidError:
    count = len(node.arguments)
    named = [attribute.name for attribute in row.attributes if attribute.positional]
    last = "destination" if row.outputs == 1 else f"{row.outputs} destinations"
    parts = [*row.operands, *named, last]
    return context.error(
        node.span,
        "SK0211",
        f"`{row.name}` takes {', '.join(parts)}",
        f"{count} positional argument{'' if count == 1 else 's'} instead of {expected}",
    )


def _wrong_destinations(context: Context, row: Op, span: Span, given: int) -> InvalidError:
    wanted = "1 destination" if row.outputs == 1 else f"{row.outputs} destinations"
    return context.error(
        span,
        "SK0325",
        f"`{row.name}` has {wanted}",
        f"{given} given",
        help="they stand last, or in a list: `dst=[values, indices]`" if row.outputs > 1 else "",
    )


def _value(context: Context, attribute: Attribute, node: syntax.Expression) -> object:
    match attribute.kind, node:
        case "bool", syntax.Boolean(value=flag):
            return flag
        case "choice", syntax.String(value=word):
            if word in attribute.choices:
                return word
            listed = ", ".join(f'"{choice}"' for choice in attribute.choices)
            meant = closest(word, attribute.choices)
            raise context.error(
                node.span,
                "SK0211",
                f'`{attribute.name}` cannot be "{word}"',
                f"one of {listed}",
                fixes=()
                if meant is None
                else (Fix(f'use "{meant}"', (Edit(node.span, f'"{meant}"'),)),),
            )
        case "float" | "int" | "bool", syntax.String() | syntax.List():
            pass
        case "float", _:
            value = number(context, node, f"`{attribute.name}`")
            return value if isinstance(value, ir.ScalarOperand) else float(value)
        case "int", _:
            value = constant(context, node, f"`{attribute.name}`")
            if isinstance(value, int):
                return value
        case _:
            pass
    kind = {"bool": "True or False", "choice": "a string", "int": "an integer"}
    raise context.error(
        node.span,
        "SK0211",
        f"`{attribute.name}` is {kind.get(attribute.kind, 'a number')}",
        "another kind of value",
    )


def _axes(context: Context, node: syntax.Expression) -> tuple[int, ...]:
    items = node.items if isinstance(node, syntax.List) else (node,)
    if not items:
        raise context.error(node.span, "SK0310", "at least one axis is needed", "no axis")
    result = []
    for item in items:
        if isinstance(item, syntax.String | syntax.List):
            raise context.error(item.span, "SK0310", "an axis is an integer", "not an integer")
        value = constant(context, item, "an axis")
        if isinstance(value, bool) or not isinstance(value, int):
            raise context.error(item.span, "SK0310", "an axis is an integer", f"this is {value}")
        result.append(value)
    return tuple(result)
