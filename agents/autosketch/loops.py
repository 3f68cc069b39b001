"""The second stage of the built-in Designer: each value as a function of its index.

A `Map` says what stands at an index in terms of other values at indices; a `Reduction` combines a
map over further indices. Views are index maps and leave no trace but subscripts: a reshape, a
permutation or a broadcast is a map whose body is one element of its source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import assert_never

import attrs

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic
from sketchc.ir.show import show
from sketchc.ir.walk import names, substitute

Index = tuple[ir.Expr, ...]


@attrs.frozen
class Element:
    """The element of a tensor or value at an index. `pad`: what stands outside of it, or where the
    condition `where` fails; without one, the index lies inside. `ignored`: nobody looks at what
    stands outside."""

    source: str
    index: Index
    dtype: DType
    pad: float | None = None
    where: ir.Expr | None = None
    ignored: bool = False


@attrs.frozen
class Number:
    """A number: of Python, or a formula over sizes and indices."""

    value: int | float | bool | ir.Expr
    dtype: DType


@attrs.frozen
class Apply:
    """An operation of the op table on scalars."""

    operation: str
    operands: tuple[Scalar, ...]
    dtype: DType
    attributes: tuple[tuple[str, object], ...] = ()


Scalar = Element | Number | Apply


@attrs.frozen
class Axis:
    """An index with its extent: 0 <= name < extent."""

    name: str
    extent: ir.Expr

    @property
    def ref(self) -> ir.Ref:
        """The index as an expression."""
        return ir.Ref(self.name, ir.NameKind.LOOP)


@attrs.frozen
class Map:
    """`body` at each index of `axes`."""

    name: str
    axes: tuple[Axis, ...]
    dtype: DType
    body: Scalar


@attrs.frozen
class Reduction:
    """`body` combined over the axes `over`, at each index of `axes`; `operation` is "sum", "prod",
    "max" or "min"."""

    name: str
    axes: tuple[Axis, ...]
    dtype: DType
    over: tuple[Axis, ...]
    operation: str
    body: Scalar


Value = Map | Reduction


@attrs.frozen
class Loops:
    """All values by name, in an order in which they can be computed; `outputs` are (tensor of the
    task, value)."""

    declared: ir.Sketch
    values: Mapping[str, Value]
    outputs: tuple[tuple[str, str], ...]

    def lines(self) -> Iterator[str]:
        """The values as text."""
        for value in self.values.values():
            index = ", ".join(f"{a.name}<{show(a.extent)}" for a in value.axes)
            body = text(value.body)
            if isinstance(value, Reduction):
                over = ", ".join(f"{a.name}<{show(a.extent)}" for a in value.over)
                body = f"{value.operation}[{over}] {body}"
            yield f"{value.name}[{index}] = {body}"
        for tensor, name in self.outputs:
            yield f"{tensor} = {name}"


def text(scalar: Scalar) -> str:
    """One line."""
    match scalar:
        case Element(source, index, _, pad):
            outside = "" if pad is None else f" else {pad}"
            return f"{source}[{', '.join(map(show, index))}{outside}]"
        case Number(value):
            return show(value) if isinstance(value, ir.Expr) else repr(value)
        case Apply(operation, operands):
            return f"{operation}({', '.join(map(text, operands))})"
        case _:
            assert_never(scalar)


def parts(scalar: Scalar) -> Iterator[Scalar]:
    """The scalar and all below it; what stands several times comes as often."""
    yield scalar
    if isinstance(scalar, Apply):
        for operand in scalar.operands:
            yield from parts(operand)


def elements(scalar: Scalar) -> Iterator[Element]:
    """The elements in it."""
    return (part for part in parts(scalar) if isinstance(part, Element))


def at(scalar: Scalar, index: Mapping[str, ir.Expr]) -> Scalar:
    """The scalar with indices replaced."""
    match scalar:
        case Element(index=own):
            where = None if scalar.where is None else substitute(scalar.where, index)
            return attrs.evolve(scalar, index=tuple(substitute(e, index) for e in own), where=where)
        case Number(value, dtype):
            return Number(substitute(value, index), dtype) if isinstance(value, ir.Expr) else scalar
        case Apply():
            operands = tuple(at(operand, index) for operand in scalar.operands)
            return attrs.evolve(scalar, operands=operands)
        case _:
            assert_never(scalar)


def resolved(loops: Loops, scalar: Scalar, axes: Mapping[str, ir.Expr]) -> Scalar:
    """The scalar in terms of the task's tensors and of reductions: maps are replaced by their
    bodies. A map that is read outside of its extents stays, but where it only orders the axes of
    its source. `axes` are the extents of all indices."""
    match scalar:
        case Element(source, index, dtype, pad):
            index = tuple(simplified(expression, axes) for expression in index)
            value = loops.values.get(source)
            here = attrs.evolve(scalar, index=index)
            if not isinstance(value, Map):
                return here
            replaced = dict(zip((axis.name for axis in value.axes), index, strict=True))
            body = value.body
            if pad is None or scalar.ignored:
                inner = resolved(loops, at(body, replaced), axes)
                return inner if pad is None else _padded(inner)
            if not isinstance(body, Element) or body.pad is not None or not _orders(value, body):
                return here
            moved = attrs.evolve(at(body, replaced), dtype=dtype, pad=pad, where=scalar.where)
            return resolved(loops, moved, axes)
        case Number(value, dtype):
            return Number(simplified(value, axes), dtype) if isinstance(value, ir.Expr) else scalar
        case Apply():
            operands = tuple(resolved(loops, each, axes) for each in scalar.operands)
            return attrs.evolve(scalar, operands=operands)
        case _:
            assert_never(scalar)


def _padded(scalar: Scalar) -> Scalar:
    """A scalar of which nobody looks at what stands outside."""
    match scalar:
        case Element(pad=None):
            return attrs.evolve(scalar, pad=0, ignored=True)
        case Apply(operands=operands):
            return attrs.evolve(scalar, operands=tuple(map(_padded, operands)))
        case _:
            return scalar


def _orders(value: Map, body: Element) -> bool:
    """Whether the map is its source with axes in another order, or with axes of 1."""
    left = [axis.ref for axis in value.axes if axis.extent != ir.Literal(1)]
    held = [each for each in body.index if each != ir.Literal(0)]
    return len(held) == len(left) and all(each in held for each in left)


# ---------------------------------------------------------------- indices


def simplified(expression: ir.Expr, axes: Mapping[str, ir.Expr]) -> ir.Expr:
    """The expression with digits of mixed radix taken apart: (i*N + j) // N is i where j < N."""
    match expression:
        case ir.Binary("//" | "%" as operator, left, right):
            left, right = simplified(left, axes), simplified(right, axes)
            return _divided(operator, left, right, axes)
        case ir.Binary(operator, left, right):
            return _folded(operator, simplified(left, axes), simplified(right, axes))
        case ir.Ref(name) if axes.get(name) == ir.Literal(1):
            return ir.Literal(0)
        case _:
            return expression


def _folded(operator: str, left: ir.Expr, right: ir.Expr) -> ir.Expr:
    """A sum, difference or product without what changes nothing. (The normal form would write a
    remainder as a difference.)"""
    match operator, left, right:
        case ("+", ir.Literal(0), other) | ("+" | "-", other, ir.Literal(0)):
            return other
        case ("*", ir.Literal(1), other) | ("*", other, ir.Literal(1)):
            return other
        case _:
            return symbolic.simplify(ir.Binary(operator, left, right))


def _divided(operator: str, left: ir.Expr, right: ir.Expr, axes: Mapping[str, ir.Expr]) -> ir.Expr:
    """`left // right` or `left % right`; the terms of `left` that `right` divides are split off."""
    whole, rest = _split(left, right)
    if below(rest, right, axes):
        found = whole if operator == "//" else rest
    elif operator == "%":
        found = ir.Binary("%", rest, right)
    else:
        found = ir.Binary("+", whole, ir.Binary("//", rest, right))
    return symbolic.simplify(found)


def _split(left: ir.Expr, right: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
    """`left` as whole * right + rest."""
    whole: list[ir.Expr] = []
    rest: list[ir.Expr] = []
    for monomial, factor in symbolic.normalize(left).items():
        term = symbolic.rebuild({monomial: factor})
        quotient = symbolic.simplify(ir.Binary("//", term, right))
        exact = symbolic.equal(ir.Binary("*", quotient, right), term)
        (whole if exact else rest).append(quotient if exact else term)
    return _sum(whole), _sum(rest)


def _sum(terms: Sequence[ir.Expr]) -> ir.Expr:
    total: ir.Expr = ir.Literal(0)
    for term in terms:
        total = ir.Binary("+", total, term)
    return symbolic.simplify(total)


def below(expression: ir.Expr, bound: ir.Expr, axes: Mapping[str, ir.Expr]) -> bool:
    """Whether 0 <= expression < bound at all indices within their extents, as far as its sign and
    its largest value show it (extents are at least 1 where there is an index)."""
    polynomial = symbolic.normalize(expression)
    if any(factor < 0 for factor in polynomial.values()):
        return False
    if not names(expression) <= axes.keys():
        return False
    most = {name: ir.Binary("-", extent, ir.Literal(1)) for name, extent in axes.items()}
    largest = substitute(expression, most)
    room = symbolic.constant_value(ir.Binary("-", bound, largest))
    return room is not None and room >= 1
