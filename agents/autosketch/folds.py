"""What is folded along axes: reductions, running ones, and the places of the largest."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from sketchc.agents.autosketch.builder import (
    Builder,
    Rule,
    as_float,
    converted,
    integer,
    plain,
    summed_in,
    value_name,
)
from sketchc.agents.autosketch.graph import Node, Specification
from sketchc.agents.autosketch.loops import Apply, Element, Index, Number, Scalar, Scan
from sketchc.base.diagnostics import refuse
from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic

_REDUCTIONS = {"sum": "sum", "prod": "prod", "amax": "max", "amin": "min"}


def _dims(
    builder: Builder, arguments: Mapping[str, Any]
) -> tuple[Any, tuple[ir.Expr, ...], list[int]]:
    source = arguments.get("inp", arguments.get("self"))
    shape = builder.shape(source)
    given = arguments.get("dims")
    places = range(len(shape)) if not given else (integer(place) % len(shape) for place in given)
    return source, shape, sorted(places)


def _reduction(operation: str) -> Rule:
    def rule(builder: Builder, node: Node) -> None:
        source, shape, dims = _dims(builder, node.arguments)
        builder.reduce(
            node.results[0],
            dims,
            shape,
            operation,
            lambda index: builder.element(source, index),
            value_name(builder.number, 0),
        )

    return rule


def _variance(builder: Builder, node: Node) -> None:
    """The mean first, then the squares of what is left of it: no cancellation."""
    source, shape, dims = _dims(builder, node.arguments)
    specification = node.results[0]
    total, squares = (
        f"{value_name(builder.number, 0)}_total",
        f"{value_name(builder.number, 0)}_squares",
    )
    dtype = specification.dtype
    builder.reduce(
        specification, dims, shape, "sum", lambda index: builder.element(source, index), total
    )
    count: ir.Expr = ir.Literal(1)
    for place in dims:
        count = ir.Binary("*", count, shape[place])
    number = as_float(Number(count, dtype), dtype)
    kept = [place for place in range(len(shape)) if place not in dims]

    def squared(index: Index) -> Scalar:
        mean = Apply(
            "div",
            (Element(total, tuple(index[place] for place in kept), dtype), number),
            dtype,
        )
        left = Apply("sub", (builder.element(source, index), mean), dtype)
        return Apply("mul", (left, left), dtype)

    builder.reduce(specification, dims, shape, "sum", squared, squares)
    correction = node.arguments.get("correction") or 0.0
    fewer = ir.Binary("-", count, ir.Literal(int(correction)))
    divisor = as_float(Number(fewer, dtype), dtype)
    builder.map(node, lambda index: Apply("div", (Element(squares, index, dtype), divisor), dtype))


def _norm(builder: Builder, node: Node) -> None:
    """The norm along axes. Of a single element it is the magnitude, as in PyTorch: the square of a
    small one would be 0."""
    source, shape, dims = _dims(builder, {**node.arguments, "dims": node.arguments["dim"]})
    dtype = node.results[0].dtype
    order = builder.element(node.arguments["ord"], ())
    if not isinstance(order, Number) or isinstance(order.value, ir.Expr):
        refuse("the built-in Designer has no form for a norm whose order follows the sizes")
    power = float(order.value)

    def magnitude(index: Index) -> Scalar:
        return Apply("abs", (builder.element(source, index),), dtype)

    def raised(index: Index) -> Scalar:
        if math.isinf(power) or power == 1.0:
            return magnitude(index)
        if power == 0.0:
            found = Apply("ne", (builder.element(source, index), Number(0.0, dtype)), DType.BOOL)
            return Apply("cast", (found,), dtype)
        if power == 2.0:
            return Apply("mul", (builder.element(source, index),) * 2, dtype)
        return Apply("pow", (magnitude(index), Number(power, dtype)), dtype)

    name = f"{value_name(builder.number, 0)}_total"
    operation = {math.inf: "max", -math.inf: "min"}.get(power, "sum")
    kept = [place for place in range(len(shape)) if place not in dims]
    reduced = Specification(dtype, tuple(shape[place] for place in kept))
    builder.reduce(reduced, dims, shape, operation, raised, name)
    held = len(node.results[0].shape) == len(shape)
    alone = ir.Binary("==", symbolic.product([shape[place] for place in dims]), ir.Literal(1))

    def rooted(index: Index) -> Scalar:
        place = tuple(index[n] for n in kept) if held else index
        found: Scalar = Element(name, place, dtype)
        if math.isinf(power) or power in (0.0, 1.0):
            return found
        root = ("sqrt", ()) if power == 2.0 else ("pow", (Number(1.0 / power, dtype),))
        found = Apply(root[0], (found, *root[1]), dtype)
        whole: list[ir.Expr] = [ir.Literal(0)] * len(shape)
        for place_of, own in zip(kept, place, strict=True):
            whole[place_of] = own
        operands = (Number(alone, DType.BOOL), magnitude(tuple(whole)), found)
        return Apply("where", operands, dtype)

    builder.map(node, rooted)


def _without(axes: Index, dim: int) -> Index:
    """An index, or a shape, without one of its axes."""
    return (*axes[:dim], *axes[dim + 1 :])


def _extremes(builder: Builder, source: Any, dim: int, operation: str) -> tuple[str, str]:
    """The values that hold the largest or the smallest along an axis, and the first index at which
    it stands: NaN is both."""
    shape = builder.shape(source)
    dtype = builder.graph.specification(source).dtype
    kept = _without(shape, dim)
    best, first = (f"{value_name(builder.number, 0)}_{each}" for each in ("best", "first"))

    def read(index: Index) -> Scalar:
        return builder.element(source, index)

    builder.reduce(Specification(dtype, kept), [dim], shape, operation, read, best)

    def places(index: Index) -> Scalar:
        here = read(index)
        found = Element(best, _without(index, dim), dtype)
        hit: Scalar = Apply("eq", (here, found), DType.BOOL)
        if dtype.is_float:
            missing = Apply("isnan", (here,), DType.BOOL)
            hit = Apply("logical_or", (hit, missing), DType.BOOL)
        numbers = (Number(index[dim], DType.I64), Number(shape[dim], DType.I64))
        return Apply("where", (hit, *numbers), DType.I64)

    builder.reduce(Specification(DType.I64, kept), [dim], shape, "min", places, first)
    return best, first


def _along(operation: str, *, values: bool) -> Rule:
    """`max` and `min` along an axis; `argmax` and `argmin` are their indices alone."""

    def rule(builder: Builder, node: Node) -> None:
        rank = len(builder.shape(node.arguments["self"]))
        if node.arguments["dim"] is None and rank != 1:
            refuse(f"the built-in Designer has no form for {plain(node.operation)} of all elements")
        dim = integer(node.arguments["dim"] or ir.Literal(0)) % rank
        held = len(node.results[0].shape) == rank
        names = _extremes(builder, node.arguments["self"], dim, operation)

        def found(of: int, name: str) -> Callable[[Index], Scalar]:
            dtype = node.results[of].dtype
            return lambda index: Element(name, _without(index, dim) if held else index, dtype)

        for of, name in enumerate(names if values else names[1:]):
            builder.map(node, found(of, name), of)

    return rule


def _scan(operation: str) -> Rule:
    def rule(builder: Builder, node: Node) -> None:
        source = node.arguments["self"]
        specification = node.results[0]
        own = specification.dtype
        wide = summed_in(own)
        axes = builder.axes(specification.shape)
        if not axes:
            builder.view(node, source, lambda index: index)
            return
        along = axes[integer(node.arguments["dim"]) % len(axes)]
        body = builder.element(source, tuple(axis.ref for axis in axes))
        name = f"{value_name(builder.number, 0)}_running"
        builder.values[name] = Scan(name, axes, wide, along, operation, converted(body, wide))

        builder.map(node, lambda index: converted(Element(name, index, wide), own))

    return rule


#: The rules of these operations, by name.
RULES: Mapping[str, Rule] = {
    **{name: _reduction(operation) for name, operation in _REDUCTIONS.items()},
    "var": _variance,
    "linalg_vector_norm": _norm,
    "cumsum": _scan("sum"),
    "cumprod": _scan("prod"),
    **{name: _along(name, values=True) for name in ("max", "min")},
    **{f"arg{name}": _along(name, values=False) for name in ("max", "min")},
}
