"""Elements whose place is data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from sketchc.agents.autosketch.builder import Builder, Rule, broadcast, integer
from sketchc.agents.autosketch.graph import Node
from sketchc.agents.autosketch.loops import Apply, Element, Index, Number, Scalar
from sketchc.base.diagnostics import refuse
from sketchc.base.types import DType
from sketchc.ir import nodes as ir


def _fetched(builder: Builder, source: Any, index: Index, data: Mapping[int, Scalar]) -> Scalar:
    """An operand at an index of which some subscripts are data."""
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
    """A place of an axis; a negative one counts from the end."""
    below = Apply("lt", (place, Number(0, DType.I64)), DType.BOOL)
    from_end = Apply("add", (place, Number(extent, DType.I64)), DType.I64)
    return Apply("where", (below, from_end, place), DType.I64)


def places_given(
    builder: Builder, node: Node
) -> tuple[dict[int, Any], int, int, tuple[ir.Expr, ...]]:
    """Of `tensor[None, p, q]`: the places by axis, how many axes they have, at which axis of the
    result these begin (there where the places stand, if they are side by side, else in front), and
    the result's extents."""
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
    """`source[None, p, q]`."""
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


#: The rules of these operations, by name.
RULES: Mapping[str, Rule] = {
    "gather": _gather,
    "index_select": _index_select,
    "embedding": _embedding,
    **dict.fromkeys(("index", "_unsafe_index"), _indexed),
}
