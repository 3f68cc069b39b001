"""The third stage of the built-in Designer: which values are computed together, in which launch.

A phase computes one tensor. Its rows are independent of each other; what a row needs of itself (its
maximum, then the sum of its exponentials) is reduced in passes over the row, and the last pass
gives the result. All maps are computed where they are needed. A reduction over other rows than the
phase's is a phase of its own and goes through a workspace.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs

from sketchc.agents.autosketch.graph import needs_name
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
    at,
    elements,
    names_in,
    parts,
    ranges,
    resolved,
    text,
)
from sketchc.base.diagnostics import refuse
from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic
from sketchc.ir.show import show
from sketchc.ir.walk import free_name, names

#: Operations that one element may take.
_MOST_PARTS = 4000
#: What a reduction is called.
_NAMES = {"sum": "total", "prod": "product", "max": "largest", "min": "smallest"}


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
        return attrs.evolve(self, body=_mapped(self.body, element))

    def lines(self) -> Iterator[str]:
        """The scan as text."""
        along = ranges([self.axis])
        yield f"    {self.name} = running {self.operation}[{along}] {text(self.body)}"


@attrs.frozen
class Phase:
    """`result` at each index of rows and columns, and of the axes of `fold`, goes to `target`, at
    the index `place`. `fold`: what is computed for many elements at once; there are no passes and
    columns then."""

    target: str
    dtype: DType
    place: Index
    rows: tuple[Axis, ...]
    passes: tuple[Pass, ...]
    columns: tuple[Axis, ...]
    result: Scalar
    fold: Product | Running | None = None

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
            attrs.evolve(each, over=axes(each.over), body=_mapped(each.body, element))
            for each in self.passes
        )
        return Phase(
            target.source,
            self.dtype,
            target.index,
            axes(self.rows),
            passes,
            axes(self.columns),
            _mapped(self.result, element),
            fold,
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
        lets = {let.name for let in self.declared.lets}
        return [e for e in dict.fromkeys(found) if needs_name(e) and not lets & set(names(e))]

    def lines(self) -> Iterator[str]:
        """The phases as text."""
        for phase in self.phases:
            yield f"{phase.target} for each [{ranges(phase.rows)}]:"
            for each in phase.passes:
                yield f"    {each.name} = {each.operation}[{ranges(each.over)}] {text(each.body)}"
            if phase.fold is not None:
                yield from phase.fold.lines()
            place = ", ".join(map(show, phase.place))
            columns = ranges(phase.columns)
            yield f"    [{columns}] {phase.target}[{place}] = {text(phase.result)}"


def build_phases(loops: Loops) -> Phases:
    """Decide what is computed together. Raises `UsageError` where an element takes too much."""
    _fits(loops)
    builder = _Builder(loops)
    for tensor, value in loops.outputs:
        found = loops.values[value]
        axes = _renamed(found.axes, "ijklmnpq")
        index = tuple(axis.ref for axis in axes)
        builder.tensor(tensor, axes, Element(value, index, found.dtype))
    return builder.phases()


def _fits(loops: Loops) -> None:
    """Refuses what would be computed again and again where it is needed."""
    sizes: dict[str, int] = {}
    for name, value in loops.values.items():
        size = 0
        for part in parts(value.body):
            size += 1 + (sizes.get(part.source, 0) if isinstance(part, Element) else 0)
        sizes[name] = size if isinstance(value, Map) else 0
        if size > _MOST_PARTS:
            refuse(
                f"the built-in Designer has no form for one element that takes more than "
                f"{_MOST_PARTS:,} operations"
            )


def _renamed(axes: Sequence[Axis], letters: str) -> tuple[Axis, ...]:
    return tuple(
        Axis(letters[n] if n < len(letters) else f"{letters[0]}{n}", axis.extent)
        for n, axis in enumerate(axes)
    )


class _Builder:
    """Phases so far, and the reductions that workspaces hold."""

    def __init__(self, loops: Loops) -> None:
        self.loops = loops
        self.found: list[Phase] = []
        self.shapes = {tensor.name: tensor.extents for tensor in loops.declared.tensors}
        self.workspaces: dict[str, DType] = {}
        self.views: dict[str, str] = {}
        self.held: dict[str, str] = {}
        self.readers = _readers(loops)
        self.computing: set[str] = set()

    def phases(self) -> Phases:
        flat = tuple(map(self.flattened, self.found))
        used = {source: source for phase in flat for source, _ in self.accesses(phase)}
        taken = {name: extents for name, extents in self.shapes.items() if name not in self.views}
        for view in (view for view in self.views if view in used):
            used[view] = free_name(f"{self.views[view]}_FLAT", taken)
            taken[used[view]] = self.shapes[view]

        def renamed(each: Element) -> Element:
            return attrs.evolve(each, source=used.get(each.source, each.source))

        named = tuple(phase.changed(lambda own: own, renamed) for phase in flat)
        views = {used[name]: base for name, base in self.views.items() if name in used}
        return Phases(self.loops.declared, named, taken, self.workspaces, views)

    # ------------------------------------------------------------ one tensor

    def tensor(self, target: str, axes: tuple[Axis, ...], wanted: Scalar) -> None:
        """Phases that compute a tensor."""
        extents = {axis.name: axis.extent for axis in axes}
        result = resolved(self.loops, wanted, extents)
        whole = tuple(ir.Literal(0) if axis.extent == ir.Literal(1) else axis.ref for axis in axes)
        goal, axes, result = self.split(Element(target, whole, wanted.dtype), axes, result)
        goal, axes, result = self.merged(goal, axes, result)
        extents = {axis.name: axis.extent for axis in axes}
        wide = tuple(axis for axis in axes if axis.extent != ir.Literal(1))
        passes: dict[str, Pass] = {}
        folded = self.folded(axes, result)
        if folded is None:
            fold = None
            rows = self.rows(axes, result)
            columns = tuple(axis for axis in wide if axis not in rows)
            result = self.within(result, rows, extents, passes)
        else:
            element, fold = folded
            own = {axis for group in fold.groups for axis in group}
            rows, columns = tuple(axis for axis in wide if axis not in own), ()
            result = _replaced(result, element, Element(fold.name, (), fold.dtype))
            result = _mapped(result, self.stored)
            fold = fold.changed(lambda group: group, self.stored)
        found = tuple(passes.values())
        self.found.append(
            Phase(goal.source, wanted.dtype, goal.index, rows, found, columns, result, fold)
        )

    def folded(
        self, axes: Sequence[Axis], result: Scalar
    ) -> tuple[Element, Product | Running] | None:
        """The element of a result that is a matrix product for these axes, or else a scan."""
        for kind in (self.product, self.running):
            for element in elements(result):
                fold = kind(element, axes)
                if fold is not None:
                    return element, fold
        return None

    def merged(
        self, goal: Element, axes: tuple[Axis, ...], result: Scalar
    ) -> tuple[Element, tuple[Axis, ...], Scalar]:
        """The result with neighbouring axes as one, where a reduction or scan has the two as one
        axis, so that it is computed where it is needed."""
        while (group := next(self.joins(axes, result), None)) is not None:
            goal, axes, result = self.as_one(group, goal, axes, result)
        return goal, axes, result

    def as_one(
        self, group: tuple[Axis, ...], goal: Element, axes: tuple[Axis, ...], result: Scalar
    ) -> tuple[Element, tuple[Axis, ...], Scalar]:
        """The result with a group of axes as one."""
        joint, digits = _counter(group)
        whole = _joined(group)
        places = {axis.name: value for axis, value in digits}

        def element(each: Element) -> Element:
            if each.source in self.shapes:
                each = self.viewed(each, group, joint)
            index = tuple(joint.ref if symbolic.equal(e, whole) else e for e in each.index)
            moved = at(attrs.evolve(each, index=index), places)
            assert isinstance(moved, Element)
            return moved

        first = axes.index(group[0])
        axes = (*axes[:first], joint, *axes[first + len(group) :])
        return element(goal), axes, at(_mapped(result, element), places)

    def joins(self, axes: tuple[Axis, ...], result: Scalar) -> Iterator[tuple[Axis, ...]]:
        """Neighbouring axes that are one in a reduction or scan."""
        runs = [
            axes[first:last]
            for first, last in itertools.combinations(range(len(axes) + 1), 2)
            if last - first > 1
        ]
        for element in elements(result):
            held = isinstance(self.loops.values.get(element.source), Reduction | Scan)
            for each in element.index if held else ():
                if not isinstance(each, ir.Ref | ir.Literal):
                    yield from (run for run in runs if symbolic.equal(each, _joined(run)))

    def split(
        self, goal: Element, axes: tuple[Axis, ...], result: Scalar
    ) -> tuple[Element, tuple[Axis, ...], Scalar]:
        """The result with an axis as two, where a reduction has its digits as axes."""
        for element in list(elements(result)):
            value = self.loops.values.get(element.source)
            if not isinstance(value, Reduction):
                continue
            for first, upper, lower in zip(element.index, value.axes, value.axes[1:], strict=False):
                axis = next((a for a in axes if _upper(first, a, lower)), None)
                whole = ir.Binary("*", upper.extent, lower.extent)
                if axis is None or not symbolic.equal(whole, axis.extent):
                    continue
                pair = (Axis(f"{axis.name}g", upper.extent), Axis(axis.name, lower.extent))
                place = axes.index(axis)
                axes = (*axes[:place], *pair, *axes[place + 1 :])
                extents = {each.name: each.extent for each in axes}
                number = {axis.name: _joined(pair)}
                moved = at(goal, number)
                assert isinstance(moved, Element)
                return self.split(moved, axes, resolved(self.loops, at(result, number), extents))
        return goal, axes, result

    def shared(self, value: Reduction) -> bool:
        """Whether a workspace holds a reduction since several read it and it is dear: the sum of
        products of two values, each of which lacks an axis of the result."""
        if value.name in self.computing:
            return False
        match value.body:
            case Apply("mul", operands) if value.operation == "sum":
                used = [_indices(each) for each in operands]
            case _:
                return False
        axes = {axis.name for axis in value.axes if axis.extent != ir.Literal(1)}
        return self.readers[value.name] > 1 and all(axes - names for names in used)

    def product(self, element: Element, axes: Sequence[Axis]) -> Product | None:
        """The reduction that an element is of, as a matrix product for these axes: a sum of
        products of two elements, each with an axis of its own."""
        value = self.loops.values.get(element.source)
        if not isinstance(value, Reduction) or value.operation != "sum":
            return None
        if self.shared(value):
            return None
        own = {axis.name: axis for axis in axes}
        held = [e for e in element.index if e != ir.Literal(0)]
        if not value.dtype.is_float or len(held) != len(set(held)):
            return None
        if not all(isinstance(e, ir.Ref) and e.name in own for e in held):
            return None
        over = _renamed(value.over, "rstuvwxyz")
        replaced = dict(zip((axis.name for axis in value.axes), element.index, strict=True))
        replaced |= {old.name: new.ref for old, new in zip(value.over, over, strict=True)}
        inner = {axis.name: axis.extent for axis in (*axes, *over)}
        match at(value.body, replaced):
            case Apply("mul", (left, right)):
                factors = [
                    _factor(resolved(self.loops, e, inner)) or _factor(e) for e in (left, right)
                ]
            case _:
                return None
        if factors[0] is None or factors[1] is None:
            return None
        one, other = (names_in(each.index) for each in factors if each is not None)
        wide = [axis for axis in over if axis.extent != ir.Literal(1)]
        if not wide or not all(axis.name in one & other for axis in wide):
            return None
        used = {e.name for e in held if isinstance(e, ir.Ref)}
        if not used <= one | other:
            return None
        alone = [tuple(a for a in axes if a.name in names) for names in (one - other, other - one)]
        if not alone[0] or not alone[1]:
            return None
        if axes.index(alone[0][-1]) > axes.index(alone[1][-1]):
            alone.reverse()
            factors.reverse()
        (down, across), (first, second) = alone, factors
        assert first is not None
        assert second is not None
        return Product("product", value.dtype, down, across, tuple(wide), first, second)

    def running(self, element: Element, axes: Sequence[Axis]) -> Running | None:
        """The scan that an element is of, where it follows these axes."""
        value = self.loops.values.get(element.source)
        own = {axis.name: axis for axis in axes}
        index = element.index
        if not isinstance(value, Scan) or element.pad is not None or len(set(index)) < len(index):
            return None
        if not all(isinstance(e, ir.Ref) and e.name in own for e in index):
            return None
        if len(index) != len([axis for axis in axes if axis.extent != ir.Literal(1)]):
            return None
        replaced = dict(zip((axis.name for axis in value.axes), index, strict=True))
        along = replaced[value.along.name]
        assert isinstance(along, ir.Ref)
        extents = {axis.name: axis.extent for axis in axes}
        body = resolved(self.loops, at(value.body, replaced), extents)
        return Running("running", value.operation, value.dtype, own[along.name], body)

    def stored(self, element: Element) -> Element:
        """The element where memory holds it: in a workspace, if it is one of a value."""
        value = self.loops.values.get(element.source)
        return element if value is None else attrs.evolve(element, source=self.workspace(value))

    def rows(self, axes: Sequence[Axis], result: Scalar) -> tuple[Axis, ...]:
        """The axes of the reductions in a result: those of the one that has the most."""
        best: tuple[Axis, ...] = ()
        for element in elements(result):
            value = self.loops.values.get(element.source)
            if isinstance(value, Reduction) and not self.shared(value):
                used = names_in(element.index)
                own = tuple(axis for axis in axes if axis.name in used)
                plain = all(isinstance(each, ir.Ref | ir.Literal) for each in element.index)
                if plain and len(own) > len(best):
                    best = own
        return best

    def within(
        self,
        scalar: Scalar,
        rows: tuple[Axis, ...],
        extents: Mapping[str, ir.Expr],
        passes: dict[str, Pass],
    ) -> Scalar:
        """The scalar with its reductions as passes of the row, or as elements of workspaces."""
        match scalar:
            case Element(source, index, dtype, pad):
                value = self.loops.values.get(source)
                passing = pad is None and _of_row(index, rows)
                if passing and isinstance(value, Reduction) and not self.shared(value):
                    return Element(self.passed(value, index, rows, extents, passes), (), dtype)
                fetched = tuple(
                    (name, self.within(each, rows, extents, passes))
                    for name, each in scalar.fetched
                )
                return self.stored(attrs.evolve(scalar, fetched=fetched))
            case Apply():
                operands = (self.within(each, rows, extents, passes) for each in scalar.operands)
                return attrs.evolve(scalar, operands=tuple(operands))
            case _:
                return scalar

    def passed(
        self,
        reduction: Reduction,
        index: Index,
        rows: tuple[Axis, ...],
        extents: Mapping[str, ir.Expr],
        passes: dict[str, Pass],
    ) -> str:
        """The name of the pass that computes a reduction of this row."""
        over = _renamed(reduction.over, "rstuvwxyz")
        replaced = dict(zip((axis.name for axis in reduction.axes), index, strict=True))
        replaced |= {old.name: new.ref for old, new in zip(reduction.over, over, strict=True)}
        inner = {**extents, **{axis.name: axis.extent for axis in over}}
        body = resolved(self.loops, at(reduction.body, replaced), inner)
        body = self.within(body, rows, inner, passes)
        over = tuple(axis for axis in over if axis.extent != ir.Literal(1))
        for each in passes.values():
            if (each.operation, each.over, each.body) == (reduction.operation, over, body):
                return each.name
        name = free_name(_NAMES[reduction.operation], passes)
        passes[name] = Pass(name, reduction.operation, reduction.dtype, over, body)
        return name

    def workspace(self, value: Value) -> str:
        """The tensor that holds a value, after a phase of its own."""
        if value.name not in self.held:
            wanted = "PARTIAL" if isinstance(value, Reduction) else "INTERIM"
            name = free_name(wanted, self.shapes)
            self.held[value.name] = name
            self.shapes[name] = tuple(axis.extent for axis in value.axes)
            self.workspaces[name] = value.dtype
            axes = _renamed(value.axes, "ijklmnpq")
            index = tuple(axis.ref for axis in axes)
            self.computing.add(value.name)
            self.tensor(name, axes, Element(value.name, index, value.dtype))
            self.computing.discard(value.name)
        return self.held[value.name]

    # ------------------------------------------------------------ fewer axes

    def flattened(self, phase: Phase) -> Phase:
        """The phase with neighbouring axes made one, where every access allows it: a view of the
        tensor has one axis there."""
        phase = phase.changed(lambda own: own, self.undivided)
        while True:
            pairs = (pair for group in phase.groups for pair in itertools.pairwise(group))
            pair = next((pair for pair in pairs if self.joinable(phase, *pair)), None)
            if pair is None:
                break
            phase = self.joined(phase, *pair)
        for group in () if phase.fold is None else phase.fold.groups:
            if len(group) > 1:
                phase = self.counted(phase, group)
        return phase

    def accesses(self, phase: Phase) -> Iterator[tuple[str, Index]]:
        yield phase.target, phase.place
        for scalar in phase.scalars():
            for element in elements(scalar):
                yield element.source, element.index

    def joinable(self, phase: Phase, first: Axis, second: Axis) -> bool:
        pair = {first.name, second.name}
        for scalar in phase.scalars():
            for part in parts(scalar):
                number = part.value if isinstance(part, Number) else None
                if isinstance(number, ir.Expr) and names(number) & pair:
                    return False
        for source, index in self.accesses(phase):
            held = [n for n, each in enumerate(index) if names(each) & pair]
            if not held:
                continue
            if len(held) != 2 or held[1] != held[0] + 1:
                return False
            if [index[held[0]], index[held[1]]] != [first.ref, second.ref]:
                return False
            if not symbolic.equal(self.shapes[source][held[1]], second.extent):
                return False
        return True

    def joined(self, phase: Phase, first: Axis, second: Axis) -> Phase:
        extent = symbolic.simplify(ir.Binary("*", first.extent, second.extent))
        axis = Axis(first.name, extent)

        def axes(own: tuple[Axis, ...]) -> tuple[Axis, ...]:
            return tuple(axis if each == first else each for each in own if each != second)

        def element(each: Element) -> Element:
            index = each.index
            place = next((n for n, e in enumerate(index) if e == second.ref), None)
            if place is None:
                return each
            source = self.view(each.source, place - 1)
            return attrs.evolve(each, source=source, index=(*index[:place], *index[place + 1 :]))

        return phase.changed(axes, element)

    def counted(self, phase: Phase, group: tuple[Axis, ...]) -> Phase:
        """The phase with a group of axes run through by one number, whose digits they are; where an
        access has them side by side, it has that number in a view."""
        joint, digits = _counter(group)

        def axes(own: tuple[Axis, ...]) -> tuple[Axis, ...]:
            return (joint,) if own == group else own

        changed = phase.changed(axes, lambda each: self.viewed(each, group, joint))
        assert isinstance(changed.fold, Product)
        held = {**changed.fold.digits, joint.name: digits}
        return attrs.evolve(changed, fold=attrs.evolve(changed.fold, digits=held))

    def viewed(self, each: Element, group: tuple[Axis, ...], joint: Axis) -> Element:
        """The access by the number of a group of axes, where it has them side by side."""
        refs = tuple(axis.ref for axis in group)
        starts = range(len(each.index) - len(group) + 1)
        found = (n for n in starts if each.index[n : n + len(group)] == refs)
        place = next(found, None)
        if place is None or not self.dense(each.source, place, group):
            return each
        source = each.source
        for _ in group[1:]:
            source = self.view(source, place)
        index = (*each.index[:place], joint.ref, *each.index[place + len(group) :])
        return attrs.evolve(each, source=source, index=index)

    def undivided(self, each: Element) -> Element:
        """The access with two digits of a number side by side as that number, in a view."""
        while True:
            pairs = (
                (n, whole)
                for n, pair in enumerate(itertools.pairwise(each.index))
                if (whole := _undivided(*pair, self.shapes[each.source][n + 1])) is not None
            )
            found = next(pairs, None)
            if found is None:
                return each
            place, whole = found
            source = self.view(each.source, place)
            index = (*each.index[:place], whole, *each.index[place + 2 :])
            each = attrs.evolve(each, source=source, index=index)

    def dense(self, source: str, place: int, group: tuple[Axis, ...]) -> bool:
        """Whether the tensor's axes from `place` on are those of the group."""
        own = self.shapes[source][place + 1 : place + len(group)]
        return all(
            symbolic.equal(extent, axis.extent) for extent, axis in zip(own, group[1:], strict=True)
        )

    def view(self, source: str, place: int) -> str:
        """The tensor with the axes `place` and the next one as one."""
        own = self.shapes[source]
        extent = _product(own[place], own[place + 1])
        shape = (*own[:place], extent, *own[place + 2 :])
        base = self.views.get(source, source)
        for name, other in self.views.items():
            if other == base and self.shapes[name] == shape:
                return name
        name = free_name(f"{base}_FLAT", self.shapes)
        self.shapes[name], self.views[name] = shape, base
        return name


def _counter(group: tuple[Axis, ...]) -> tuple[Axis, Digits]:
    """The number that runs through a group of axes, and what these are of it."""
    whole: ir.Expr = ir.Literal(1)
    digits: list[tuple[Axis, ir.Expr]] = []
    number = ir.Ref("".join(axis.name for axis in group), ir.NameKind.LOOP)
    for axis in reversed(group):
        place = number if whole == ir.Literal(1) else ir.Binary("//", number, whole)
        first = axis == group[0]
        digits.insert(0, (axis, place if first else ir.Binary("%", place, axis.extent)))
        whole = _product(axis.extent, whole)
    return Axis(number.name, whole), tuple(digits)


def _product(one: ir.Expr, other: ir.Expr) -> ir.Expr:
    """The product as it is written: a normal form would spell the factors otherwise than the
    tensors' extents, which proofs compare them with."""
    if ir.Literal(1) in (one, other):
        return other if one == ir.Literal(1) else one
    whole = ir.Binary("*", one, other)
    value = symbolic.constant_value(whole)
    return whole if value is None else ir.Literal(value)


def _joined(group: Sequence[Axis]) -> ir.Expr:
    """The number in terms of the axes."""
    total: ir.Expr = ir.Literal(0)
    for axis in group:
        total = ir.Binary("+", ir.Binary("*", total, axis.extent), axis.ref)
    return symbolic.simplify(total)


def _undivided(first: ir.Expr, second: ir.Expr, extent: ir.Expr) -> ir.Expr | None:
    """The number of which two subscripts are the digits, the second one below the extent."""
    match second:
        case ir.Binary("%", number, divisor) if symbolic.equal(divisor, extent):
            upper = ir.Binary("//", number, divisor)
        case _:
            return None
    if symbolic.equal(first, upper):
        return number
    match first:
        case ir.Binary("%", place, limit) if symbolic.equal(place, upper):
            whole = symbolic.simplify(ir.Binary("*", limit, divisor))
            return ir.Binary("%", number, whole)
        case _:
            return None


def _upper(subscript: ir.Expr, axis: Axis, lower: Axis) -> bool:
    """Whether a subscript is the upper digit of an axis whose lower one is the other."""
    return subscript == ir.Binary("//", axis.ref, lower.extent)


def _of_row(index: Index, rows: Sequence[Axis]) -> bool:
    """Whether an index is that of the row itself."""
    held = [e for e in index if e != ir.Literal(0)]
    return [r.ref for r in rows] == held


def _mapped(scalar: Scalar, change: Callable[[Element], Scalar]) -> Scalar:
    """The scalar with its elements changed."""
    match scalar:
        case Element():
            fetched = tuple((name, _mapped(each, change)) for name, each in scalar.fetched)
            return change(attrs.evolve(scalar, fetched=fetched))
        case Apply():
            operands = tuple(_mapped(each, change) for each in scalar.operands)
            return attrs.evolve(scalar, operands=operands)
        case _:
            return scalar


def _replaced(scalar: Scalar, old: Element, new: Element) -> Scalar:
    return _mapped(scalar, lambda each: new if each == old else each)


def _factor(scalar: Scalar) -> Element | None:
    """The element that a factor is, but for a type that is wider."""
    if any(each.fetched for each in elements(scalar)):
        return None
    match scalar:
        case Apply("cast", (Element() as element,)) if scalar.dtype.is_float:
            return element if element.dtype.is_float else None
        case Element():
            return scalar
        case _:
            return None


def _indices(scalar: Scalar) -> set[str]:
    """The names in all indices of a scalar."""
    return {name for each in elements(scalar) for name in names_in(each.index)}


def _readers(loops: Loops) -> Counter[str]:
    """How many outputs, reductions and scans read each reduction, through maps or not."""
    found: Counter[str] = Counter()
    outputs = {name for _, name in loops.outputs}
    through: dict[str, frozenset[str]] = {}
    for value in loops.values.values():
        sources = {element.source for element in elements(value.body)}
        reached = frozenset().union(*(through.get(source, frozenset()) for source in sources))
        if value.name in outputs or not isinstance(value, Map):
            found.update(reached)
        through[value.name] = reached if isinstance(value, Map) else frozenset({value.name})
    return found
