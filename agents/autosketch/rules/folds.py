"""Rules for what is folded along axes: reductions, norms, scans, and argmax and argmin."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sketchc.agents.autosketch.builder import (
    Builder,
    Rule,
    as_float,
    converted,
    integer,
    place_if_found,
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
    """The variance by the squared differences from the mean, which avoids cancellation."""
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


def _group_norm(builder: Builder, node: Node) -> None:
    """Each group of channels less its mean, over its deviation: the difference is taken before it
    is scaled, since a difference of scaled numbers would be rounding error for the most part."""
    arguments, (result, *_) = node.arguments, node.results
    source, groups = arguments["input"], integer(arguments["group"])
    images, channels, *rest = builder.shape(source)
    own, dtype = symbolic.simplify(ir.Binary("//", channels, ir.Literal(groups))), result.dtype
    wide = summed_in(dtype)
    shape = (images, ir.Literal(groups), own, *rest)
    over = list(range(2, len(shape)))
    total, squares = (f"{value_name(builder.number, 0)}_{each}" for each in ("total", "squares"))
    count = as_float(Number(symbolic.product([own, *rest]), wide), wide)
    held = Specification(wide, shape[:2])

    def element(index: Index) -> Scalar:
        """The input at an index whose second and third axes are the group and its channel."""
        image, group, channel, *places = index
        whole = ir.Binary("+", ir.Binary("*", group, own), channel)
        return converted(builder.element(source, (image, whole, *places)), wide)

    def mean(image: ir.Expr, group: ir.Expr) -> Scalar:
        return Apply("div", (Element(total, (image, group), wide), count), wide)

    def squared(index: Index) -> Scalar:
        left = Apply("sub", (element(index), mean(*index[:2])), wide)
        return Apply("mul", (left, left), wide)

    builder.reduce(held, over, shape, "sum", element, total)
    builder.reduce(held, over, shape, "sum", squared, squares)
    eps = as_float(Number(float(arguments["eps"]), wide), wide)

    def deviation(image: ir.Expr, group: ir.Expr) -> Scalar:
        """The reciprocal of a group's standard deviation."""
        spread = Apply("div", (Element(squares, (image, group), wide), count), wide)
        return Apply("rsqrt", (Apply("add", (spread, eps), wide),), wide)

    def body(index: Index) -> Scalar:
        image, channel, *_ = index
        group = channel if own == ir.Literal(1) else ir.Binary("//", channel, own)
        left = Apply(
            "sub", (converted(builder.element(source, index), wide), mean(image, group)), wide
        )
        found: Scalar = Apply("mul", (left, deviation(image, group)), wide)
        for operation, name in (("mul", "weight"), ("add", "bias")):
            if arguments.get(name) is not None:
                each = converted(builder.element(arguments[name], (channel,)), wide)
                found = Apply(operation, (found, each), wide)
        return converted(found, dtype)

    builder.map(node, body)
    builder.map(node, lambda index: converted(mean(*index), node.results[1].dtype), 1)
    builder.map(node, lambda index: converted(deviation(*index), node.results[2].dtype), 2)


def _norm(builder: Builder, node: Node) -> None:
    """The norm along axes. Of a single element it is the magnitude, as in PyTorch: the square of a
    small number would be 0."""
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


def _extremes(
    builder: Builder, source: Any, dims: Sequence[int], operation: str
) -> tuple[str, str]:
    """The names of two values: the largest or smallest along the axes `dims`, and the number, in
    row-major order along these, of its first place. NaN counts as the largest and the smallest."""
    shape = builder.shape(source)
    dtype = builder.graph.specification(source).dtype
    kept = [n for n in range(len(shape)) if n not in dims]
    held = tuple(shape[n] for n in kept)
    best, first = (f"{value_name(builder.number, 0)}_{each}" for each in ("best", "first"))

    def read(index: Index) -> Scalar:
        return builder.element(source, index)

    builder.reduce(Specification(dtype, held), dims, shape, operation, read, best)

    def places(index: Index) -> Scalar:
        found = Element(best, tuple(index[n] for n in kept), dtype)
        own = tuple(index[n] for n in dims)
        return place_if_found(read(index), found, own, [shape[n] for n in dims])

    builder.reduce(Specification(DType.I64, held), dims, shape, "min", places, first)
    return best, first


def _along(operation: str, *, values: bool) -> Rule:
    """The rule of `max` or `min` along an axis, or of all elements; without `values`, of `argmax`
    or `argmin`."""

    def rule(builder: Builder, node: Node) -> None:
        if "dim" not in node.arguments:  # of all elements, and nobody asks where it stands
            _reduction(operation)(builder, node)
            return
        source = node.arguments["self"]
        shape = builder.shape(source)
        dim = node.arguments["dim"]
        whole = dim is None or not shape
        dims = range(len(shape)) if whole else [integer(dim) % len(shape)]
        held = len(node.results[0].shape) == len(shape)
        names = _extremes(builder, source, dims, operation)[0 if values else 1 :]

        def found(of: int, name: str) -> Callable[[Index], Scalar]:
            dtype = node.results[of].dtype

            def at(index: Index) -> Scalar:
                own = tuple(e for n, e in enumerate(index) if n not in dims) if held else index
                return Element(name, own, dtype)

            return at

        for of, name in enumerate(names):
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
    "native_group_norm": _group_norm,
    "cumsum": _scan("sum"),
    "cumprod": _scan("prod"),
    **{name: _along(name, values=True) for name in ("max", "min")},
    **{f"arg{name}": _along(name, values=False) for name in ("max", "min")},
}
