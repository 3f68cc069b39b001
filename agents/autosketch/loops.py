"""The second stage of the built-in Designer: each value as a function of its index.

A `Map` says what stands at an index in terms of other values at indices; a `Reduction` combines a
map over further indices. Views are index maps and leave no trace but subscripts: a reshape, a
permutation or a broadcast is a map whose body is one element of its source.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import assert_never

import attrs

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic
from sketchc.ir.show import show
from sketchc.ir.walk import changed, names, substitute

Index = tuple[ir.Expr, ...]

#: The largest denominator of a fraction that an index is multiplied by.
_MOST_DENOMINATOR = 64


@attrs.frozen
class Element:
    """The element of a tensor or value at an index. `pad`: the value outside of the source, or
    where the condition `where` fails; without one, the index lies inside. `ignored`: the value
    outside is never used. `fetched`: names in the index whose values are data, with these values.
    """

    source: str
    index: Index
    dtype: DType
    pad: float | None = None
    where: ir.Expr | None = None
    ignored: bool = False
    fetched: tuple[tuple[str, Scalar], ...] = ()


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
    """`body` at each index of `axes`. `stored`: memory holds the map for those that read it."""

    name: str
    axes: tuple[Axis, ...]
    dtype: DType
    body: Scalar
    stored: bool = False


@attrs.frozen
class Reduction:
    """`body` combined over the axes `over`, at each index of `axes`; `operation` is "sum", "prod",
    "max" or "min". `part`: one of `axes`, of a constant extent n, at whose index only every n-th
    block of the terms counts, from the block of that number on; which terms are a block is left to
    the template."""

    name: str
    axes: tuple[Axis, ...]
    dtype: DType
    over: tuple[Axis, ...]
    operation: str
    body: Scalar
    part: Axis | None = None


@attrs.frozen
class Scan:
    """At each index of `axes` the sum or product ("sum", "prod") of `body` from the start of the
    axis `along` up to there."""

    name: str
    axes: tuple[Axis, ...]
    dtype: DType
    along: Axis
    operation: str
    body: Scalar


@attrs.frozen
class Best:
    """At each index of `axes` the n-th largest, or smallest, of `body` along the axis `over`, where
    n, from 0, is the index of the axis `along` among them; `places`: its index along `over`."""

    name: str
    axes: tuple[Axis, ...]
    dtype: DType
    along: Axis
    over: Axis
    largest: bool
    places: bool
    body: Scalar


@attrs.frozen
class Rank:
    """At each index of `axes` the place of `body` among all those along the axis `along`, from 0:
    how many come before it in ascending or `descending` order, in which NaN is the largest, and of
    equal ones the first comes first."""

    name: str
    axes: tuple[Axis, ...]
    dtype: DType
    along: Axis
    descending: bool
    body: Scalar


@attrs.frozen
class Scatter:
    """`base` at each index of `axes`, and then, for each index of `over` in order, `body` there
    where `place` says: instead of what stands there ("set"), or combined with it ("add", "mul",
    "max", "min"). `fetched`: names in the place whose value is data. Without a base each index of
    `axes` is the place of just one of `over`."""

    name: str
    axes: tuple[Axis, ...]
    dtype: DType
    base: Scalar | None
    over: tuple[Axis, ...]
    place: Index
    fetched: tuple[tuple[str, Scalar], ...]
    operation: str
    body: Scalar


@attrs.frozen
class Stepped:
    """A state of a loop, before and after each step, at an index of `axes` behind a further index:
    0 for the initial value `first`, s + 1 for the value after step s. `body` is that value in terms
    of the index of `step`, at which, as the further index, it reads the state before the step.
    Without a `first` it is no state but a result of each step, at the step's own index."""

    name: str
    axes: tuple[Axis, ...]
    dtype: DType
    step: Axis
    first: Scalar | None
    body: Scalar

    @property
    def ahead(self) -> int:
        """How far the further index of a step's result is above the step's: 1 for a state."""
        return 0 if self.first is None else 1


Value = Map | Reduction | Scan | Best | Rank | Scatter | Stepped


def computed_from(value: Value) -> tuple[Scalar, ...]:
    """The scalars that a value is computed from."""
    if isinstance(value, Scatter):
        based = () if value.base is None else (value.base,)
        return *based, value.body, *(each for _, each in value.fetched)
    if isinstance(value, Stepped):
        return (value.body,) if value.first is None else (value.first, value.body)
    return (value.body,)


def combined_over(value: Value) -> tuple[Axis, ...]:
    """The axes over which a value combines or chooses."""
    match value:
        case Reduction(over=over):
            return over
        case Scan(along=along) | Rank(along=along):
            return (along,)
        case Best(over=one):
            return (one,)
        case _:
            return ()


def operations(value: Value, sizes: Mapping[str, int]) -> int:
    """How many operations an element of a value takes; `sizes` has this number for each value that
    is computed where it is read."""
    found = itertools.chain.from_iterable(map(parts, computed_from(value)))
    return sum(1 + (sizes.get(e.source, 0) if isinstance(e, Element) else 0) for e in found)


def is_expanded(value: Value | None) -> bool:
    """Whether a value is computed where it is read."""
    return isinstance(value, Map) and not value.stored


def is_product(value: Value) -> bool:
    """Whether a value is as expensive as a matrix product: a sum of products of two factors, each
    of which lacks an axis of the result."""
    match value:
        case Reduction(operation="sum", body=Apply("mul", operands)):
            wide = (axis for axis in value.axes if axis.extent != ir.Literal(1))
            axes = {axis.name for axis in wide if axis != value.part}
            used = [{n for e in elements(each) for n in names_in(e.index)} for each in operands]
            return all(axes - names for names in used)
        case _:
            return False


@attrs.frozen
class Loops:
    """All values by name, in an order in which they can be computed; `outputs` are (tensor of the
    task, value)."""

    declared: ir.Sketch
    values: Mapping[str, Value]
    outputs: tuple[tuple[str, str], ...]

    def shape(self, source: str) -> tuple[ir.Expr, ...]:
        """The extents of a value, or of a tensor of the task."""
        if (value := self.values.get(source)) is not None:
            return tuple(axis.extent for axis in value.axes)
        return self.declared.tensor(source).extents

    def lines(self) -> Iterator[str]:
        """The values as text."""
        for value in self.values.values():
            index = ranges(value.axes)
            body = text(value.body)
            if isinstance(value, Reduction):
                body = f"{value.operation}[{ranges(value.over)}] {body}"
            elif isinstance(value, Scan):
                body = f"running {value.operation}[{value.along.name}] {body}"
            elif isinstance(value, Best):
                which = "largest" if value.largest else "smallest"
                what = "place of the " if value.places else ""
                body = f"{what}{which}[{ranges([value.over])}] {body}"
            elif isinstance(value, Rank):
                order = "descending" if value.descending else "ascending"
                body = f"{order} place[{value.along.name}] {body}"
            elif isinstance(value, Scatter):
                place = ", ".join(map(show, value.place))
                data = "".join(f", {name} = {text(each)}" for name, each in value.fetched)
                base = "" if value.base is None else f"{text(value.base)}; "
                body = f"{base}[{place}] {value.operation} {body}"
                body += f" for each {ranges(value.over)}{data}"
            elif isinstance(value, Stepped):
                first = "" if value.first is None else f"{text(value.first)}; "
                body = f"{first}behind each of {ranges([value.step])} {body}"
            yield f"{value.name}[{index}] = {body}"
        for tensor, name in self.outputs:
            yield f"{tensor} = {name}"


def ranges(axes: Iterable[Axis]) -> str:
    """The axes as text, such as `i<M, j<N`."""
    return ", ".join(f"{axis.name}<{show(axis.extent)}" for axis in axes)


def text(scalar: Scalar) -> str:
    """A scalar as one line of text."""
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
    """The scalar and all scalars below it, in pre-order; repeated ones are yielded as often."""
    yield scalar
    for operand in below_it(scalar):
        yield from parts(operand)


def below_it(scalar: Scalar) -> tuple[Scalar, ...]:
    """The scalars directly below a scalar: its operands, or the data in its index."""
    match scalar:
        case Apply(operands=operands):
            return operands
        case Element(fetched=fetched):
            return tuple(value for _, value in fetched)
        case _:
            return ()


def elements(scalar: Scalar) -> Iterator[Element]:
    """The elements that a scalar is computed from."""
    return (part for part in parts(scalar) if isinstance(part, Element))


def names_below(scalar: Scalar) -> set[str]:
    """The names in all indices, conditions and numbers of a scalar."""
    found: set[str] = set()
    for part in parts(scalar):
        match part:
            case Element(index=index, where=where):
                found |= names_in(index)
                found |= set() if where is None else names(where)
            case Number(value) if isinstance(value, ir.Expr):
                found |= names(value)
    return found


def at(scalar: Scalar, index: Mapping[str, ir.Expr]) -> Scalar:
    """The scalar with the names that are keys of `index` replaced by their expressions."""
    match scalar:
        case Element(index=own):
            where = None if scalar.where is None else substitute(scalar.where, index)
            fetched = tuple((name, at(value, index)) for name, value in scalar.fetched)
            moved = tuple(substitute(e, index) for e in own)
            return attrs.evolve(scalar, index=moved, where=where, fetched=fetched)
        case Number(value, dtype):
            return Number(substitute(value, index), dtype) if isinstance(value, ir.Expr) else scalar
        case Apply():
            operands = tuple(at(operand, index) for operand in scalar.operands)
            return attrs.evolve(scalar, operands=operands)
        case _:
            assert_never(scalar)


def resolved(loops: Loops, scalar: Scalar, axes: Mapping[str, ir.Expr]) -> Scalar:
    """The scalar in terms of the task's tensors and of values that memory holds: other maps are
    replaced by their bodies. A map that may be read outside of its extents stays, unless it only
    permutes the axes of its source. `axes` are the extents of all indices."""
    match scalar:
        case Element(source, _, dtype, pad):
            here = looked_up(loops, scalar, axes)
            index = here.index
            value = loops.values.get(source)
            if not isinstance(value, Map) or value.stored:
                return here
            replaced = dict(zip((axis.name for axis in value.axes), index, strict=True))
            body = value.body
            if pad is None or scalar.ignored:
                moved = _fetching(at(body, replaced), here.fetched)
                if moved is None:
                    return here
                inner = resolved(loops, moved, axes)
                return inner if pad is None else _padded(inner)
            if not isinstance(body, Element) or body.pad is not None or not _orders(value, body):
                return here
            moved = _fetching(at(body, replaced), here.fetched)
            assert isinstance(moved, Element)
            moved = attrs.evolve(moved, dtype=dtype, pad=pad, where=scalar.where)
            return resolved(loops, moved, axes)
        case Number(value, dtype):
            return Number(simplified(value, axes), dtype) if isinstance(value, ir.Expr) else scalar
        case Apply():
            operands = tuple(resolved(loops, each, axes) for each in scalar.operands)
            return _simpler(attrs.evolve(scalar, operands=operands))
        case _:
            assert_never(scalar)


def _simpler(scalar: Apply) -> Scalar:
    """The scalar, or an equal one of fewer operations: without factors of 1, and of conditions:
    masks of 1 and 0 that are compared with 0, and masks of which one part holds everywhere; or one
    that keeps its digits: elu(x) + 1, as linear attention has it, is exp(x) below 0, where the sum
    would lose them."""
    match scalar:
        case Apply("mul", (Number(1), x) | (x, Number(1))) | Apply("div", (x, Number(1))) if (
            x.dtype is scalar.dtype and scalar.dtype.is_float
        ):
            return x
        case Apply(
            "add",
            (Apply("elu", (x,), attributes=(("alpha", 1),)), Number(1) as one)
            | (Number(1) as one, Apply("elu", (x,), attributes=(("alpha", 1),))),
        ):
            dtype = scalar.dtype
            above = Apply("gt", (x, Number(0.0, dtype)), DType.BOOL)
            parts_of = above, Apply("add", (x, one), dtype), Apply("exp", (x,), dtype)
            return Apply("where", parts_of, dtype)
        case Apply("logical_and", (condition, Number(True)) | (Number(True), condition)):
            return condition
        case Apply("logical_not", (Apply("logical_not", (condition,)),)):
            return condition
        case Apply(
            "eq" | "ne" as operation,
            (Apply("where", (condition, Number(one), Number(other))), Number(value)),
        ) if (one, other, value) == (1, 0, 0):
            negated = Apply("logical_not", (condition,), scalar.dtype)
            return condition if operation == "ne" else _simpler(negated)
        case Apply("where", (Apply("logical_not", (condition,)), one, other)):
            return attrs.evolve(scalar, operands=(condition, other, one))
    return scalar


def looked_up(loops: Loops, element: Element, axes: Mapping[str, ir.Expr]) -> Element:
    """The element with a simplified index, in which data that is a formula over indices stands."""
    left = []
    known: dict[str, ir.Expr] = {}
    for name, value in element.fetched:
        found = resolved(loops, value, axes)
        number = as_index(found)
        if number is None:
            left.append((name, found))
        else:
            known[name] = number
    index = tuple(simplified(substitute(e, known), axes) for e in element.index)
    return attrs.evolve(element, index=index, fetched=tuple(left))


def _fetching(scalar: Scalar, fetched: tuple[tuple[str, Scalar], ...]) -> Scalar | None:
    """The scalar with the data `fetched` in each element whose index names it; None where a number
    names it."""
    if not fetched:
        return scalar
    given = {name for name, _ in fetched}
    match scalar:
        case Element(index=index):
            used = names_in(index)
            own = [(name, value) for name, value in fetched if name in used]
            for name, value in scalar.fetched:
                inner = _fetching(value, fetched)
                if inner is None:
                    return None
                own.append((name, inner))
            return attrs.evolve(scalar, fetched=tuple(own))
        case Number(value):
            return None if isinstance(value, ir.Expr) and names(value) & given else scalar
        case Apply(operands=operands):
            moved = [_fetching(each, fetched) for each in operands]
            if any(each is None for each in moved):
                return None
            return attrs.evolve(scalar, operands=tuple(each for each in moved if each is not None))
        case _:
            assert_never(scalar)


def as_index(scalar: Scalar) -> ir.Expr | None:
    """An integer scalar that is computed from indices, as a formula over them; else None."""
    found = _rational(scalar)
    if found is None or not scalar.dtype.is_integer:
        return None
    value, factor = found
    return symbolic.simplify(_scaled(value, factor))


def _scaled(value: ir.Expr, factor: Fraction) -> ir.Expr:
    """The product of `value` and `factor`, rounded down."""
    moved = ir.Binary("*", value, ir.Literal(factor.numerator))
    if factor.denominator == 1:
        return moved
    return ir.Binary("//", symbolic.simplify(moved), ir.Literal(factor.denominator))


def _rational(scalar: Scalar) -> tuple[ir.Expr, Fraction] | None:
    """A number that is computed from indices, as a formula and a factor of it; else None."""
    match scalar:
        case Number(bool()):
            return None
        case Number(int(value)):
            return ir.Literal(value), Fraction(1)
        case Number(float(value)) if value.is_integer():
            return ir.Literal(int(value)), Fraction(1)
        case Number(float() | ir.Function()):
            return None
        case Number(value) if not isinstance(value, int | float):
            return value, Fraction(1)
        case Apply("where", (Apply("lt", (value, Number(0))), _, other)) if value == other:
            found = _rational(value)
            return found if found is not None and _nonnegative(found[0]) else None
        case Apply("mul", (one, Number(float(factor)))) if factor > 0:
            found = _rational(one)
            exact = Fraction(factor).limit_denominator(_MOST_DENOMINATOR)
            if found is None or float(exact) != factor or not _nonnegative(found[0]):
                return None
            return found[0], found[1] * exact
        case Apply(
            "mul",
            (
                Apply("sign", (one,)),
                Apply("mod" | "floordiv" as name, (Apply("abs", (same,)), size)),
            ),
        ):
            # `fmod`, or an integer's quotient: cut off towards zero
            extent = size.operands[0] if isinstance(size, Apply) else size
            found = _rational(one)
            if one != same or found is None or not _nonnegative(symbolic.simplify(found[0])):
                return None
            return _combined(name, found, _rational(extent))
        case Apply("cast", (one,)):
            found = _rational(one)
            if found is None or not scalar.dtype.is_integer:
                return found
            return (_scaled(*found), Fraction(1)) if _nonnegative(found[0]) else None
        case Apply("add" | "sub" | "mul" | "floordiv" | "mod" as name, (one, other)):
            return _combined(name, _rational(one), _rational(other))
        case _:
            return None


def _combined(
    name: str, one: tuple[ir.Expr, Fraction] | None, other: tuple[ir.Expr, Fraction] | None
) -> tuple[ir.Expr, Fraction] | None:
    """The operation `name` on two numbers with factor 1, or a number plus or minus 0; else None."""
    if one is None or other is None:
        return None
    if name in ("add", "sub") and other[0] == ir.Literal(0):
        return one
    if one[1] != Fraction(1) or other[1] != Fraction(1):
        return None
    operator = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%"}[name]
    return ir.Binary(operator, one[0], other[0]), Fraction(1)


def _nonnegative(expression: ir.Expr) -> bool:
    """Whether a formula is at least 0 by its form, given that its names and divisors are; that is
    more than `never_negative` may take for granted."""
    match expression:
        case ir.Literal(value):
            return value >= 0
        case ir.Ref():
            return True
        case ir.Binary("+" | "*", left, right):
            return _nonnegative(left) and _nonnegative(right)
        case ir.Binary("//", left, _):
            return _nonnegative(left)
        case ir.Binary("%"):
            return True
        case _:
            return False


def _padded(scalar: Scalar) -> Scalar:
    """The scalar with its elements padded with 0 outside, where their values are never used."""
    match scalar:
        case Element(pad=None, fetched=fetched):
            data = tuple((name, _padded(value)) for name, value in fetched)
            return attrs.evolve(scalar, pad=0, ignored=True, fetched=data)
        case Apply(operands=operands):
            return attrs.evolve(scalar, operands=tuple(map(_padded, operands)))
        case _:
            return scalar


def _orders(value: Map, body: Element) -> bool:
    """Whether a map is its source with the axes in another order, with or without axes of 1."""
    left = [axis.ref for axis in value.axes if axis.extent != ir.Literal(1)]
    held = [each for each in body.index if each != ir.Literal(0)]
    return len(held) == len(left) and all(each in held for each in left)


# ---------------------------------------------------------------- indices


def names_in(index: Iterable[ir.Expr]) -> set[str]:
    """The names in all subscripts."""
    return {name for each in index for name in names(each)}


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
    """A sum, difference or product; adding 0 or multiplying by 1 leaves the operand as it is. (The
    normal form would write a remainder as a difference.)"""
    match operator, left, right:
        case ("+", ir.Literal(0), other) | ("+" | "-", other, ir.Literal(0)):
            return other
        case ("*", ir.Literal(1), other) | ("*", other, ir.Literal(1)):
            return other
        case _:
            return symbolic.simplify(ir.Binary(operator, left, right))


def _divided(operator: str, left: ir.Expr, right: ir.Expr, axes: Mapping[str, ir.Expr]) -> ir.Expr:
    """`left // right` or `left % right`; the terms of `left` that `right` divides are split off.
    Remainders in `left` count as axes, not as the differences that their normal form is."""
    remainders: dict[str, ir.Expr] = {}
    extents = dict(axes)
    whole, rest = _split(_with_remainders_named(left, remainders, extents), right)
    within = below(rest, right, extents)
    whole, rest = substitute(whole, remainders), substitute(rest, remainders)
    if within:
        found = whole if operator == "//" else rest
    elif (digits := _digits(rest, right, axes)) is not None:
        upper, step, lower = digits
        turns = symbolic.simplify(ir.Binary("//", right, ir.Literal(step)))
        if operator == "//":
            return _folded("+", whole, symbolic.simplify(ir.Binary("//", upper, turns)))
        upper = symbolic.simplify(ir.Binary("%", upper, turns))
        found = ir.Binary("+", ir.Binary("*", upper, ir.Literal(step)), lower)
    elif operator == "%":
        found = ir.Binary("%", _less_precise(rest, right), right)
    else:
        return _folded("+", whole, symbolic.simplify(ir.Binary("//", rest, right)))
    return symbolic.simplify(found)


def _digits(
    number: ir.Expr, right: ir.Expr, axes: Mapping[str, ir.Expr]
) -> tuple[ir.Expr, int, ir.Expr] | None:
    """`number` as upper * step + lower with 0 <= lower < step, where step divides the number
    `right`, as a head's columns do those of all heads; None where there is no such step."""
    terms, whole = symbolic.normalize(number), symbolic.constant_value(right) or 0
    steps = {math.gcd(whole, factor) for factor in terms.values()}
    for step in sorted(steps, reverse=True):
        high = {m: factor for m, factor in terms.items() if factor % step == 0}
        lower = symbolic.rebuild({m: f for m, f in terms.items() if m not in high})
        if 1 < step < whole and high and below(lower, ir.Literal(step), axes):
            upper = symbolic.rebuild({m: factor // step for m, factor in high.items()})
            return symbolic.simplify(upper), step, lower
    return None


def _with_remainders_named(
    expression: ir.Expr, remainders: dict[str, ir.Expr], extents: dict[str, ir.Expr]
) -> ir.Expr:
    """The expression with a name for each remainder in it, noted in `remainders` and `extents`."""
    if isinstance(expression, ir.Binary) and expression.operator == "%":
        known = (name for name, each in remainders.items() if each == expression)
        name = next(known, f"%{len(remainders)}")
        remainders[name], extents[name] = expression, expression.right
        return ir.Ref(name, ir.NameKind.LOOP)
    return changed(expression, lambda part: _with_remainders_named(part, remainders, extents))


def _less_precise(rest: ir.Expr, right: ir.Expr) -> ir.Expr:
    """What has the same remainder by `right` as `rest`: n for `n % m` where `right` divides m."""
    match rest:
        case ir.Binary("%", number, divisor):
            if _split(divisor, right)[1] == ir.Literal(0):
                return number
    return rest


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


def row_major(places: Sequence[ir.Expr], shape: Sequence[ir.Expr]) -> ir.Expr:
    """The number, in row-major order, of the index `places` in a tensor of extents `shape`."""
    number: ir.Expr = ir.Literal(0)
    for each, extent in zip(places, shape, strict=True):
        number = ir.Binary("+", ir.Binary("*", number, extent), each)
    return number
