"""Phases: the launches of a sketch before they are written, with all that each computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import attrs

from sketchc.agents.autosketch.graph import needs_name
from sketchc.agents.autosketch.loops import (
    Apply,
    Axis,
    Element,
    Index,
    Scalar,
    ranges,
    text,
)
from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic
from sketchc.ir.show import show
from sketchc.ir.walk import names


@attrs.frozen
class Pass:
    """A reduction of a row: `body` over the axes `over`. The result of an earlier pass is an
    element of that pass's name without an index. `part`: the axis of the rows at which only a part
    of the terms counts, as in `Reduction`."""

    name: str
    operation: str
    dtype: DType
    over: tuple[Axis, ...]
    body: Scalar
    part: Axis | None = None


_OfAxes = Callable[[tuple[Axis, ...]], tuple[Axis, ...]]
_OfElement = Callable[[Element], Element]

#: Axes, each with its value as a digit of the joint axis that runs through all of them.
Digits = tuple[tuple[Axis, ir.Expr], ...]


@attrs.frozen
class Product:
    """The sum over `over` of left * right, for each of `down` (axes of `left` alone) and `across`
    (those of `right` alone): a matrix product. `digits`: by the name of a joint axis, the axes that
    it runs through. `part`: as in `Pass`. `taps`: axes of windows that are summed over one place
    after the other, each with a product over `over`; `where`: the condition on these and on rows
    under which a place counts. `innermost`: the axis of the rows along which programs are next to
    each other, since elements of their results are. `blocks`: of a convolution of a large image,
    whose pixels are `down`, the sizes of blocks of pixels, channels and terms."""

    name: str
    dtype: DType
    down: tuple[Axis, ...]
    across: tuple[Axis, ...]
    over: tuple[Axis, ...]
    left: Element
    right: Element
    digits: Mapping[str, Digits] = {}
    part: Axis | None = None
    taps: tuple[Axis, ...] = ()
    where: ir.Expr | None = None
    innermost: Axis | None = None
    blocks: tuple[int, int, int] | None = None

    @property
    def groups(self) -> tuple[tuple[Axis, ...], ...]:
        """The groups of axes: the three of the product, and each tap by itself."""
        return self.down, self.across, self.over, *((tap,) for tap in self.taps)

    def scalars(self) -> tuple[Scalar, ...]:
        """The scalars computed: both factors."""
        return self.left, self.right

    def changed(self, axes: _OfAxes, element: _OfElement) -> Product:
        """See `Phase.changed`."""
        return attrs.evolve(
            self,
            down=axes(self.down),
            across=axes(self.across),
            over=axes(self.over),
            left=element(self.left),
            right=element(self.right),
        )

    def lines(self) -> Iterator[str]:
        """The product as text."""
        factors = f"{text(self.left)} * {text(self.right)}"
        blocks = f"{ranges(self.down)}; {ranges(self.across)}"
        over = f"{ranges((*self.taps, *self.over))}{in_part(self)}"
        where = "" if self.where is None else f" where {show(self.where)}"
        yield f"    {self.name}[{blocks}] = sum[{over}] {factors}{where}"


@attrs.frozen
class Attention:
    """The sum over `over` of weights * `value`, for each of `down` (an axis of the weights alone)
    and `across` (an axis of `value` alone). The weights are the softmax along `over` of `score`, an
    expression in the element "scores", which is the sum over `inner` of query * key. `hidden`: a
    row all of whose scores are -inf gives 0. `weight`: the type of the weights in the product."""

    name: str
    dtype: DType
    down: Axis
    across: Axis
    over: Axis
    inner: Axis
    query: Scalar
    key: Element
    score: Scalar
    value: Element
    weight: DType
    hidden: bool

    @property
    def groups(self) -> tuple[tuple[Axis, ...], ...]:
        """The groups of axes: four of one axis each."""
        return (self.down,), (self.across,), (self.over,), (self.inner,)

    def scalars(self) -> tuple[Scalar, ...]:
        """The scalars computed: the factors of both products, and the scores."""
        return self.query, self.key, self.score, self.value

    def changed(self, axes: _OfAxes, element: _OfElement) -> Attention:
        """See `Phase.changed`; the axes, each alone in its group, stay as they are."""
        return attrs.evolve(
            self,
            query=mapped(self.query, element),
            key=element(self.key),
            score=mapped(self.score, element),
            value=element(self.value),
        )

    def lines(self) -> Iterator[str]:
        """Both products as text."""
        over, blocks = ranges([self.over]), f"{ranges([self.down])}; {ranges([self.across])}"
        factors = f"{text(self.query)} * {text(self.key)}"
        yield f"    {SCORES}[{ranges([self.down])}; {over}] = sum[{ranges([self.inner])}] {factors}"
        weights = f"softmax[{over}] {text(self.score)}"
        yield f"    {self.name}[{blocks}] = sum[{over}] ({weights}) * {text(self.value)}"


#: What the scores of an attention are called.
SCORES = "scores"


@attrs.frozen
class Running:
    """The sum or product of `body` from the start of the axis up to each place of it. `reverse`:
    from its end down to there; `exclusive`: without the term of the place itself."""

    name: str
    operation: str
    dtype: DType
    axis: Axis
    body: Scalar
    reverse: bool = False
    exclusive: bool = False

    @property
    def groups(self) -> tuple[tuple[Axis, ...], ...]:
        """The groups of axes: one, of the axis alone."""
        return ((self.axis,),)

    def scalars(self) -> tuple[Scalar, ...]:
        """The scalars computed: the term that is added up."""
        return (self.body,)

    def changed(self, axes: _OfAxes, element: _OfElement) -> Running:
        """See `Phase.changed`; the axis, alone in its group, stays as it is."""
        return attrs.evolve(self, body=mapped(self.body, element))

    def lines(self) -> Iterator[str]:
        """The scan as text."""
        along = ranges([self.axis])
        how = "exclusive " * self.exclusive + "reversed " * self.reverse
        yield f"    {self.name} = {how}running {self.operation}[{along}] {text(self.body)}"


@attrs.frozen
class Chosen:
    """The largest or smallest values of `body` along the axis `over`, as many as the extent of
    `axis`; `places`: their indices instead."""

    name: str
    dtype: DType
    axis: Axis
    over: Axis
    largest: bool
    places: bool
    body: Scalar

    @property
    def groups(self) -> tuple[tuple[Axis, ...], ...]:
        """The groups of axes: two of one axis each."""
        return (self.axis,), (self.over,)

    def scalars(self) -> tuple[Scalar, ...]:
        """The scalars computed: the one from whose values the best are chosen."""
        return (self.body,)

    def changed(self, axes: _OfAxes, element: _OfElement) -> Chosen:
        """See `Phase.changed`; both axes, each alone in its group, stay as they are."""
        return attrs.evolve(self, body=mapped(self.body, element))

    def lines(self) -> Iterator[str]:
        """The choice as text."""
        which = "largest" if self.largest else "smallest"
        what = f"places of the {which}" if self.places else which
        wanted = f"{ranges([self.axis])} {what}[{ranges([self.over])}]"
        yield f"    {self.name} = {wanted} {text(self.body)}"


@attrs.frozen
class Ranked:
    """How many of `other`, along the axis `over`, come before `body` at each place of `axis`."""

    name: str
    dtype: DType
    axis: Axis
    over: Axis
    descending: bool
    body: Scalar
    other: Scalar

    @property
    def groups(self) -> tuple[tuple[Axis, ...], ...]:
        """The groups of axes: two of one axis each."""
        return (self.axis,), (self.over,)

    def scalars(self) -> tuple[Scalar, ...]:
        """The scalars computed: the one that has a place, and those that may come before it."""
        return self.body, self.other

    def changed(self, axes: _OfAxes, element: _OfElement) -> Ranked:
        """See `Phase.changed`; both axes, each alone in its group, stay as they are."""
        body, other = mapped(self.body, element), mapped(self.other, element)
        return attrs.evolve(self, body=body, other=other)

    def lines(self) -> Iterator[str]:
        """The places as text."""
        order = "descending" if self.descending else "ascending"
        along = f"{ranges([self.axis])}; {ranges([self.over])}"
        yield f"    {self.name} = {order} place[{along}] {text(self.body)} among {text(self.other)}"


@attrs.frozen
class Scattered:
    """The phase's result is combined with what its target holds at the phase's place, for each
    index of `over` in order; `fetched` are the names in the place whose values are data. `whole`:
    each element of the target is such a place, and just once."""

    name: str
    over: tuple[Axis, ...]
    operation: str
    fetched: tuple[tuple[str, Scalar], ...]
    whole: bool = False

    @property
    def groups(self) -> tuple[tuple[Axis, ...], ...]:
        """The groups of axes: those of the source, each by itself, for their order counts."""
        return tuple((axis,) for axis in self.over)

    def scalars(self) -> tuple[Scalar, ...]:
        """The scalars computed: the places."""
        return tuple(each for _, each in self.fetched)

    def changed(self, axes: _OfAxes, element: _OfElement) -> Scattered:
        """See `Phase.changed`; the axes stay."""
        moved = tuple((name, mapped(each, element)) for name, each in self.fetched)
        return attrs.evolve(self, fetched=moved)

    def lines(self) -> Iterator[str]:
        """The places as text."""
        for name, each in self.fetched:
            yield f"    for each [{ranges(self.over)}] in order: {name} = {text(each)}"


Fold: TypeAlias = Product | Attention | Running | Chosen | Ranked | Scattered


@attrs.frozen
class Phase:
    """`result` at each index of rows and columns, and of the axes of `fold`, goes to `target`, at
    the index `place`. `fold`: what is computed for many elements at once; there are no passes and
    columns then. `step`: the loop of the host that the phase is part of. `digits`: the axes that
    the last of the rows runs through, where it is a joint one. `clipped`: places may lie outside of
    the target, and are left out."""

    target: str
    dtype: DType
    place: Index
    rows: tuple[Axis, ...]
    passes: tuple[Pass, ...]
    columns: tuple[Axis, ...]
    result: Scalar
    fold: Fold | None = None
    step: Axis | None = None
    digits: Digits = ()
    clipped: bool = False

    def scalars(self) -> tuple[Scalar, ...]:
        """The scalars computed: those of the passes, of the fold, and the result."""
        folded = () if self.fold is None else self.fold.scalars()
        return (*(each.body for each in self.passes), *folded, self.result)

    @property
    def groups(self) -> tuple[tuple[Axis, ...], ...]:
        """The groups of axes; the axes of a group are run through together."""
        folded = () if self.fold is None else self.fold.groups
        return (self.rows, self.columns, *folded, *(each.over for each in self.passes))

    def changed(self, axes: _OfAxes, element: _OfElement) -> Phase:
        """The phase with `axes` applied to its groups of axes and `element` to its accesses."""
        target = element(Element(self.target, self.place, self.dtype))
        fold = None if self.fold is None else self.fold.changed(axes, element)
        passes = tuple(
            attrs.evolve(each, over=axes(each.over), body=mapped(each.body, element))
            for each in self.passes
        )
        return Phase(
            target.source,
            self.dtype,
            target.index,
            axes(self.rows),
            passes,
            axes(self.columns),
            mapped(self.result, element),
            fold,
            self.step,
            self.digits,
            self.clipped,
        )


@attrs.frozen
class Phases:
    """The launches in order; by name: `shapes` of all tensors, workspaces and views, the types of
    `workspaces`, and for `views` the tensors that they are views of. `planes`: as for
    `designer.design`."""

    declared: ir.Sketch
    phases: tuple[Phase, ...]
    shapes: Mapping[str, tuple[ir.Expr, ...]]
    workspaces: Mapping[str, DType]
    views: Mapping[str, str]
    planes: bool = False

    def unnamed(self) -> list[ir.Expr]:
        """Extents of workspaces that need a name, as formulas of symbols."""
        found = (extent for name in self.workspaces for extent in self.shapes[name])
        behind = [phase.step.extent for phase in self.phases if phase.step is not None]
        found = (e for e in found if not any(_is_next(e, extent) for extent in behind))
        lets = {let.name for let in self.declared.lets}
        return [e for e in dict.fromkeys(found) if needs_name(e) and not lets & set(names(e))]

    def lines(self) -> Iterator[str]:
        """The phases as text."""
        for phase in self.phases:
            step = "" if phase.step is None else f"in each [{ranges([phase.step])}]: "
            yield f"{step}{phase.target} for each [{ranges(phase.rows)}]:"
            for each in phase.passes:
                over = f"{ranges(each.over)}{in_part(each)}"
                yield f"    {each.name} = {each.operation}[{over}] {text(each.body)}"
            if phase.fold is not None:
                yield from phase.fold.lines()
            place = ", ".join(map(show, phase.place))
            columns = ranges(phase.columns)
            yield f"    [{columns}] {phase.target}[{place}] = {text(phase.result)}"


def in_part(held: Pass | Product) -> str:
    """The suffix of the ranges of a reduction of which only a part counts."""
    part = held.part
    return "" if part is None else f"; part {part.name} of {show(part.extent)}"


def _is_next(extent: ir.Expr, other: ir.Expr) -> bool:
    """Whether `extent` is `other` + 1, as that of a state of a loop: no index is divided by it."""
    return symbolic.equal(extent, ir.Binary("+", other, ir.Literal(1)))


def replaced(scalar: Scalar, old: Element, new: Element) -> Scalar:
    """The scalar with `new` in place of the element `old`."""
    return mapped(scalar, lambda each: new if each == old else each)


def mapped(scalar: Scalar, change: Callable[[Element], Scalar]) -> Scalar:
    """The scalar with `change` applied to each of its elements."""
    match scalar:
        case Element():
            fetched = tuple((name, mapped(each, change)) for name, each in scalar.fetched)
            return change(attrs.evolve(scalar, fetched=fetched))
        case Apply():
            operands = tuple(mapped(each, change) for each in scalar.operands)
            return attrs.evolve(scalar, operands=operands)
        case _:
            return scalar
