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
    Scan,
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
    "fmod": "mod",
    "isnan": "isnan",
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
            case ir.Function():
                return Number(operand, DType.F32)
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
        toward = (("round", "zero"),) if found.dtype.is_float and dtype.is_integer else ()
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


# ---------------------------------------------------------------- products


def _summed(
    builder: _Builder,
    node: Node,
    over: Sequence[ir.Expr],
    factors: Callable[[Index, Index], tuple[Scalar, Scalar]],
    beside: Callable[[Index], Scalar | None] = lambda index: None,
) -> None:
    """The sum over further axes of a product of two factors, each a function of the result's index
    and of theirs, and something added to it. Half precision is summed in f32."""
    specification = node.results[0]
    own = specification.dtype
    wide = DType.F32 if own in (DType.F16, DType.BF16) else own
    rank = len(specification.shape)
    name = f"{_name(builder.number, 0)}_product"

    def body(index: Index) -> Scalar:
        given = factors(index[:rank], index[rank:])
        operands = (f if f.dtype is wide else Apply("cast", (f,), wide) for f in given)
        return Apply("mul", tuple(operands), wide)

    shape = (*specification.shape, *over)
    dims = range(rank, len(shape))
    builder.reduce(Specification(wide, specification.shape), dims, shape, "sum", body, name)

    def result(index: Index) -> Scalar:
        found: Scalar = Element(name, index, wide)
        added = beside(index)
        if added is not None:
            found = Apply("add", (found, added), wide)
        return found if wide is own else Apply("cast", (found,), own)

    builder.map(node, result)


def _matmul(left: str, right: str, *, added: str = "") -> _Rule:
    """Matrix products, in batches or not, scaled and added to something or not."""

    def rule(builder: _Builder, node: Node) -> None:
        arguments = node.arguments
        for scale in ("alpha", "beta"):
            if arguments.get(scale, ir.Literal(1)) not in (ir.Literal(1), 1, 1.0):
                msg = f"the built-in Designer has no form for {plain(node.operation)} with {scale}"
                raise UsageError(msg)

        def factors(index: Index, inner: Index) -> tuple[Scalar, Scalar]:
            *batch, row, column = index
            return (
                builder.element(arguments[left], (*batch, row, *inner)),
                builder.element(arguments[right], (*batch, *inner, column)),
            )

        def beside(index: Index) -> Scalar | None:
            if not added:
                return None
            own = _broadcast(index, builder.shape(arguments[added]))
            return builder.element(arguments[added], own)

        over = builder.shape(arguments[left])[-1:]
        _summed(builder, node, over, factors, beside)

    return rule


# ---------------------------------------------------------------- scans


def _scan(operation: str) -> _Rule:
    def rule(builder: _Builder, node: Node) -> None:
        source = node.arguments["self"]
        specification = node.results[0]
        own = specification.dtype
        wide = DType.F32 if own in (DType.F16, DType.BF16) else own
        axes = builder.axes(specification.shape)
        if not axes:
            builder.view(node, source, lambda index: index)
            return
        along = axes[_int(node.arguments["dim"]) % len(axes)]
        body = builder.element(source, tuple(axis.ref for axis in axes))
        if body.dtype is not wide:
            body = Apply("cast", (body,), wide)
        name = f"{_name(builder.number, 0)}_running"
        builder.values[name] = Scan(name, axes, wide, along, operation, body)

        def result(index: Index) -> Scalar:
            found = Element(name, index, wide)
            return found if wide is own else Apply("cast", (found,), own)

        builder.map(node, result)

    return rule


# ---------------------------------------------------------------- data as indices


def _fetched(builder: _Builder, source: Any, index: Index, data: Mapping[int, Scalar]) -> Scalar:
    """An operand at an index of which some subscripts are data."""
    names = {place: f"at{builder.number}_{place}" for place in data}
    own = tuple(
        ir.Ref(names[n], ir.NameKind.BINDING) if n in names else each
        for n, each in enumerate(index)
    )
    found = builder.element(source, own)
    assert isinstance(found, Element)
    return attrs.evolve(found, fetched=tuple((names[n], value) for n, value in data.items()))


def _gather(builder: _Builder, node: Node) -> None:
    source, places = node.arguments["self"], node.arguments["index"]
    dim = _int(node.arguments["dim"]) % max(1, len(builder.shape(source)))
    builder.map(
        node,
        lambda index: _fetched(builder, source, index, {dim: builder.element(places, index)}),
    )


def _index_select(builder: _Builder, node: Node) -> None:
    source, places = node.arguments["self"], node.arguments["index"]
    dim = _int(node.arguments["dim"]) % len(builder.shape(source))
    builder.map(
        node,
        lambda index: _fetched(
            builder, source, index, {dim: builder.element(places, (index[dim],))}
        ),
    )


def _embedding(builder: _Builder, node: Node) -> None:
    source, places = node.arguments["weight"], node.arguments["indices"]

    def body(index: Index) -> Scalar:
        place = builder.element(places, index[:-1])
        return _fetched(builder, source, (ir.Literal(0), index[-1]), {0: place})

    builder.map(node, body)


def _indexed(builder: _Builder, node: Node) -> None:
    """`source[None, p, q]`: negative places count from the end. Where the places stand side by
    side, their axes come there, else in front."""
    source, places = node.arguments["self"], node.arguments["indices"]
    shape = builder.shape(source)
    given = {n: each for n, each in enumerate(places) if each is not None}
    if any(builder.graph.specification(each).dtype is DType.BOOL for each in given.values()):
        msg = "the built-in Designer has no form for an index that is a mask"
        raise UsageError(msg)
    wide = max(len(builder.shape(each)) for each in given.values())
    adjacent = max(given) - min(given) == len(given) - 1
    start = min(given) if adjacent else 0

    def body(index: Index) -> Scalar:
        inner = index[start : start + wide]
        rest = iter((*index[:start], *index[start + wide :]))
        own = tuple(ir.Literal(0) if n in given else next(rest) for n in range(len(shape)))
        data = {}
        for n, each in given.items():
            place = builder.element(each, _broadcast(inner, builder.shape(each)))
            below = Apply("lt", (place, Number(0, DType.I64)), DType.BOOL)
            wrapped = Apply("add", (place, Number(shape[n], DType.I64)), DType.I64)
            data[n] = Apply("where", (below, wrapped, place), DType.I64)
        return _fetched(builder, source, own, data)

    builder.map(node, body)


# ---------------------------------------------------------------- windows


@attrs.frozen
class _Window:
    """Where a window stands over an image of some dimensions, an entry of each for each of them."""

    kernel: tuple[ir.Expr, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    def inputs(self, index: Index, inner: Index) -> Index:
        """The element of the image that the place `inner` of window `index` is over."""
        places = zip(index, inner, self.stride, self.padding, self.dilation, strict=True)
        return tuple(_linear((i, s), (k, d), shift=-p) for i, k, s, p, d in places)

    def starts(self, index: Index) -> Index:
        """The first element that window `index` is over, which may lie outside."""
        return self.inputs(index, (ir.Literal(0),) * len(index))


def _linear(*terms: tuple[ir.Expr, int], shift: int = 0) -> ir.Expr:
    total: ir.Expr = ir.Literal(shift)
    for value, factor in terms:
        total = ir.Binary("+", total, ir.Binary("*", value, ir.Literal(factor)))
    return symbolic.simplify(total)


def _ints(value: Any, count: int, usual: Sequence[int] = ()) -> tuple[int, ...]:
    """A list of numbers, one of which stands for all."""
    found = tuple(map(_int, value if isinstance(value, list) else [value])) or tuple(usual)
    return found * count if len(found) == 1 else found


def _convolution(builder: _Builder, node: Node) -> None:
    arguments = node.arguments
    image, weight, bias = (arguments[name] for name in ("input", "weight", "bias"))
    kernel = builder.shape(weight)[2:]
    count, groups = len(kernel), _int(arguments["groups"])
    stride, padding, dilation = (
        _ints(arguments[name], count) for name in ("stride", "padding", "dilation")
    )
    window = _Window(kernel, stride, padding, dilation)
    transposed = bool(arguments["transposed"])
    channels = builder.shape(image)[1]
    inputs, outputs = (
        symbolic.simplify(ir.Binary("//", each, ir.Literal(groups)))
        for each in (channels, node.results[0].shape[1])
    )
    outside = 0 if transposed or any(padding) else None

    def factors(index: Index, inner: Index) -> tuple[Scalar, Scalar]:
        batch, channel, *place = index
        taken, *offset = inner
        group, own = ir.Binary("//", channel, outputs), channel
        source = taken
        if groups > 1:
            source = ir.Binary("+", ir.Binary("*", group, inputs), taken)
        where, spot = None, window.inputs(tuple(place), tuple(offset))
        kernels: Index = (own, taken)
        if transposed:
            spot, where = _spread(window, tuple(place), tuple(offset))
            kernels = (source, ir.Binary("%", channel, outputs) if groups > 1 else channel)
        found = builder.element(image, (batch, source, *spot))
        if outside is not None:
            assert isinstance(found, Element)
            found = attrs.evolve(found, pad=outside, where=where)
        return found, builder.element(weight, (*kernels, *offset))

    def beside(index: Index) -> Scalar | None:
        return None if bias is None else builder.element(bias, index[1:2])

    _summed(builder, node, (inputs, *kernel), factors, beside)


def _spread(window: _Window, place: Index, offset: Index) -> tuple[Index, ir.Expr | None]:
    """The element of the image that a place of a transposed convolution takes through a place of
    the window, and where there is one: between the strides there is none."""
    spot: list[ir.Expr] = []
    where: ir.Expr | None = None
    each = zip(place, offset, window.stride, window.padding, window.dilation, strict=True)
    for own, inner, stride, padding, dilation in each:
        moved = _linear((own, 1), (inner, -dilation), shift=padding)
        if stride > 1:
            rest = ir.Binary("%", moved, ir.Literal(stride))
            hits = ir.Binary("==", rest, ir.Literal(0))
            where = hits if where is None else ir.Binary("and", where, hits)
            moved = ir.Binary("//", moved, ir.Literal(stride))
        spot.append(moved)
    return tuple(spot), where


def _pooled(operation: str) -> _Rule:
    """The maximum or the mean of windows."""

    def rule(builder: _Builder, node: Node) -> None:
        arguments = node.arguments
        source = arguments["self"]
        sizes = arguments["kernel_size"]
        count = len(sizes) if len(sizes) > 1 else int(plain(node.operation).partition("pool")[2][0])
        kernel = _ints(sizes, count)
        stride, padding, dilation = (
            _ints(arguments.get(name, ir.Literal(1)), count, usual)
            for name, usual in (("stride", kernel), ("padding", (0,)), ("dilation", (1,)))
        )
        window = _Window(tuple(map(ir.Literal, kernel)), stride, padding, dilation)
        ceil = bool(arguments["ceil_mode"])
        outside = float("-inf") if operation == "max" else 0
        specification = node.results[0]
        rank = len(specification.shape)
        lead = rank - count
        own = specification.dtype
        wide = DType.F32 if operation == "sum" and own in (DType.F16, DType.BF16) else own

        def body(index: Index) -> Scalar:
            spot = window.inputs(index[lead:rank], index[rank:])
            found = builder.element(source, (*index[:lead], *spot))
            if ceil or any(padding):
                assert isinstance(found, Element)
                found = attrs.evolve(found, pad=outside)
            return found if found.dtype is wide else Apply("cast", (found,), wide)

        shape = (*specification.shape, *window.kernel)
        name = f"{_name(builder.number, 0)}_window"
        reduced = Specification(wide, specification.shape)
        builder.reduce(reduced, range(rank, len(shape)), shape, operation, body, name)

        def result(index: Index) -> Scalar:
            found: Scalar = Element(name, index, wide)
            if operation == "sum":
                image = builder.shape(source)[lead:]
                size = _counted(window, index[lead:], image, arguments, ceil=ceil)
                found = Apply("div", (found, Number(size, wide)), wide)
            return found if wide is own else Apply("cast", (found,), own)

        builder.map(node, result)

    return rule


def _counted(
    window: _Window,
    index: Index,
    image: Sequence[ir.Expr],
    arguments: Mapping[str, Any],
    *,
    ceil: bool,
) -> float | ir.Expr:
    """What a mean over a window is divided by."""
    if arguments.get("divisor_override") is not None:
        return float(_int(arguments["divisor_override"]))
    included = bool(arguments["count_include_pad"])
    total: ir.Expr = ir.Literal(1)
    places = zip(window.starts(index), window.kernel, image, window.padding, strict=True)
    for start, size, extent, padding in places:
        if not ceil and (included or not padding):
            total = ir.Binary("*", total, size)
            continue
        margin = ir.Literal(padding if included else 0)
        end = ir.Binary("min", ir.Binary("+", start, size), ir.Binary("+", extent, margin))
        first = start if included else ir.Binary("max", start, ir.Literal(0))
        total = ir.Binary("*", total, ir.Binary("-", end, first))
    value = symbolic.constant_value(total)
    return total if value is None else float(value)


def _constant_pad(builder: _Builder, node: Node) -> None:
    source = node.arguments["self"]
    given = [_int(each) for each in node.arguments["pad"]]
    rank = len(builder.shape(source))
    value = builder.element(node.arguments["value"], ())
    if not isinstance(value, Number) or isinstance(value.value, ir.Expr):
        msg = "the built-in Designer has no form for padding with an element"
        raise UsageError(msg)
    before = [0] * rank
    for place, number in enumerate(given[::2]):
        before[rank - 1 - place] = number

    def body(index: Index) -> Scalar:
        spot = tuple(_linear((own, 1), shift=-n) for own, n in zip(index, before, strict=True))
        found = builder.element(source, spot)
        assert isinstance(found, Element)
        return attrs.evolve(found, pad=value.value)

    builder.map(node, body)


def _cat(builder: _Builder, node: Node) -> None:
    """Each part where its indices are, told apart by the index."""
    given = node.arguments["tensors"]
    specification = node.results[0]
    dim = _int(node.arguments["dim"]) % len(specification.shape)
    dtype = specification.dtype

    def body(index: Index) -> Scalar:
        ends: list[ir.Expr] = [ir.Literal(0)]
        for each in given:
            ends.append(symbolic.simplify(ir.Binary("+", ends[-1], builder.shape(each)[dim])))
        parts = []
        for each, start in zip(given, ends, strict=False):
            spot = symbolic.simplify(ir.Binary("-", index[dim], start))
            part = builder.element(each, (*index[:dim], spot, *index[dim + 1 :]))
            if isinstance(part, Element):
                part = attrs.evolve(part, pad=0, ignored=True)
            parts.append(part)
        found = parts.pop()
        for part, end in zip(reversed(parts), reversed(ends[1:-1]), strict=True):
            operands = (Number(index[dim], DType.I64), Number(end, DType.I64))
            found = Apply("where", (Apply("lt", operands, DType.BOOL), part, found), dtype)
        return found

    builder.map(node, body)


def _arg(operation: str) -> _Rule:
    """The first index of the largest or the smallest: NaN is both."""

    def rule(builder: _Builder, node: Node) -> None:
        source = node.arguments["self"]
        shape = builder.shape(source)
        if node.arguments["dim"] is None and len(shape) != 1:
            msg = f"the built-in Designer has no form for {plain(node.operation)} of all elements"
            raise UsageError(msg)
        dim = _int(node.arguments["dim"] or ir.Literal(0)) % len(shape)
        dtype = builder.graph.specification(source).dtype
        kept = (*shape[:dim], *shape[dim + 1 :])
        best, first = (f"{_name(builder.number, 0)}_{each}" for each in ("best", "first"))
        read = lambda index: builder.element(source, index)  # noqa: E731
        builder.reduce(Specification(dtype, kept), [dim], shape, operation, read, best)

        def places(index: Index) -> Scalar:
            here = read(index)
            found = Element(best, (*index[:dim], *index[dim + 1 :]), dtype)
            hit: Scalar = Apply("eq", (here, found), DType.BOOL)
            if dtype.is_float:
                missing = Apply("isnan", (here,), DType.BOOL)
                hit = Apply("logical_or", (hit, missing), DType.BOOL)
            numbers = (Number(index[dim], DType.I64), Number(shape[dim], DType.I64))
            return Apply("where", (hit, *numbers), DType.I64)

        builder.reduce(Specification(DType.I64, kept), [dim], shape, "min", places, first)
        rank = len(node.results[0].shape)
        builder.map(
            node,
            lambda index: Element(
                first, index if rank == len(kept) else (*index[:dim], *index[dim + 1 :]), DType.I64
            ),
        )

    return rule


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
    "cumsum": _scan("sum"),
    "cumprod": _scan("prod"),
    "gather": _gather,
    "index_select": _index_select,
    "embedding": _embedding,
    **dict.fromkeys(("index", "_unsafe_index"), _indexed),
    "convolution": _convolution,
    **{f"max_pool{n}d_with_indices": _pooled("max") for n in (2, 3)},
    **{f"avg_pool{n}d": _pooled("sum") for n in (2, 3)},
    "constant_pad_nd": _constant_pad,
    "cat": _cat,
    "argmax": _arg("max"),
    "argmin": _arg("min"),
    "mm": _matmul("self", "mat2"),
    "bmm": _matmul("self", "mat2"),
    "addmm": _matmul("mat1", "mat2", added="self"),
    "baddbmm": _matmul("batch1", "batch2", added="self"),
    "broadcast_in_dim": _broadcast_in_dim,
    "transpose": _transpose,
    "squeeze": _squeeze,
    "slice_copy": _slice,
    "select_copy": _select,
    "rev": _rev,
}
