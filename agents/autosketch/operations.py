"""What each ATen operation is as a function of its index: the table of the built-in Designer.

PyTorch takes most operations apart into some hundred primitives (`prims`). Pointwise ones are
operations of the op table, views are index maps, and reductions combine a map.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from sketchc.agents.autosketch.graph import Graph, Made, Node, Specification, Use
from sketchc.agents.autosketch.loops import (
    Apply,
    Axis,
    Element,
    Index,
    Loops,
    Map,
    Number,
    Reduction,
    Scalar,
    Value,
)
from sketchc.base.diagnostics import UsageError
from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic

#: Primitive -> the operation of the op table with the same operands.
_POINTWISE = {
    **{
        name: name
        for name in (
            *("abs", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "tan", "atan"),
            *("tanh", "erf", "neg", "floor", "ceil", "round", "trunc", "sign", "sigmoid", "silu"),
            *("add", "sub", "mul", "div", "pow", "atan2", "eq", "ne", "lt", "le", "gt", "ge"),
            *("where", "bitwise_not", "isfinite", "relu", "hardsigmoid", "hardswish"),
        )
    },
    "maximum": "max",
    "minimum": "min",
    "remainder": "mod",
    "bitwise_and": "bitwise_and",
    "bitwise_or": "bitwise_or",
    "bitwise_xor": "bitwise_xor",
}
#: Of conditions.
_LOGICAL = {
    "bitwise_and": "logical_and",
    "bitwise_or": "logical_or",
    "bitwise_xor": "ne",
    "bitwise_not": "logical_not",
}
_REDUCTIONS = {"sum": "sum", "prod": "prod", "amax": "max", "amin": "min"}
#: They hand on what they are given.
_SAME = ("clone", "view_of", "alias", "detach", "lift_fresh_copy", "contiguous")


def build_loops(graph: Graph) -> Loops:
    """Every node of the graph as loops.

    Raises `UsageError` that lists the operations for which there is no form yet.
    """
    builder = _Builder(graph)
    unknown: dict[str, int] = {}
    for node in graph.nodes:
        name = plain(node.operation)
        if name not in _TABLE:
            unknown[name] = unknown.get(name, 0) + 1
    if unknown:
        listed = ", ".join(f"{n} ({c} times)" if c > 1 else n for n, c in sorted(unknown.items()))
        msg = f"the built-in Designer has no form for: {listed}"
        raise UsageError(msg)
    for number, node in enumerate(graph.nodes):
        builder.number = number
        _TABLE[plain(node.operation)](builder, node)
    return builder.loops()


def plain(operation: str) -> str:
    """`prims::add` and `add` are one operation."""
    return operation.removeprefix("prims::")


class _Builder:
    """The values made so far."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.number = 0
        self.values: dict[str, Value] = {}

    def loops(self) -> Loops:
        outputs = [t.name for t in self.graph.declared.tensors if t.role is ir.Role.OUT]
        found = []
        for tensor, use in zip(outputs, self.graph.returned, strict=True):
            axes = self.axes(self.graph.specification(use).shape)
            body = self.element(use, tuple(axis.ref for axis in axes))
            name = f"{tensor.lower()}_value"
            self.values[name] = Map(name, axes, body.dtype, body)
            found.append((tensor, name))
        return Loops(self.graph.declared, self.values, tuple(found))

    # ------------------------------------------------------------ operands

    def axes(self, shape: Sequence[ir.Expr], letter: str = "i") -> tuple[Axis, ...]:
        return tuple(
            Axis(f"{letter}{self.number}_{place}", extent) for place, extent in enumerate(shape)
        )

    def shape(self, operand: Any) -> tuple[ir.Expr, ...]:
        return self.graph.specification(operand).shape if isinstance(operand, Use | Made) else ()

    def element(self, operand: Any, index: Index) -> Scalar:
        """An operand at an index; a number is the same at each."""
        match operand:
            case Use(parameter=name) if name:
                return Element(name, index, self.graph.specification(operand).dtype)
            case Use(node, of):
                dtype = self.graph.specification(operand).dtype
                return Element(_name(node, of), index, dtype)
            case Made(specification, (value,)):
                return Number(value, specification.dtype)
            case Made():
                msg = "the built-in Designer has no form for tensors that the task makes for itself"
                raise UsageError(msg)
            case bool():
                return Number(operand, DType.BOOL)
            case float():
                return Number(operand, DType.F32)
            case ir.Literal(value):
                return Number(value, DType.I64)
            case _:
                return Number(operand, DType.I64)

    # ------------------------------------------------------------ what a node gives

    def map(self, node: Node, body: Callable[[Index], Scalar], of: int = 0) -> None:
        specification = node.results[of]
        axes = self.axes(specification.shape)
        name = _name(self.number, of)
        scalar = body(tuple(axis.ref for axis in axes))
        self.values[name] = Map(name, axes, specification.dtype, scalar)

    def view(self, node: Node, source: Any, index: Callable[[Index], Index]) -> None:
        """The result at an index is the source at another one."""
        self.map(node, lambda own: self.element(source, index(own)))

    def reduce(
        self,
        specification: Specification,
        dims: Sequence[int],
        shape: Sequence[ir.Expr],
        operation: str,
        body: Callable[[Index], Scalar],
        name: str,
    ) -> None:
        """A reduction of `body`, which has this shape, over some of its axes."""
        kept = [place for place in range(len(shape)) if place not in dims]
        axes = tuple(Axis(f"i{name}_{n}", shape[place]) for n, place in enumerate(kept))
        over = tuple(Axis(f"r{name}_{n}", shape[place]) for n, place in enumerate(dims))
        index: list[ir.Expr] = [ir.Literal(0)] * len(shape)
        for axis, place in (*zip(axes, kept, strict=True), *zip(over, dims, strict=True)):
            index[place] = axis.ref
        scalar = body(tuple(index))
        self.values[name] = Reduction(name, axes, specification.dtype, over, operation, scalar)


def _name(node: int, of: int) -> str:
    return f"v{node}" + (f"_{of}" if of else "")


_Rule = Callable[[_Builder, Node], None]

# ---------------------------------------------------------------- pointwise


def _broadcast(index: Index, shape: Sequence[ir.Expr]) -> Index:
    """The index of an operand of this shape, right-aligned; its extents of 1 are repeated."""
    own = index[len(index) - len(shape) :]
    return tuple(
        ir.Literal(0) if e == ir.Literal(1) else i for i, e in zip(own, shape, strict=True)
    )


def _operands(node: Node) -> list[Any]:
    """The arguments that are operands of a pointwise operation: tensors and numbers in order."""
    order = ("self", "inp", "a", "pred", "input", "other", "b", "exponent")
    found = {n: v for n, v in node.arguments.items() if n in order}
    if "pred" in found:
        return [node.arguments[name] for name in ("pred", "a", "b")]
    return [found[name] for name in order if name in found]


def _pointwise(operation: str) -> _Rule:
    def rule(builder: _Builder, node: Node) -> None:
        given = _operands(node)
        own = operation
        dtypes = [builder.graph.specification(g).dtype for g in given if isinstance(g, Use | Made)]
        if dtypes and dtypes[-1] is DType.BOOL and own in _LOGICAL:
            own = _LOGICAL[own]

        def body(index: Index) -> Scalar:
            operands = [builder.element(g, _broadcast(index, builder.shape(g))) for g in given]
            return Apply(own, tuple(_alike(operands)), node.results[0].dtype)

        builder.map(node, body)

    return rule


def _alike(operands: Sequence[Scalar]) -> list[Scalar]:
    """Numbers in the type of the tensors beside them."""
    dtypes = [o.dtype for o in operands if not isinstance(o, Number) and o.dtype is not DType.BOOL]
    if not dtypes or not dtypes[0].is_float:
        return list(operands)
    return [_as_float(o, dtypes[0]) if isinstance(o, Number) else o for o in operands]


def _as_float(number: Number, dtype: DType) -> Number:
    if isinstance(number.value, bool | ir.Expr):
        return attrs.evolve(number, dtype=dtype)
    return Number(float(number.value), dtype)


def _unary(*steps: tuple[str, float | None]) -> _Rule:
    """A chain of operations on one operand, each with a number on its right, or none."""

    def rule(builder: _Builder, node: Node) -> None:
        (given, *_) = _operands(node)
        dtype = node.results[0].dtype

        def body(index: Index) -> Scalar:
            found = builder.element(given, _broadcast(index, builder.shape(given)))
            for operation, number in steps:
                beside = () if number is None else (Number(number, dtype),)
                found = Apply(operation, (found, *beside), dtype)
            return found

        builder.map(node, body)

    return rule


def _gelu(builder: _Builder, node: Node) -> None:
    source = node.arguments["self"]
    how = (("approximate", str(node.arguments["approximate"])),)
    builder.map(
        node,
        lambda index: Apply("gelu", (builder.element(source, index),), node.results[0].dtype, how),
    )


def _with(operation: str, **attributes: str) -> _Rule:
    """One operation with attributes, each an argument of the node."""

    def rule(builder: _Builder, node: Node) -> None:
        dtype = node.results[0].dtype
        given = []
        for name, argument in attributes.items():
            value = builder.element(node.arguments[argument], ())
            if not isinstance(value, Number) or isinstance(value.value, ir.Expr):
                msg = f"the built-in Designer has no form for {plain(node.operation)} of a tensor"
                raise UsageError(msg)
            given.append((name, float(value.value)))
        source = node.arguments["self"]
        builder.map(
            node,
            lambda index: Apply(operation, (builder.element(source, index),), dtype, tuple(given)),
        )

    return rule


def _clamp(builder: _Builder, node: Node) -> None:
    """Bounds are numbers, or not there."""
    dtype = node.results[0].dtype
    bounds = {"max": ("min", "min_val"), "min": ("max", "max_val")}
    names = [(operation, name) for operation, each in bounds.items() for name in each]

    def body(index: Index) -> Scalar:
        found = builder.element(node.arguments["self"], index)
        for operation, name in names:
            bound = node.arguments.get(name)
            if bound is not None:
                beside = builder.element(bound, _broadcast(index, builder.shape(bound)))
                found = Apply(operation, tuple(_alike((found, beside))), dtype)
        return found

    builder.map(node, body)


def _elu(builder: _Builder, node: Node) -> None:
    dtype, source = node.results[0].dtype, node.arguments["self"]
    alpha, scale, inner = (
        builder.element(node.arguments[name], ()) for name in ("alpha", "scale", "input_scale")
    )
    if not isinstance(alpha, Number) or not isinstance(inner, Number) or inner.value != 1:
        msg = "the built-in Designer has no form for elu with an input scale"
        raise UsageError(msg)
    given = (("alpha", float(alpha.value)),)  # type: ignore[arg-type]

    def body(index: Index) -> Scalar:
        found: Scalar = Apply("elu", (builder.element(source, index),), dtype, given)
        if isinstance(scale, Number) and scale.value != 1:
            found = Apply("mul", (found, _as_float(scale, dtype)), dtype)
        return found

    builder.map(node, body)


def _softplus(builder: _Builder, node: Node) -> None:
    """log(1 + exp(beta*x)) / beta; above the threshold it is x to the last digit of f32."""
    dtype, source = node.results[0].dtype, node.arguments["self"]
    beta = builder.element(node.arguments["beta"], ())

    def body(index: Index) -> Scalar:
        found = builder.element(source, index)
        if isinstance(beta, Number) and beta.value == 1:
            return Apply("softplus", (found,), dtype)
        scaled = Apply("mul", tuple(_alike((found, beta))), dtype)
        return Apply("div", tuple(_alike((Apply("softplus", (scaled,), dtype), beta))), dtype)

    builder.map(node, body)


def _reciprocal(builder: _Builder, node: Node) -> None:
    (source, *_) = _operands(node)
    dtype = node.results[0].dtype
    builder.map(
        node,
        lambda index: Apply("div", (Number(1.0, dtype), builder.element(source, index)), dtype),
    )


def _convert(builder: _Builder, node: Node) -> None:
    source = node.arguments.get("a", node.arguments.get("self"))
    dtype = node.results[0].dtype

    def body(index: Index) -> Scalar:
        found = builder.element(source, index)
        if found.dtype is dtype:
            return found
        if dtype is DType.BOOL:
            return Apply("ne", (found, Number(0, found.dtype)), dtype)
        toward = (("round", "trunc"),) if found.dtype.is_float and dtype.is_integer else ()
        return Apply("cast", (found,), dtype, toward)

    builder.map(node, body)


def _filled(name: str) -> _Rule:
    """A tensor of one number."""

    def rule(builder: _Builder, node: Node) -> None:
        value = builder.element(node.arguments[name], ())
        dtype = node.results[0].dtype
        number = value if isinstance(value, Number) else None
        if number is None:
            msg = "the built-in Designer has no form for a tensor filled with an element"
            raise UsageError(msg)
        builder.map(node, lambda index: attrs.evolve(number, dtype=dtype))

    return rule


def _iota(builder: _Builder, node: Node) -> None:
    start, step = node.arguments["start"], node.arguments["step"]

    def body(index: Index) -> Scalar:
        scaled = ir.Binary("*", index[0], step)
        return Number(ir.Binary("+", scaled, start), node.results[0].dtype)

    builder.map(node, body)


# ---------------------------------------------------------------- views


def _same(builder: _Builder, node: Node) -> None:
    source = next(v for v in node.arguments.values() if isinstance(v, Use | Made))
    builder.view(node, source, lambda index: index)


def _broadcast_in_dim(builder: _Builder, node: Node) -> None:
    source = node.arguments["a"]
    places = [_int(place) for place in node.arguments["broadcast_dimensions"]]
    shape = builder.shape(source)
    builder.view(
        node, source, lambda index: _broadcast(tuple(index[place] for place in places), shape)
    )


def _transpose(builder: _Builder, node: Node) -> None:
    source = node.arguments["a"]
    order = [_int(place) for place in node.arguments["permutation"]]
    builder.view(
        node, source, lambda index: tuple(index[order.index(n)] for n in range(len(order)))
    )


def _squeeze(builder: _Builder, node: Node) -> None:
    source = node.arguments["a"]
    rank = len(builder.shape(source))
    gone = {_int(place) % rank for place in node.arguments["dimensions"]}

    def index(own: Index) -> Index:
        rest = iter(own)
        return tuple(ir.Literal(0) if place in gone else next(rest) for place in range(rank))

    builder.view(node, source, index)


def _reshape(builder: _Builder, node: Node) -> None:
    """Any change of shape: the row-major place, taken apart by the extents of the source. Axes that
    stay, in front and at the end, keep their index."""
    source = next(v for v in node.arguments.values() if isinstance(v, Use | Made))
    old, new = builder.shape(source), node.results[0].shape
    builder.view(node, source, lambda index: _regrouped(index, new, old))


def _as_strided(builder: _Builder, node: Node) -> None:
    """A change of shape, where the strides are those of dense rows. Raises `UsageError`."""
    stride: ir.Expr = ir.Literal(1)
    dense = node.arguments["storage_offset"] in (None, ir.Literal(0))
    for size, own in zip(
        reversed(node.arguments["size"]), reversed(node.arguments["stride"]), strict=True
    ):
        dense = dense and (size == ir.Literal(1) or symbolic.equal(own, stride))
        stride = ir.Binary("*", stride, size)
    if not dense:
        msg = (
            "the built-in Designer has no form for as_strided of other strides than a tensor's own"
        )
        raise UsageError(msg)
    _reshape(builder, node)


def _regrouped(index: Index, new: Sequence[ir.Expr], old: Sequence[ir.Expr]) -> Index:
    first = 0
    while first < min(len(new), len(old)) and new[first] == old[first]:
        first += 1
    last = 0
    while last < min(len(new), len(old)) - first and new[-1 - last] == old[-1 - last]:
        last += 1
    middle_new, middle_old = new[first : len(new) - last], old[first : len(old) - last]
    place: ir.Expr = ir.Literal(0)
    for own, extent in zip(index[first : len(index) - last], middle_new, strict=True):
        place = ir.Binary("+", ir.Binary("*", place, extent), own)
    digits: list[ir.Expr] = []
    for number, extent in reversed(list(enumerate(middle_old))):
        digits.append(place if number == 0 else ir.Binary("%", place, extent))
        place = ir.Binary("//", place, extent)
    return (*index[:first], *reversed(digits), *index[len(index) - last :])


def _slice(builder: _Builder, node: Node) -> None:
    source, arguments = node.arguments["self"], node.arguments
    rank = len(builder.shape(source))
    dim = _int(arguments["dim"]) % rank
    start = arguments["start"] if arguments["start"] is not None else ir.Literal(0)
    if isinstance(start, ir.Literal) and _int(start) < 0:
        start = ir.Binary("+", builder.shape(source)[dim], start)
    step = arguments["step"]

    def index(own: Index) -> Index:
        moved = ir.Binary("+", ir.Binary("*", own[dim], step), start)
        return (*own[:dim], moved, *own[dim + 1 :])

    builder.view(node, source, index)


def _select(builder: _Builder, node: Node) -> None:
    source, arguments = node.arguments["self"], node.arguments
    rank = len(builder.shape(source))
    dim, place = _int(arguments["dim"]) % rank, arguments["index"]
    if isinstance(place, ir.Literal) and _int(place) < 0:
        place = ir.Binary("+", builder.shape(source)[dim], place)
    builder.view(node, source, lambda own: (*own[:dim], place, *own[dim:]))


def _rev(builder: _Builder, node: Node) -> None:
    source = node.arguments["a"]
    shape = builder.shape(source)
    dims = {_int(place) % len(shape) for place in node.arguments["dims"]}

    def index(own: Index) -> Index:
        last = [ir.Binary("-", extent, ir.Literal(1)) for extent in shape]
        return tuple(
            ir.Binary("-", last[n], each) if n in dims else each for n, each in enumerate(own)
        )

    builder.view(node, source, index)


def _int(value: Any) -> int:
    """A number that does not follow the sizes. Raises `UsageError`."""
    if isinstance(value, ir.Literal):
        return int(value.value)
    if isinstance(value, int):
        return value
    msg = "the built-in Designer has no form for an axis that follows the sizes"
    raise UsageError(msg)


# ---------------------------------------------------------------- reductions


def _dims(builder: _Builder, node: Node) -> tuple[Any, tuple[ir.Expr, ...], list[int]]:
    source = node.arguments.get("inp", node.arguments.get("self"))
    shape = builder.shape(source)
    given = node.arguments.get("dims")
    places = range(len(shape)) if not given else (_int(place) % len(shape) for place in given)
    return source, shape, sorted(places)


def _reduction(operation: str) -> _Rule:
    def rule(builder: _Builder, node: Node) -> None:
        source, shape, dims = _dims(builder, node)
        builder.reduce(
            node.results[0],
            dims,
            shape,
            operation,
            lambda index: builder.element(source, index),
            _name(builder.number, 0),
        )

    return rule


def _variance(builder: _Builder, node: Node) -> None:
    """The mean first, then the squares of what is left of it: no cancellation."""
    source, shape, dims = _dims(builder, node)
    specification = node.results[0]
    total, squares = f"{_name(builder.number, 0)}_total", f"{_name(builder.number, 0)}_squares"
    dtype = specification.dtype
    builder.reduce(
        specification, dims, shape, "sum", lambda index: builder.element(source, index), total
    )
    count: ir.Expr = ir.Literal(1)
    for place in dims:
        count = ir.Binary("*", count, shape[place])
    kept = [place for place in range(len(shape)) if place not in dims]

    def squared(index: Index) -> Scalar:
        mean = Apply(
            "div",
            (Element(total, tuple(index[place] for place in kept), dtype), Number(count, dtype)),
            dtype,
        )
        left = Apply("sub", (builder.element(source, index), mean), dtype)
        return Apply("mul", (left, left), dtype)

    builder.reduce(specification, dims, shape, "sum", squared, squares)
    correction = node.arguments.get("correction") or 0.0
    divisor = ir.Binary("-", count, ir.Literal(int(correction)))
    builder.map(
        node,
        lambda index: Apply("div", (Element(squares, index, dtype), Number(divisor, dtype)), dtype),
    )


_TABLE: Mapping[str, _Rule] = {
    **{name: _pointwise(operation) for name, operation in _POINTWISE.items()},
    **{name: _reduction(operation) for name, operation in _REDUCTIONS.items()},
    **dict.fromkeys(_SAME, _same),
    **dict.fromkeys(
        ("collapse_view", "split_dim", "reshape", "view", "view_copy", "unsqueeze"),
        _reshape,
    ),
    "as_strided": _as_strided,
    "gelu": _gelu,
    "elu": _elu,
    "softplus": _softplus,
    "leaky_relu": _with("leaky_relu", slope="negative_slope"),
    **dict.fromkeys(("clamp", "clamp_min", "clamp_max", "hardtanh"), _clamp),
    "reciprocal": _reciprocal,
    "expm1": _unary(("exp", None), ("sub", 1.0)),
    "log1p": _unary(("add", 1.0), ("log", None)),
    "log10": _unary(("log2", None), ("mul", 0.30102999566398120)),
    "convert_element_type": _convert,
    "full_like": _filled("fill_value"),
    "full": _filled("fill_value"),
    "scalar_tensor": _filled("s"),
    "iota": _iota,
    "var": _variance,
    "broadcast_in_dim": _broadcast_in_dim,
    "transpose": _transpose,
    "squeeze": _squeeze,
    "slice_copy": _slice,
    "select_copy": _select,
    "rev": _rev,
}
