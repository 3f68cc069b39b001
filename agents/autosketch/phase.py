"""What a phase is: the launches of a sketch before they are written, and all that one computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

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
    """A reduction of a row: `body` over the axes `over`. Earlier passes are elements without an
    index of the pass's name."""

    name: str
    operation: str
    dtype: DType
    over: tuple[Axis, ...]
    body: Scalar


_OfAxes = Callable[[tuple[Axis, ...]], tuple[Axis, ...]]
_OfElement = Callable[[Element], Element]

#: Axes with what they are of the number that runs through all of them.
Digits = tuple[tuple[Axis, ir.Expr], ...]


@attrs.frozen
class Product:
    """The sum over `over` of left * right, for each of `down` (axes of `left` alone) and `across`
    (those of `right` alone): a matrix product. `digits`: by the name of an axis that runs through
    several, those."""

    name: str
    dtype: DType
    down: tuple[Axis, ...]
    across: tuple[Axis, ...]
    over: tuple[Axis, ...]
    left: Element
    right: Element
    digits: Mapping[str, Digits] = {}

    @property
    def groups(self) -> tuple[tuple[Axis, ...], ...]:
        """The three groups of axes."""
        return self.down, self.across, self.over

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
        yield f"    {self.name}[{blocks}] = sum[{ranges(self.over)}] {factors}"


@attrs.frozen
class Running:
    """The sum or product of `body` from the start of the axis up to each place of it."""

    name: str
    operation: str
    dtype: DType
    axis: Axis
    body: Scalar

    @property
    def groups(self) -> tuple[tuple[Axis, ...], ...]:
        """The groups of axes: one, of the axis alone."""
        return ((self.axis,),)

    def scalars(self) -> tuple[Scalar, ...]:
        """The scalars computed: the term that is added up."""
        return (self.body,)

    def changed(self, axes: _OfAxes, element: _OfElement) -> Running:
        """See `Phase.changed`; the axis is no part of a group."""
        return attrs.evolve(self, body=mapped(self.body, element))

    def lines(self) -> Iterator[str]:
        """The scan as text."""
        along = ranges([self.axis])
        yield f"    {self.name} = running {self.operation}[{along}] {text(self.body)}"


@attrs.frozen
class Chosen:
    """The best of `body` along the axis `over`, as many as `axis` has places: the values, or their
    `places`."""

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
        """The scalars computed: that of which the best are wanted."""
        return (self.body,)

    def changed(self, axes: _OfAxes, element: _OfElement) -> Chosen:
        """See `Phase.changed`; neither axis is part of a larger group."""
        return attrs.evolve(self, body=mapped(self.body, element))

    def lines(self) -> Iterator[str]:
        """The choice as text."""
        which = "largest" if self.largest else "smallest"
        what = f"places of the {which}" if self.places else which
        wanted = f"{ranges([self.axis])} {what}[{ranges([self.over])}]"
        yield f"    {self.name} = {wanted} {text(self.body)}"


@attrs.frozen
class Scattered:
    """What the phase gives is combined with what its target holds at its place, for each of `over`
    in order; `fetched` are names in the place, whose value is data."""

    name: str
    over: tuple[Axis, ...]
    operation: str
    fetched: tuple[tuple[str, Scalar], ...]

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


@attrs.frozen
class Phase:
    """`result` at each index of rows and columns, and of the axes of `fold`, goes to `target`, at
    the index `place`. `fold`: what is computed for many elements at once; there are no passes and
    columns then. `step`: the loop of the host that it is part of."""

    target: str
    dtype: DType
    place: Index
    rows: tuple[Axis, ...]
    passes: tuple[Pass, ...]
    columns: tuple[Axis, ...]
    result: Scalar
    fold: Product | Running | Chosen | Scattered | None = None
    step: Axis | None = None

    def scalars(self) -> tuple[Scalar, ...]:
        """The scalars computed: those of the passes, of the fold, and the result."""
        folded = () if self.fold is None else self.fold.scalars()
        return (*(each.body for each in self.passes), *folded, self.result)

    @property
    def groups(self) -> tuple[tuple[Axis, ...], ...]:
        """Axes that are run through together."""
        folded = () if self.fold is None else self.fold.groups
        return (self.rows, self.columns, *folded, *(each.over for each in self.passes))

    def changed(self, axes: _OfAxes, element: _OfElement) -> Phase:
        """The phase with its groups of axes and its accesses changed."""
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
        )


@attrs.frozen
class Phases:
    """The launches in order; `shapes` of all tensors, workspaces and views by name, and what the
    last two are: types, and the tensors that they are views of."""

    declared: ir.Sketch
    phases: tuple[Phase, ...]
    shapes: Mapping[str, tuple[ir.Expr, ...]]
    workspaces: Mapping[str, DType]
    views: Mapping[str, str]

    def unnamed(self) -> list[ir.Expr]:
        """Extents of workspaces that want a name, as formulas of symbols."""
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
                yield f"    {each.name} = {each.operation}[{ranges(each.over)}] {text(each.body)}"
            if phase.fold is not None:
                yield from phase.fold.lines()
            place = ", ".join(map(show, phase.place))
            columns = ranges(phase.columns)
            yield f"    [{columns}] {phase.target}[{place}] = {text(phase.result)}"


def _is_next(extent: ir.Expr, other: ir.Expr) -> bool:
    """Whether an extent is one more than another: nothing is split by it."""
    return symbolic.equal(extent, ir.Binary("+", other, ir.Literal(1)))


def mapped(scalar: Scalar, change: Callable[[Element], Scalar]) -> Scalar:
    """The scalar with its elements changed."""
    match scalar:
        case Element():
            fetched = tuple((name, mapped(each, change)) for name, each in scalar.fetched)
            return change(attrs.evolve(scalar, fetched=fetched))
        case Apply():
            operands = tuple(mapped(each, change) for each in scalar.operands)
            return attrs.evolve(scalar, operands=operands)
        case _:
            return scalar
