"""`Builder`, which collects the values of a graph, and helpers for the rules of operations."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from sketchc.agents.autosketch.conditions import requirements
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
    row_major,
)
from sketchc.base import records
from sketchc.base.diagnostics import UsageError, refuse
from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic
from sketchc.ir.walk import parts


def plain(operation: str) -> str:
    """The name of an operation without the prefix `prims::`."""
    return operation.removeprefix("prims::")


#: A constant tensor has a form where it has at most so many stretches of equal values.
_MOST_STRETCHES = 64


def _chosen(made: Made, index: Index) -> Scalar:
    """The element of the constant tensor `made` at `index`: a binary search, in nested `where`s,
    by the row-major number of the index."""
    values, dtype = made.values, made.specification.dtype
    changes = [place for place in range(1, len(values)) if values[place] != values[place - 1]]
    if values and not changes:
        return Number(values[0], dtype)
    if not 0 < len(changes) < _MOST_STRETCHES:
        refuse(
            "the built-in Designer has no form for tensors that the task makes for itself with no "
            f"value, or with more than {_MOST_STRETCHES} stretches of equal values"
        )
    place = Number(symbolic.simplify(row_major(index, made.specification.shape)), DType.I64)

    def between(first: int, end: int) -> Scalar:
        within = changes[bisect_right(changes, first) : bisect_left(changes, end)]
        if not within:
            return Number(values[first], dtype)
        middle = within[len(within) // 2]
        before = Apply("lt", (place, Number(middle, DType.I64)), DType.BOOL)
        return Apply("where", (before, between(first, middle), between(middle, end)), dtype)

    return between(0, len(values))


class Builder:
    """Collects the values of a graph; `number` is that of the node whose rule is running."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.number = 0
        self.values: dict[str, Value] = {}
        #: extents that the task refuses to have below 1
        self.filled: list[ir.Expr] = []

    def loops(self) -> Loops:
        """The loops of all values, with one more value for each output, and conditions on sizes."""
        outputs = [t.name for t in self.graph.declared.tensors if t.role is ir.Role.OUT]
        found = []
        for tensor, use in zip(outputs, self.graph.returned, strict=True):
            axes = self.axes(self.graph.specification(use).shape)
            body = self.element(use, tuple(axis.ref for axis in axes))
            name = f"{tensor.lower()}_value"
            self.values[name] = Map(name, axes, body.dtype, body)
            found.append((tensor, name))
        declared = self.graph.declared
        declared = records.evolve(
            declared, requires=(*declared.requires, *requirements(declared, self.filled))
        )
        return Loops(declared, self.values, tuple(found))

    def spelled(self, extent: ir.Expr) -> ir.Expr:
        """The name that the sketch has for an extent, where it has one: proofs take it as one
        number, which no sum in its place is."""
        lets = (let for let in self.graph.declared.lets if symbolic.equal(let.value, extent))
        let = next(lets, None)
        return extent if let is None else ir.Ref(let.name, ir.NameKind.LET)

    # ------------------------------------------------------------ operands

    def axes(self, shape: Sequence[ir.Expr], letter: str = "i") -> tuple[Axis, ...]:
        """An axis for each extent of `shape`, named after the number of the current node."""
        return tuple(
            Axis(f"{letter}{self.number}_{place}", extent) for place, extent in enumerate(shape)
        )

    def shape(self, operand: Any) -> tuple[ir.Expr, ...]:
        """The extents of an operand; a number has none."""
        return self.graph.specification(operand).shape if isinstance(operand, Use | Made) else ()

    def element(self, operand: Any, index: Index) -> Scalar:
        """The scalar of an operand at an index; a number is the same at every index."""
        match operand:
            case Use() if param := self.graph.param(operand):
                return Number(ir.Ref(param.name, ir.NameKind.PARAM), param.dtype)
            case Use(parameter=name) if name:
                return Element(name, index, self.graph.specification(operand).dtype)
            case Use(node, of):
                name = value_name(node, of)
                if name not in self.values:
                    operation = plain(self.graph.nodes[node].operation)
                    refuse(f"the built-in Designer has no form for result {of + 1} of {operation}")
                return Element(name, index, self.graph.specification(operand).dtype)
            case Made():
                return _chosen(operand, index)
            case bool():
                return Number(operand, DType.BOOL)
            case float():
                return Number(operand, DType.F32)
            case ir.Literal(value):
                return Number(value, DType.I64)
            case ir.Function() | ir.Binary() if any(map(_is_real, parts(operand))):
                return Number(operand, DType.F32)
            case _:
                return Number(operand, DType.I64)

    # ------------------------------------------------------------ what a node gives

    def map(self, node: Node, body: Callable[[Index], Scalar], of: int = 0) -> None:
        """Define result `of` of a node as the map of `body` over its index."""
        specification = node.results[of]
        axes = self.axes(specification.shape)
        name = value_name(self.number, of)
        scalar = body(tuple(axis.ref for axis in axes))
        self.values[name] = Map(name, axes, specification.dtype, scalar)

    def view(self, node: Node, source: Any, index: Callable[[Index], Index]) -> None:
        """Define the result of a node at an index `own` as `source` at `index(own)`."""
        self.map(node, lambda own: self.element(source, index(own)))

    def named(self, node: Node, name: str, of: int = 0) -> None:
        """Define result `of` of a node as the value called `name`."""
        dtype = node.results[of].dtype
        self.map(node, lambda own: Element(name, own, dtype), of)

    def reduce(
        self,
        specification: Specification,
        dims: Sequence[int],
        shape: Sequence[ir.Expr],
        operation: str,
        body: Callable[[Index], Scalar],
        name: str,
    ) -> None:
        """Define the value `name`: `body`, of extents `shape`, reduced over its axes `dims`."""
        kept = [place for place in range(len(shape)) if place not in dims]
        axes = tuple(Axis(f"i{name}_{n}", shape[place]) for n, place in enumerate(kept))
        over = tuple(Axis(f"r{name}_{n}", shape[place]) for n, place in enumerate(dims))
        index: list[ir.Expr] = [ir.Literal(0)] * len(shape)
        for axis, place in (*zip(axes, kept, strict=True), *zip(over, dims, strict=True)):
            index[place] = axis.ref
        if operation == "max" and specification.dtype is DType.I64:
            # A sketch has no number for the least of 64 bits, where the largest one begins: it is
            # the complement of the least of complements.
            least = f"{name}_complement"
            self.reduce(specification, dims, shape, "min", lambda i: _complement(body(i)), least)
            found = Element(least, tuple(axis.ref for axis in axes), DType.I64)
            self.values[name] = Map(name, axes, DType.I64, _complement(found))
            return
        scalar = body(tuple(index))
        self.values[name] = Reduction(name, axes, specification.dtype, over, operation, scalar)


def _is_real(expression: ir.Expr) -> bool:
    match expression:
        case ir.Function() | ir.Literal(float()):
            return True
        case _:
            return False


def _complement(scalar: Scalar) -> Scalar:
    return Apply("sub", (Number(-1, DType.I64), scalar), DType.I64)


def value_name(node: int, of: int) -> str:
    """The name of the value that is result `of` of node number `node`."""
    return f"v{node}" + (f"_{of}" if of else "")


Rule = Callable[[Builder, Node], None]


def place_if_found(here: Scalar, best: Scalar, places: Index, shape: Sequence[ir.Expr]) -> Scalar:
    """The row-major number of the index `places` where its element `here` equals `best` or is NaN;
    elsewhere the number of elements, which is one behind the last."""
    hit: Scalar = Apply("eq", (here, best), DType.BOOL)
    if best.dtype.is_float:
        hit = Apply("logical_or", (hit, Apply("isnan", (here,), DType.BOOL)), DType.BOOL)
    numbers = (symbolic.simplify(row_major(places, shape)), symbolic.product(shape))
    return Apply("where", (hit, *(Number(each, DType.I64) for each in numbers)), DType.I64)


def broadcast(index: Index, shape: Sequence[ir.Expr]) -> Index:
    """The index of an operand of extents `shape`, broadcast (right-aligned) to that of `index`."""
    own = index[len(index) - len(shape) :]
    return tuple(
        ir.Literal(0) if e == ir.Literal(1) else i for i, e in zip(own, shape, strict=True)
    )


def integer(value: Any) -> int:
    """The value of a constant integer. Raises `UsageError` where it depends on the sizes."""
    if isinstance(value, ir.Literal):
        return int(value.value)
    if isinstance(value, int):
        return value
    raise UsageError("the built-in Designer has no form for an axis that follows the sizes")


def alike(operands: Sequence[Scalar]) -> list[Scalar]:
    """The operands; params, and beside a float tensor all numbers, get the first tensor's type."""
    dtypes = [o.dtype for o in operands if not isinstance(o, Number) and o.dtype is not DType.BOOL]
    if not dtypes:
        return list(operands)
    operands = [converted(o, dtypes[0]) if is_param(o) else o for o in operands]
    if not dtypes[0].is_float:
        return list(operands)
    return [as_float(o, dtypes[0]) if isinstance(o, Number) else o for o in operands]


def is_param(scalar: Scalar) -> bool:
    """Whether a scalar is a param: a number that forward takes, which has a type of its own."""
    value = scalar.value if isinstance(scalar, Number) else None
    return isinstance(value, ir.Ref) and value.kind is ir.NameKind.PARAM


def as_float(number: Number, dtype: DType) -> Number:
    """The number in the float type `dtype`."""
    value = number.value
    known = symbolic.constant_value(value) if isinstance(value, ir.Expr) else value
    if known is None or isinstance(known, bool):
        return attrs.evolve(number, dtype=dtype)
    return Number(float(known), dtype)


def summed_in(dtype: DType) -> DType:
    """The accumulator type of sums of `dtype`: f32 for half precision, else `dtype`."""
    return DType.F32 if dtype in (DType.F16, DType.BF16) else dtype


def converted(scalar: Scalar, dtype: DType) -> Scalar:
    """The scalar, cast to `dtype` unless it has that type."""
    return scalar if scalar.dtype is dtype else Apply("cast", (scalar,), dtype)


def linear(*terms: tuple[ir.Expr, int], shift: int = 0) -> ir.Expr:
    """`shift` plus the sum of value * factor over the `terms`, which are (value, factor)."""
    total: ir.Expr = ir.Literal(shift)
    for value, factor in terms:
        total = ir.Binary("+", total, ir.Binary("*", value, ir.Literal(factor)))
    return symbolic.simplify(total)
