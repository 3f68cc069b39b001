"""Attention: products weighted by a softmax, whose scores stay out of memory.

A running maximum and a running sum are corrected whenever the maximum grows (Milakov and
Gimelshein, arXiv 1805.02867), so one pass over the keys does. The form is found by the shape of the
expression, exp(score - maximum) / total, not by a name.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import attrs

from sketchc.agents.autosketch.calls import spelled
from sketchc.agents.autosketch.flattening import is_whole
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
    as_index,
    at,
    elements,
    is_product,
    names_below,
    names_in,
    parts,
    resolved,
)
from sketchc.agents.autosketch.phase import SCORES, Attention, Product, mapped, replaced
from sketchc.agents.autosketch.templates.body import Body
from sketchc.agents.autosketch.templates.lanes import ONE_HEAD, Lanes
from sketchc.agents.autosketch.templates.products import factor_of, multiply, precision
from sketchc.agents.autosketch.windows import ONE_BLOCK, line_of
from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic
from sketchc.ir.show import show

if TYPE_CHECKING:
    from sketchc.agents.autosketch.templates.writer import PhaseWriter

#: What reads the scores: the maximum, the total and the product.
_READERS = 3
#: The widest values for which scores are computed once more for each block of their columns.
_WIDEST = 256
#: The most parts of a query that are computed again for each block of keys.
_CHEAP = 4


class Builder(Protocol):
    """What builds phases, as far as an attention is found with it; see `phases.Builder`."""

    loops: Loops
    readers: Counter[str]
    computing: set[str]

    def extents(self, axes: Sequence[Axis]) -> dict[str, ir.Expr]:
        """The extents, by name, of axes and of the loop of the host around them."""

    def at_most(self, extent: ir.Expr, limit: int) -> bool:
        """Whether an extent is at most `limit`, at the task's own sizes."""

    def shared(self, value: Reduction) -> bool:
        """Whether a workspace holds a reduction."""

    def factor(self, scalar: Scalar, axes: Mapping[str, ir.Expr]) -> Element | None:
        """The element that a factor of a product is."""

    def product(self, element: Element, axes: Sequence[Axis]) -> Product | None:
        """The reduction that an element reads as a matrix product for these axes."""


@attrs.frozen
class _Softmax:
    """exp(score - largest) / total, cast to each of `dtypes`; `shift` is what is subtracted,
    `hidden`: 0 where all scores are -inf."""

    dtypes: tuple[DType, ...]
    score: Scalar
    shift: Scalar
    largest: Element
    total: Element
    hidden: bool


def find_attention(builder: Builder, element: Element, axes: Sequence[Axis]) -> Attention | None:
    """The reduction that an element reads as an attention for these axes: a sum of products of the
    softmax of a matrix product and another element; None where it is none, or where others need
    its scores too, or values are so wide that scores would be computed again and again."""
    value = builder.loops.values.get(element.source)
    if not isinstance(value, Reduction) or value.operation != "sum" or element.pad is not None:
        return None
    wide = [axis for axis in value.over if axis.extent != ir.Literal(1)]
    if builder.shared(value) or len(wide) != 1 or not is_whole(element.index, axes):
        return None
    over = Axis("t", wide[0].extent)
    match at(value.body, _own(value, element.index, wide[0], over)):
        case Apply("mul", (left, right)):
            found = (
                _attention(builder, w, v, axes, over) for w, v in ((left, right), (right, left))
            )
            whole = next((each for each in found if each is not None), None)
            return None if whole is None else attrs.evolve(whole, dtype=value.dtype)
        case _:
            return None


def _attention(
    builder: Builder, weights: Scalar, values: Scalar, axes: Sequence[Axis], over: Axis
) -> Attention | None:
    """The attention that sums weights * values over an axis; its type is that of the scores."""
    extents = builder.extents((*axes, over))
    softmax = _softmax(resolved(builder.loops, weights, extents))
    value = None if softmax is None else builder.factor(values, extents)
    if softmax is None or value is None or not _of_rows(builder, softmax, over, extents):
        return None
    own = names_below(softmax.score)
    across = [a for a in axes if a.name in names_in(value.index) and a.name not in own]
    if len(across) != 1 or not builder.at_most(across[0].extent, _WIDEST):
        return None
    found = _scores(builder, softmax.score, [*(a for a in axes if a not in across), over])
    if found is None:
        return None
    product, score = found
    (down,), (inner,) = product.down, product.over
    used = names_in(value.index)
    if down.name in used or over.name not in used:
        return None
    query = resolved(builder.loops, product.left, extents | {inner.name: inner.extent})
    read = list(elements(query))
    cheap = len(read) == 1 and not read[0].fetched and len(list(parts(query))) <= _CHEAP
    return Attention(
        name="attended",
        dtype=product.dtype,
        down=down,
        across=across[0],
        over=over,
        inner=inner,
        query=query if cheap and read[0].pad is None else product.left,
        key=product.right,
        score=score,
        value=value,
        weight=value.dtype if value.dtype in softmax.dtypes else weights.dtype,
        hidden=softmax.hidden,
    )


def _own(value: Reduction, index: Index, along: Axis, over: Axis) -> dict[str, ir.Expr]:
    """The indices of a reduction's term: of its result at `index`, and along one axis of `over`."""
    own: dict[str, ir.Expr] = {axis.name: ir.Literal(0) for axis in value.over}
    own |= {axis.name: each for axis, each in zip(value.axes, index, strict=True)}
    return own | {along.name: over.ref}


def _softmax(scalar: Scalar) -> _Softmax | None:
    """The softmax that a scalar is, casts between floats aside; None where it is none."""
    dtypes = [scalar.dtype]
    while isinstance(scalar, Apply) and scalar.operation == "cast":
        (scalar,) = scalar.operands
        dtypes.append(scalar.dtype)
    match scalar:
        case Apply("div", (Apply("exp", (Apply("sub", (score, shift)),)), total)):
            largest, sum_of = _without(shift, -math.inf, 0.0), _without(total, 0.0, 1.0)
            if isinstance(largest, Element) and isinstance(sum_of, Element):
                return _Softmax(tuple(dtypes), score, shift, largest, sum_of, sum_of != total)
    return None


def _without(scalar: Scalar, value: float, instead: float) -> Scalar:
    """`x` of a scalar that is `x` or `instead`, where `x` is `value`; else the scalar."""
    match scalar:
        case Apply("where", (Apply("eq", (x, Number(v))), Number(other), same)) if (
            x == same and v == value and other == instead
        ):
            return x
    return scalar


def _of_rows(
    builder: Builder, softmax: _Softmax, over: Axis, extents: Mapping[str, ir.Expr]
) -> bool:
    """Whether the maximum and the total of a softmax are those of its own scores along `over`, and
    nobody else reads them."""
    powers = Apply(
        "exp",
        (Apply("sub", (softmax.score, softmax.shift), softmax.score.dtype),),
        softmax.score.dtype,
    )
    for element, operation, body, readers in (
        (softmax.largest, "max", softmax.score, _READERS - 1),
        (softmax.total, "sum", powers, 1),
    ):
        value = builder.loops.values.get(element.source)
        if not isinstance(value, Reduction) or value.operation != operation:
            return False
        if builder.readers[value.name] > readers or element.pad is not None:
            return False
        wide = [axis for axis in value.over if axis.extent != ir.Literal(1)]
        if len(wide) != 1 or not symbolic.equal(wide[0].extent, over.extent):
            return False
        own = _own(value, element.index, wide[0], over)
        if resolved(builder.loops, at(value.body, own), extents) != body:
            return False
    return True


def _scores(builder: Builder, score: Scalar, axes: Sequence[Axis]) -> tuple[Product, Scalar] | None:
    """The matrix product that a score is computed from, of the last of `axes` and one before it,
    and the score with the element `SCORES` for it; None where there is no such product, or others
    read the score."""
    extents = builder.extents(axes)

    def opened(each: Element) -> Scalar:
        value = builder.loops.values.get(each.source)
        if not isinstance(value, Map) or not value.stored or builder.readers[value.name] > _READERS:
            return each
        own = dict(zip((axis.name for axis in value.axes), each.index, strict=True))
        return resolved(builder.loops, at(value.body, own), extents)

    score = mapped(score, opened)
    for element in set(elements(score)):
        value = builder.loops.values.get(element.source)
        if not isinstance(value, Reduction) or not is_product(value):
            continue
        if builder.readers[value.name] > _READERS:
            continue
        builder.computing.add(value.name)
        product = builder.product(element, axes)
        builder.computing.discard(value.name)
        if product is None or product.across != (axes[-1],):
            continue
        if len(product.down) == 1 and len(product.over) == 1:
            return product, replaced(score, element, Element(SCORES, (), element.dtype))
    return None


# ---------------------------------------------------------------- writing it


def write_attention(writer: PhaseWriter, top: Body, attention: Attention) -> None:
    """Write programs over blocks of queries: all keys, a block at a time, then each element."""
    down, over = writer.block(attention.down, "TQ"), writer.block(attention.over, "TS")
    across = writer.block(attention.across, "TH", most=ONE_HEAD)
    # On a GPU's tensor cores a whole head is fastest; f32 is multiplied by other units, for which
    # more of it than a block of a product spills registers (docs/BENCHMARKS.md).
    half = attention.query.dtype.bytes < attention.score.dtype.bytes
    inner = writer.block(attention.inner, "TD", most=ONE_HEAD if half else ONE_BLOCK)
    scope = writer.over_blocks(top, (down, across))
    scope.bound |= inner.names if inner.size is None else set()
    name, dtype = attention.name, spelled(attention.dtype)
    hint = 'llm_hint=["fastest", "accumulator"]'
    largest, total = writer.name(scope, "largest"), writer.name(scope, "total")
    column = f"[{down.tile}, 1]"
    scope.say(f"{name} = alloc([{down.tile}, {across.tile}]{dtype}, init=0, {hint})")
    scope.say(f"{largest} = alloc({column}, init=-inf, {hint})")
    scope.say(f"{total} = alloc({column}, init=0, {hint})")
    body = writer.opened(scope, (), over, _seen(attention, down, over))
    _write_scores(writer, body, attention, (down, over, inner))
    score = writer.evaluated(body, attention.score, (down, over))
    block, peak, shift, correction = (
        writer.alloc(body, each, attention.score.dtype, f"{down.tile}, 1")
        for each in ("block", "peak", "shift", "correction")
    )
    body.say(f"reduce_max({score}, 1, {block})")
    body.say(f"max({largest}, {block}, {peak})")
    body.say(f"where({peak} == -inf, 0, {peak}, {shift})")
    body.say(f"exp({largest} - {shift}, {correction})")
    weights = writer.alloc(body, "weights", attention.score.dtype, f"{down.tile}, {over.tile}")
    body.say(f"exp({score} - {shift}, {weights})")
    body.say(f"reduce_sum({weights}, 1, {block})")
    body.say(f"fma({total}, {correction}, {block}, {total})")
    body.say(f"mul({name}, {correction}, {name})")
    if attention.weight is not attention.score.dtype:
        powers = weights
        weights = writer.alloc(body, "weights", attention.weight, f"{down.tile}, {over.tile}")
        body.say(f"cast({powers}, {weights})")
    values, turned = factor_of(writer, body, attention.value, (over, across), attention.weight)
    keywords = f"{', trans_b=True' * turned}{precision(attention.weight)}"
    body.say(f"gemm({weights}, {values}, {name}{keywords})")
    body.say(f"copy({peak}, {largest})")
    scope.finished()
    if attention.hidden:
        scope.say(f"where({total} == 0, 1, {total}, {total})")
    scope.say(f"div({name}, {total}, {name})")
    writer.result(scope, (down, across))


def _write_scores(
    writer: PhaseWriter, body: Body, attention: Attention, blocks: tuple[Lanes, Lanes, Lanes]
) -> None:
    """Write the product of a block of queries and one of keys as the tile `SCORES`."""
    down, over, inner = blocks
    dtype = spelled(attention.dtype)
    place = f"[{down.tile}, {over.tile}]{dtype}"
    whole = inner.size is None
    hint = '"fastest"' if whole else '"fastest", "accumulator"'
    body.say(f"{SCORES} = alloc({place}{'' if whole else ', init=0'}, llm_hint=[{hint}])")
    within = writer.opened(body, (), inner)
    factors, call = (attention.query, attention.key), "matmul" if whole else "gemm"
    multiply(writer, within, factors, (down, inner, over), SCORES, call)
    body.finished()


def _seen(attention: Attention, down: Lanes, over: Lanes) -> str:
    """How many blocks of keys the queries of a block see, where a query sees those up to its own
    place or some places on, as text; "" where all may be seen."""
    if down.size is None or over.size is None:
        return ""
    ends = [_last_seen(each, attention) for each in _conditions(attention.score)]
    ahead = min((each for each in ends if each is not None), default=None)
    if ahead is None:
        return ""
    end = f"({down.variable} + 1)*{down.size}{f' + {ahead}' if ahead else ''}"
    return f"ceil(min({end}, {show(over.axis.extent)}), {over.size})"


def _conditions(score: Scalar) -> Iterator[Scalar]:
    """The conditions without which a score is -inf."""
    match score:
        case Apply("where", (condition, other, Number(value))) if value == -math.inf:
            yield from _all_of(condition)
            yield from _conditions(other)
        case Apply("where", (condition, Number(value), other)) if value == -math.inf:
            yield Apply("logical_not", (condition,), condition.dtype)
            yield from _conditions(other)


def _all_of(condition: Scalar) -> Iterator[Scalar]:
    match condition:
        case Apply("logical_and", (one, other)):
            yield from _all_of(one)
            yield from _all_of(other)
        case _:
            yield condition


#: Comparison -> what it is the negation of.
_NEGATED = {"ge": "lt", "gt": "le", "le": "gt", "lt": "ge"}


def _last_seen(condition: Scalar, attention: Attention) -> int | None:
    """n >= 0 where a condition holds for just the keys up to n places behind a query's own; None
    for other conditions."""
    match condition:
        case Apply("logical_not", (Apply(operation, (left, right)),)) if operation in _NEGATED:
            operation = _NEGATED[operation]
        case Apply("ge" | "gt" | "le" | "lt" as operation, (left, right)):
            pass
        case _:
            return None
    one, other = as_index(left), as_index(right)
    if one is None or other is None:
        return None
    if operation in ("le", "lt"):
        one, other = other, one
    # The condition is one >= other, or one > other.
    room = ir.Binary("-", ir.Binary("-", one, other), ir.Literal(int(operation in ("gt", "lt"))))
    line = line_of(room, attention.over.name)
    if line is None or line[0] != -1:
        return None
    ahead = symbolic.constant_value(ir.Binary("-", line[1], attention.down.ref))
    return int(ahead) if ahead is not None and ahead >= 0 else None
