"""What goes where data says."""

from __future__ import annotations

from collections.abc import Mapping

from sketchc.agents.autosketch.builder import (
    Builder,
    Rule,
    broadcast,
    converted,
    integer,
    value_name,
)
from sketchc.agents.autosketch.graph import Node
from sketchc.agents.autosketch.lookups import places_given, wrapped
from sketchc.agents.autosketch.loops import Axis, Element, Index, Number, Scalar, Scatter
from sketchc.base.diagnostics import refuse
from sketchc.ir import nodes as ir

_COMBINED = {
    "add": "add",
    "sum": "add",
    "multiply": "mul",
    "prod": "mul",
    "amax": "max",
    "amin": "min",
}


def _scattered(
    builder: Builder,
    node: Node,
    over: tuple[Axis, ...],
    place: Index,
    fetched: Mapping[str, Scalar],
    operation: str,
    body: Scalar,
) -> None:
    result = node.results[0]
    name = f"{value_name(builder.number, 0)}_scattered"
    axes = builder.axes(result.shape)
    base = builder.element(node.arguments["self"], tuple(axis.ref for axis in axes))
    body = converted(body, result.dtype)
    builder.values[name] = Scatter(
        name, axes, result.dtype, base, over, place, tuple(fetched.items()), operation, body
    )
    builder.map(node, lambda own: Element(name, own, result.dtype))


def _scatter(default: str) -> Rule:
    """`scatter`, `scatter_add` and `scatter_reduce`: along one axis the index says where."""

    def rule(builder: Builder, node: Node) -> None:
        arguments = node.arguments
        how = arguments.get("reduce")
        operation = default if how is None else _COMBINED.get(str(how))
        if operation is None or arguments.get("include_self") is False:
            refuse(f"the built-in Designer has no form for {node.operation} by {how}")
        places = arguments["index"]
        shape = builder.shape(places)
        if not shape:
            refuse("the built-in Designer has no form for a scatter of a number")
        dim = integer(arguments["dim"]) % len(shape)
        over = builder.axes(shape, "s")
        own = tuple(axis.ref for axis in over)
        name = f"to{builder.number}"
        place = (*own[:dim], ir.Ref(name, ir.NameKind.BINDING), *own[dim + 1 :])
        source = arguments["src"] if "src" in arguments else arguments["value"]
        body = builder.element(source, own)
        if isinstance(body, Number) and node.results[0].dtype.is_float:
            body = converted(body, node.results[0].dtype)
        data = {name: builder.element(places, own)}
        _scattered(builder, node, over, place, data, operation, body)

    return rule


def _index_put(builder: Builder, node: Node) -> None:
    """`target[p, :, q] = values`, or added to it."""
    target, values = node.arguments["self"], node.arguments["values"]
    shape = builder.shape(target)
    given, wide, start, extents = places_given(builder, node)
    over = tuple(Axis(f"s{builder.number}_{n}", extent) for n, extent in enumerate(extents))
    own = tuple(axis.ref for axis in over)
    inner = own[start : start + wide]
    rest = iter((*own[:start], *own[start + wide :]))
    data: dict[str, Scalar] = {}
    place: list[ir.Expr] = []
    for n, extent in enumerate(shape):
        if n not in given:
            place.append(next(rest))
            continue
        name = f"to{builder.number}_{n}"
        at = builder.element(given[n], broadcast(inner, builder.shape(given[n])))
        data[name] = wrapped(at, extent)
        place.append(ir.Ref(name, ir.NameKind.BINDING))
    body = builder.element(values, broadcast(own, builder.shape(values)))
    operation = "add" if node.arguments.get("accumulate") else "set"
    _scattered(builder, node, over, tuple(place), data, operation, body)


#: The rules of these operations, by name.
RULES: Mapping[str, Rule] = {
    "scatter": _scatter("set"),
    "scatter_add": _scatter("add"),
    "scatter_reduce": _scatter("set"),
    **dict.fromkeys(("index_put", "_unsafe_index_put"), _index_put),
}
