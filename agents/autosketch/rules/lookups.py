"""Rules for elements whose place is data: read (gather, index) or written (scatter, index_put)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import attrs

from sketchc.agents.autosketch.builder import (
    Builder,
    Rule,
    broadcast,
    converted,
    integer,
    value_name,
)
from sketchc.agents.autosketch.calls import COMBINES, IDENTITIES
from sketchc.agents.autosketch.graph import Node
from sketchc.agents.autosketch.loops import Apply, Axis, Element, Index, Number, Scalar, Scatter
from sketchc.base.diagnostics import refuse
from sketchc.base.types import DType
from sketchc.ir import nodes as ir

#: Values of the argument `reduce` -> operations of a `Scatter`.
_COMBINED = {
    "add": "add",
    "sum": "add",
    "multiply": "mul",
    "prod": "mul",
    "amax": "max",
    "amin": "min",
    "mean": "add",
}
#: What changes nothing when such an operation combines a float with it.
_IDENTITIES = {COMBINES[name]: float(text) for name, text in IDENTITIES.items()}


def _fetched(builder: Builder, source: Any, index: Index, data: Mapping[int, Scalar]) -> Scalar:
    """`source` at an index whose subscripts at the positions in `data` are these values."""
    names = {place: f"at{builder.number}_{place}" for place in data}
    own = tuple(
        ir.Ref(names[n], ir.NameKind.BINDING) if n in names else each
        for n, each in enumerate(index)
    )
    found = builder.element(source, own)
    assert isinstance(found, Element)
    return attrs.evolve(found, fetched=tuple((names[n], value) for n, value in data.items()))


def _gather(builder: Builder, node: Node) -> None:
    source, places = node.arguments["self"], node.arguments["index"]
    dim = integer(node.arguments["dim"]) % max(1, len(builder.shape(source)))
    builder.map(
        node,
        lambda index: _fetched(builder, source, index, {dim: builder.element(places, index)}),
    )


def _index_select(builder: Builder, node: Node) -> None:
    source, places = node.arguments["self"], node.arguments["index"]
    dim = integer(node.arguments["dim"]) % len(builder.shape(source))
    builder.map(
        node,
        lambda index: _fetched(
            builder, source, index, {dim: builder.element(places, (index[dim],))}
        ),
    )


def _embedding(builder: Builder, node: Node) -> None:
    source, places = node.arguments["weight"], node.arguments["indices"]

    def body(index: Index) -> Scalar:
        place = builder.element(places, index[:-1])
        return _fetched(builder, source, (ir.Literal(0), index[-1]), {0: place})

    builder.map(node, body)


def wrapped(place: Scalar, extent: ir.Expr) -> Scalar:
    """A place of an axis of `extent` places; a negative `place` counts from the end."""
    below = Apply("lt", (place, Number(0, DType.I64)), DType.BOOL)
    from_end = Apply("add", (place, Number(extent, DType.I64)), DType.I64)
    return Apply("where", (below, from_end, place), DType.I64)


def places_given(
    builder: Builder, node: Node
) -> tuple[dict[int, Any], int, int, tuple[ir.Expr, ...]]:
    """Of `tensor[:, p, q]`, with the `indices` [None, p, q]: the places by axis, how many axes they
    have, at which axis of the result these begin (there where the places stand, if they are side by
    side, else in front), and the result's extents."""
    shape = builder.shape(node.arguments["self"])
    given = {n: each for n, each in enumerate(node.arguments["indices"]) if each is not None}
    if any(builder.graph.specification(each).dtype is DType.BOOL for each in given.values()):
        refuse("the built-in Designer has no form for an index that is a mask")
    wide = max(len(builder.shape(each)) for each in given.values())
    start = min(given) if max(given) - min(given) == len(given) - 1 else 0
    inner: list[ir.Expr] = [ir.Literal(1)] * wide
    for each in given.values():
        own = builder.shape(each)
        for n, extent in enumerate(own, wide - len(own)):
            inner[n] = extent if extent != ir.Literal(1) else inner[n]
    rest = [extent for n, extent in enumerate(shape) if n not in given]
    return given, wide, start, (*rest[:start], *inner, *rest[start:])


def _indexed(builder: Builder, node: Node) -> None:
    """Indexing by tensors: `source[:, p, q]`, with the `indices` [None, p, q]."""
    source = node.arguments["self"]
    shape = builder.shape(source)
    given, wide, start, _ = places_given(builder, node)

    def body(index: Index) -> Scalar:
        inner = index[start : start + wide]
        rest = iter((*index[:start], *index[start + wide :]))
        own = tuple(ir.Literal(0) if n in given else next(rest) for n in range(len(shape)))
        data = {
            n: wrapped(builder.element(each, broadcast(inner, builder.shape(each))), shape[n])
            for n, each in given.items()
        }
        return _fetched(builder, source, own, data)

    builder.map(node, body)


def _scattered(
    builder: Builder,
    node: Node,
    over: tuple[Axis, ...],
    place: Index,
    fetched: Mapping[str, Scalar],
    operation: str,
    body: Scalar,
    base: Scalar | None = None,
    role: str = "scattered",
) -> str:
    """The name of a new value: `base`, or else the node's own tensor, with `body` scattered."""
    result = node.results[0]
    name = f"{value_name(builder.number, 0)}_{role}"
    axes = builder.axes(result.shape)
    if base is None:
        base = builder.element(node.arguments["self"], tuple(axis.ref for axis in axes))
    body = converted(body, result.dtype)
    builder.values[name] = Scatter(
        name, axes, result.dtype, base, over, place, tuple(fetched.items()), operation, body
    )
    return name


def _scatter(default: str, *, joint: bool = False) -> Rule:
    """The rule of `scatter`, `scatter_add` or `scatter_reduce`: the place on one axis is data;
    `joint`: that of `index_reduce`, where all elements of a slice have one place."""

    def rule(builder: Builder, node: Node) -> None:
        arguments = node.arguments
        how = arguments.get("reduce")
        operation = default if how is None else _COMBINED.get(str(how))
        alone = arguments.get("include_self") is False
        dtype = node.results[0].dtype
        if operation is None or ((alone or how == "mean") and not dtype.is_float):
            refuse(f"the built-in Designer has no form for {node.operation} by {how}")
        places = arguments["index"]
        given = next(arguments[name] for name in ("src", "source", "value") if name in arguments)
        shape = builder.shape(given if joint else places)
        if not shape:
            refuse("the built-in Designer has no form for a scatter of a number")
        dim = integer(arguments["dim"]) % len(shape)
        over = builder.axes(shape, "s")
        own = tuple(axis.ref for axis in over)
        name = f"to{builder.number}"
        place = (*own[:dim], ir.Ref(name, ir.NameKind.BINDING), *own[dim + 1 :])
        data = {name: builder.element(places, (own[dim],) if joint else own)}
        put = partial(_scattered, builder, node, over, place, data)
        base = None
        if alone:  # what is written to begins with what changes nothing
            cleared = put("set", Number(_IDENTITIES[operation], dtype), role="cleared")
            axes = builder.axes(node.results[0].shape)
            base = Element(cleared, tuple(axis.ref for axis in axes), dtype)
        total = put(operation, builder.element(given, own), base)
        if how != "mean":
            builder.named(node, total)
            return
        one = Number(1.0, dtype)
        count = put("add", one, Number(0.0, dtype) if alone else one, "counted")

        def mean(index: Index) -> Scalar:
            terms = Apply("max", (Element(count, index, dtype), one), dtype)
            return Apply("div", (Element(total, index, dtype), terms), dtype)

        builder.map(node, mean)

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
    builder.named(node, _scattered(builder, node, over, tuple(place), data, operation, body))


#: The rules of these operations, by name.
RULES: Mapping[str, Rule] = {
    "gather": _gather,
    "index_select": _index_select,
    "embedding": _embedding,
    **dict.fromkeys(("index", "_unsafe_index"), _indexed),
    "scatter": _scatter("set"),
    "scatter_add": _scatter("add"),
    "scatter_reduce": _scatter("set"),
    "index_reduce": _scatter("set", joint=True),
    **dict.fromkeys(("index_put", "_unsafe_index_put"), _index_put),
}
