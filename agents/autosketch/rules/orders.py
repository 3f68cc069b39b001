"""Rules for what is put in order: topk, sort, and the search in a sorted row."""

from __future__ import annotations

from collections.abc import Mapping

from sketchc.agents.autosketch.builder import Builder, Rule, converted, integer, value_name
from sketchc.agents.autosketch.graph import Node, Specification
from sketchc.agents.autosketch.loops import (
    Apply,
    Axis,
    Best,
    Element,
    Index,
    Number,
    Rank,
    Scalar,
    Scatter,
)
from sketchc.base.diagnostics import refuse
from sketchc.base.types import DType
from sketchc.ir import nodes as ir


def _topk(builder: Builder, node: Node) -> None:
    source, count = node.arguments["self"], node.arguments["k"]
    shape = builder.shape(source)
    if not shape or not isinstance(count, ir.Literal):
        refuse("the built-in Designer has no form for topk of a number, or of one that varies")
    dim = integer(node.arguments["dim"]) % len(shape)
    fewer = ir.Literal(integer(count) - 1)
    builder.filled.append(ir.Binary("-", shape[dim], fewer))  # there are as many
    for of, result in enumerate(node.results):  # the values, and their places
        name = f"{value_name(builder.number, of)}_best"
        axes = builder.axes(result.shape)
        over = Axis(f"r{name}", shape[dim])
        index = tuple(over.ref if n == dim else axis.ref for n, axis in enumerate(axes))
        body = builder.element(source, index)
        largest = bool(node.arguments["largest"])
        builder.values[name] = Best(
            name, axes, result.dtype, axes[dim], over, largest, of == 1, body
        )
        builder.named(node, name, of)


def _sort(builder: Builder, node: Node) -> None:
    """A sort by rank: each element goes to the place that is the number of elements before it."""
    source = node.arguments["self"]
    shape = builder.shape(source)
    if not shape:
        refuse("the built-in Designer has no form for sort of a number")
    dim = integer(node.arguments["dim"]) % len(shape)
    descending = bool(node.arguments["descending"])
    rank = f"{value_name(builder.number, 0)}_rank"
    axes = builder.axes(shape)
    each = builder.element(source, tuple(axis.ref for axis in axes))
    builder.values[rank] = Rank(rank, axes, DType.I64, axes[dim], descending, each)

    def moved(own: Index, place: ir.Expr) -> Index:
        return (*own[:dim], place, *own[dim + 1 :])

    for of, result in enumerate(node.results):
        name = f"{value_name(builder.number, of)}_sorted"
        own_axes = tuple(Axis(f"s{name}_{n}", extent) for n, extent in enumerate(shape))
        own = tuple(axis.ref for axis in own_axes)
        target = tuple(Axis(f"t{name}_{n}", extent) for n, extent in enumerate(shape))
        body: Scalar = Number(own[dim], DType.I64) if of else builder.element(source, own)
        there = f"rank{builder.number}_{of}"
        builder.values[name] = Scatter(
            name,
            target,
            result.dtype,
            None,
            own_axes,
            moved(own, ir.Ref(there, ir.NameKind.BINDING)),
            ((there, Element(rank, own, DType.I64)),),
            "set",
            body,
        )
        builder.named(node, name, of)


def _searched(builder: Builder, node: Node) -> None:
    """How many elements of a sorted row come before a value: the place where it belongs."""
    arguments = node.arguments
    row = arguments.get("sorted_sequence", arguments.get("boundaries"))
    if arguments.get("sorter") is not None:
        refuse("the built-in Designer has no form for searchsorted with a sorter")
    shape, wanted = builder.shape(row), arguments["self"]
    right = bool(arguments.get("right")) or arguments.get("side") == "right"
    name = f"{value_name(builder.number, 0)}_before"
    result = node.results[0]
    inner = Specification(DType.I64, result.shape)

    def smaller(own: Index) -> Scalar:
        lead = own[: len(shape) - 1]
        here = builder.element(row, (*lead, own[-1]))
        value = builder.element(wanted, own[:-1] if builder.shape(wanted) else ())
        found = Apply("le" if right else "lt", (here, value), DType.BOOL)
        return converted(found, DType.I64)

    rank = len(result.shape)
    builder.reduce(inner, [rank], (*result.shape, shape[-1]), "sum", smaller, name)
    builder.map(node, lambda own: converted(Element(name, own, DType.I64), result.dtype))


#: The rules of these operations, by name.
RULES: Mapping[str, Rule] = {
    "topk": _topk,
    "sort": _sort,
    **dict.fromkeys(("searchsorted", "bucketize"), _searched),
}
