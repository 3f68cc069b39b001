"""The third stage of the built-in Designer: which values are computed together, in which launch.

A phase computes one tensor. Its rows are independent of each other; what a row needs of itself (its
maximum, then the sum of its exponentials) is reduced in passes over the row, and the last pass
gives the result. All maps are computed where they are needed. A reduction over other rows than the
phase's is a phase of its own and goes through a workspace.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from sketchc.agents.autosketch.epilogues import with_epilogues, with_held
from sketchc.agents.autosketch.flattening import (
    Flattener,
    accesses,
    counter,
    is_plain,
    is_whole,
    joined_number,
    upper_digit,
)
from sketchc.agents.autosketch.loops import (
    Apply,
    Axis,
    Best,
    Element,
    Index,
    Loops,
    Map,
    Rank,
    Reduction,
    Scalar,
    Scatter,
    Stepped,
    Value,
    at,
    computed_from,
    elements,
    is_expanded,
    is_product,
    looked_up,
    names_in,
    operations,
    resolved,
    simplified,
)
from sketchc.agents.autosketch.means import with_shifted_means
from sketchc.agents.autosketch.partial import FEW, with_partial_results, with_stored_terms
from sketchc.agents.autosketch.phase import (
    Attention,
    Chosen,
    Pass,
    Phase,
    Phases,
    Product,
    Ranked,
    Running,
    Scattered,
    mapped,
    replaced,
)
from sketchc.agents.autosketch.repeats import along_columns, without_repeats
from sketchc.agents.autosketch.rules.recurrences import kept_from_steps
from sketchc.agents.autosketch.running import axis_along, find_running, is_of_axes
from sketchc.agents.autosketch.templates.attention import find_attention
from sketchc.base.diagnostics import refuse
from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic
from sketchc.ir.evaluate import evaluate
from sketchc.ir.walk import free_name, names, parts, substitute

#: The most operations that one element may take.
_MOST_PARTS = 4000
#: How often phases are built anew, so that all load what came to be held in a workspace.
_ROUNDS = 4
#: What workspaces are called: of reductions, of other values, and of states of loops.
_NOUNS = ("PARTIAL", "INTERIM", "STATES")
#: What a reduction is called.
_NAMES = {"sum": "total", "prod": "product", "max": "largest", "min": "smallest"}


def build_phases(loops: Loops, sizes: Mapping[str, int], planes: bool = False) -> Phases:
    """Decide what is computed together; `sizes`: of the symbols, in the task's own inputs;
    `planes`: as for `designer.design`. Raises `UsageError` where an element takes too many
    operations."""
    loops = with_held(with_shifted_means(with_epilogues(without_repeats(loops))))
    _fits(loops)
    loops = with_stored_terms(loops)
    loops, kept = with_partial_results(loops, sizes, planes)
    for _ in range(_ROUNDS):
        builder = Builder(loops, kept, sizes)
        for tensor, value in loops.outputs:
            found = loops.values[value]
            axes = _renamed(found.axes, "ijklmnpq")
            index = tuple(axis.ref for axis in axes)
            builder.tensor(tensor, axes, Element(value, index, found.dtype))
        if builder.held.keys() <= kept:
            break
        kept |= builder.held.keys()
    return builder.phases(planes)


def _fits(loops: Loops) -> None:
    """Refuses values one element of which takes more than `_MOST_PARTS` operations."""
    sizes: dict[str, int] = {}
    for name, value in loops.values.items():
        size = operations(value, sizes)
        sizes[name] = size if is_expanded(value) else 0
        if size > _MOST_PARTS:
            refuse(
                f"the built-in Designer has no form for one element that takes more than "
                f"{_MOST_PARTS:,} operations"
            )


#: What the axes of reductions are called.
_OVER = "rstuvwxyz"


def _renamed(axes: Sequence[Axis], letters: str) -> tuple[Axis, ...]:
    return tuple(
        Axis(letters[n] if n < len(letters) else f"{letters[0]}{n}", axis.extent)
        for n, axis in enumerate(axes)
    )


def _apart(axes: Sequence[Axis], passes: Iterable[Pass]) -> tuple[Axis, ...]:
    """The axes of a pass, renamed where earlier `passes` have the name with another extent."""
    taken = {axis.name: axis.extent for each in passes for axis in each.over}
    used = {axis.name for axis in axes}
    found = []
    for axis in axes:
        if taken.get(axis.name, axis.extent) != axis.extent:
            letters = itertools.chain(_OVER, (f"{_OVER[0]}{n}" for n in itertools.count(1)))
            free = (n for n in letters if n not in used)
            fits = (n for n in free if taken.get(n, axis.extent) == axis.extent)
            axis = Axis(next(fits), axis.extent)
            used.add(axis.name)
        found.append(axis)
    return tuple(found)


class Builder:
    """Builds phases: those found so far, and the values that workspaces hold."""

    def __init__(self, loops: Loops, kept: frozenset[str], sizes: Mapping[str, int]) -> None:
        """`kept`: values that a workspace holds for some phase, so that others load them, too;
        `sizes`: of the symbols, in the task's own inputs."""
        self.sizes = sizes
        self.loops = loops
        self.kept = kept
        self.found: list[Phase] = []
        self.shapes = {tensor.name: tensor.extents for tensor in loops.declared.tensors}
        self.workspaces: dict[str, DType] = {}
        self.flat = Flattener(self.shapes)
        self.held: dict[str, str] = {}
        self.readers = _readers(loops)
        self.computing: set[str] = set()
        #: the loop of the host whose phases are being made
        self.step: Axis | None = None

    def phases(self, planes: bool) -> Phases:
        """The phases found, with merged axes (`planes`: as for `Flattener.flattened`), and the
        workspaces and views that they use, numbered in the order in which phases write them."""
        flat = tuple(along_columns(self.flat.flattened(phase, planes)) for phase in self.found)
        views, used = self.flat.views, self.numbered()
        taken = {used[n]: extents for n, extents in self.shapes.items() if n not in views}
        accessed = {source for phase in flat for source, _ in accesses(phase)}
        kept = [view for view in views if view in accessed]
        for view in kept:
            used[view] = free_name(f"{used[views[view]]}_FLAT", taken)
            taken[used[view]] = self.shapes[view]

        def renamed(each: Element) -> Element:
            return attrs.evolve(each, source=used.get(each.source, each.source))

        named = tuple(phase.changed(lambda own: own, renamed) for phase in flat)
        workspaces = {used[name]: self.workspaces[name] for name in used if name in self.workspaces}
        bases = {used[view]: used[views[view]] for view in kept}
        return Phases(self.loops.declared, named, taken, workspaces, bases)

    def numbered(self) -> dict[str, str]:
        """The final names of all tensors, by name; workspaces are numbered in order of writing."""
        found = {name: name for name in self.shapes if name not in self.workspaces}
        targets = (self.flat.views.get(phase.target, phase.target) for phase in self.found)
        for target in targets:
            if target in self.workspaces and target not in found:
                noun = next(noun for noun in _NOUNS if target.startswith(noun))
                found[target] = free_name(noun, set(found.values()))
        return found

    # ------------------------------------------------------------ one tensor

    def extents(self, axes: Sequence[Axis]) -> dict[str, ir.Expr]:
        """The extents, by name, of axes and of the loop of the host around them."""
        around = () if self.step is None else (self.step,)
        return {axis.name: axis.extent for axis in (*around, *axes)}

    def tensor(
        self, target: str, axes: tuple[Axis, ...], wanted: Scalar, before: Index = ()
    ) -> None:
        """Add the phases that compute a tensor, or the part of it at the subscripts `before`."""
        extents = self.extents(axes)
        result = resolved(self.loops, wanted, extents)
        whole = tuple(ir.Literal(0) if axis.extent == ir.Literal(1) else axis.ref for axis in axes)
        alone = None if before else result  # a scatter is of a whole tensor
        if isinstance(alone, Element) and self.scattered(target, axes, whole, alone):
            return
        goal = Element(target, (*before, *whole), wanted.dtype)
        goal, axes, result = self.split(goal, axes, result)
        goal, axes, result = self.merged(goal, axes, result)
        extents = self.extents(axes)
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
            result = replaced(result, element, Element(fold.name, (), fold.dtype))
            result = mapped(result, self.stored)
            fold = fold.changed(lambda group: group, self.stored)
        found = tuple(passes.values())
        self.found.append(
            Phase(
                goal.source,
                wanted.dtype,
                goal.index,
                rows,
                found,
                columns,
                result,
                fold,
                self.step,
            )
        )

    def scattered(self, target: str, axes: tuple[Axis, ...], whole: Index, wanted: Element) -> bool:
        """Add the phases of a tensor that is a scatter; False if it is none. First comes its base,
        then what goes where data says. Programs share no place: each axis that is a subscript of
        its own may run in parallel, the others run in order."""
        value = self.loops.values.get(wanted.source)
        if not isinstance(value, Scatter) or wanted.index != whole or wanted.pad is not None:
            return False
        if value.base is None and [a.extent for a in axes] != [a.extent for a in value.axes]:
            return False  # of a part of it: elsewhere the places lead outside
        if value.base is not None:
            own = dict(zip((axis.name for axis in value.axes), (a.ref for a in axes), strict=True))
            self.tensor(target, axes, at(value.base, own))
        elif self.in_place(target, axes, value):
            return True
        over = _renamed(value.over, _OVER)
        own = {old.name: new.ref for old, new in zip(value.over, over, strict=True)}
        extents = self.extents(over)
        index = _placed(value, axes, own, extents)
        alone = [e.name for e in index if isinstance(e, ir.Ref)]
        wide = [axis for axis in over if axis.extent != ir.Literal(1)]
        whole_rows = value.base is None  # nobody else writes there
        rows = tuple(a for a in wide if whole_rows or alone.count(a.name) == 1)
        data = tuple((name, self.in_memory(at(each, own), extents)) for name, each in value.fetched)
        rest = tuple(axis for axis in wide if axis not in rows)
        result = self.in_memory(at(value.body, own), extents)
        fold = Scattered("place", rest, value.operation, data, whole_rows)
        self.found.append(Phase(target, value.dtype, index, rows, (), (), result, fold, self.step))
        return True

    def in_place(self, target: str, axes: tuple[Axis, ...], scatter: Scatter) -> bool:
        """Add the phase that puts each element of a row in its place, which it counts itself;
        False where the scatter does something else, or others use the places, too."""
        ((name, place),) = scatter.fetched
        if not isinstance(place, Element) or self.readers[place.source] > 1:
            return False
        own = {old.name: new.ref for old, new in zip(scatter.over, axes, strict=True)}
        moved = at(place, own)
        fold = self.ranked(moved, axes) if isinstance(moved, Element) else None
        if fold is None:
            return False
        own[name] = ir.Ref(fold.name, ir.NameKind.BINDING)
        extents = self.extents(axes)
        index = _placed(scatter, axes, own, extents)
        rows = tuple(a for a in axes if a.extent != ir.Literal(1) and a != fold.axis)
        result = self.in_memory(at(scatter.body, own), extents)
        fold = fold.changed(lambda group: group, self.stored)
        self.found.append(
            Phase(target, scatter.dtype, index, rows, (), (), result, fold, self.step)
        )
        return True

    def in_memory(self, scalar: Scalar, extents: Mapping[str, ir.Expr]) -> Scalar:
        """The scalar in terms of the task's tensors and of workspaces."""
        return mapped(resolved(self.loops, scalar, extents), self.stored)

    def folded(
        self, axes: Sequence[Axis], result: Scalar
    ) -> tuple[Element, Attention | Product | Running | Chosen | Ranked] | None:
        """The first element of a result that is an attention or a matrix product for these axes, or
        else a scan, a choice of the best, or a place in an order, with that fold; None where there
        is none."""
        for kind in (self.attention, self.product, self.running, self.chosen, self.ranked):
            for element in elements(result):
                fold = kind(element, axes)
                if fold is not None:
                    return element, fold
        return None

    def merged(
        self, goal: Element, axes: tuple[Axis, ...], result: Scalar
    ) -> tuple[Element, tuple[Axis, ...], Scalar]:
        """The result, its goal and its axes, with neighbouring axes as one where a reduction or
        scan in the result has them as one axis, so that it can be computed in the same phase."""
        while (group := next(self.joins(axes, result), None)) is not None:
            goal, axes, result = self.as_one(group, goal, axes, result)
        return goal, axes, result

    def as_one(
        self, group: tuple[Axis, ...], goal: Element, axes: tuple[Axis, ...], result: Scalar
    ) -> tuple[Element, tuple[Axis, ...], Scalar]:
        """The result, its goal and its axes, with a group of axes merged into one."""
        joint, digits = counter(group)
        whole = joined_number(group)
        places = {axis.name: value for axis, value in digits}

        def element(each: Element) -> Element:
            if each.source in self.shapes:
                each = self.flat.viewed(each, group, joint)
            index = tuple(joint.ref if symbolic.equal(e, whole) else e for e in each.index)
            moved = at(attrs.evolve(each, index=index), places)
            assert isinstance(moved, Element)
            return moved

        first = axes.index(group[0])
        axes = (*axes[:first], joint, *axes[first + len(group) :])
        return element(goal), axes, at(mapped(result, element), places)

    def joins(self, axes: tuple[Axis, ...], result: Scalar) -> Iterator[tuple[Axis, ...]]:
        """The groups of neighbouring axes that are one axis of a reduction or scan in a result."""
        runs = [
            axes[first:last]
            for first, last in itertools.combinations(range(len(axes) + 1), 2)
            if last - first > 1
        ]
        for element in elements(result):
            value = self.loops.values.get(element.source)
            held = value is not None and not is_expanded(value)
            for each in element.index if held else ():
                if not isinstance(each, ir.Ref | ir.Literal):
                    yield from (run for run in runs if symbolic.equal(each, joined_number(run)))

    def split(
        self, goal: Element, axes: tuple[Axis, ...], result: Scalar
    ) -> tuple[Element, tuple[Axis, ...], Scalar]:
        """The result, its goal and its axes, with an axis as two where a reduction in the result
        has its digits as axes, or a matrix product its lower digit."""
        for axis, upper, lower in self.digits(axes, result):
            if not symbolic.equal(ir.Binary("*", upper, lower), axis.extent):
                continue
            first_digit = upper_digit(axis, upper, self.extents(axes))
            pair = (first_digit, Axis(axis.name, lower))
            place = axes.index(axis)
            axes = (*axes[:place], *pair, *axes[place + 1 :])
            extents = self.extents(axes)
            number = {axis.name: joined_number(pair)}
            moved = at(goal, number)
            assert isinstance(moved, Element)
            return self.split(moved, axes, resolved(self.loops, at(result, number), extents))
        return goal, axes, result

    def digits(
        self, axes: Sequence[Axis], result: Scalar
    ) -> Iterator[tuple[Axis, ir.Expr, ir.Expr]]:
        """The axes that may be two, with the extents of both digits: as `i//n` and `i%n` are axes
        of a value in memory, or `i%n` is one of a matrix product (the columns of all heads)."""
        for element in list(elements(result)):
            value = self.loops.values.get(element.source)
            if not isinstance(value, Map | Reduction) or is_expanded(value):
                continue
            if isinstance(value, Reduction) and self.has_rows(value):
                for each, upper in zip(element.index, value.axes, strict=True):
                    for divided in (a for a in axes if _is_quotient(each, a)):
                        assert isinstance(each, ir.Binary)
                        yield divided, upper.extent, each.right
            for first, upper, lower in zip(element.index, value.axes, value.axes[1:], strict=False):
                axis = next((a for a in axes if _upper(first, a, lower)), None)
                if axis is not None:
                    yield axis, upper.extent, lower.extent
            inner = (part for each in element.index for part in parts(each))
            for part in inner if is_product(value) else ():
                match part:
                    case ir.Binary("%", ir.Ref() as number, size):
                        for axis in (a for a in axes if a.ref == number):
                            whole = symbolic.simplify(ir.Binary("//", axis.extent, size))
                            yield axis, whole, size

    def shared(self, value: Reduction) -> bool:
        """Whether a workspace holds a reduction: for another phase, or since it is a matrix product
        that several values read."""
        if value.name in self.computing:
            return False
        if value.name in self.kept:
            return True
        return self.readers[value.name] > 1 and is_product(value)

    def has_rows(self, value: Reduction) -> bool:
        """Whether a reduction may be computed beside what reads it, in programs of many rows, at
        the task's own sizes."""
        extents = [axis.extent for axis in value.axes]
        known = self.sizes.keys() >= {name for each in extents for name in names(each)}
        rows = math.prod(int(evaluate(each, self.sizes)) for each in extents) if known else 0
        return rows >= FEW and not self.shared(value) and not is_product(value)

    def at_most(self, extent: ir.Expr, limit: int) -> bool:
        """Whether an extent is at most `limit`, at the task's own sizes; False if that is open."""
        return self.sizes.keys() >= set(names(extent)) and evaluate(extent, self.sizes) <= limit

    def attention(self, element: Element, axes: Sequence[Axis]) -> Attention | None:
        """The reduction that an element reads as an attention for these axes; else None."""
        return find_attention(self, element, axes)

    def product(self, element: Element, axes: Sequence[Axis]) -> Product | None:
        """The reduction that an element reads as a matrix product for these axes: a sum of products
        of two elements, each with an axis of its own; None where it is none."""
        value = self.loops.values.get(element.source)
        if not isinstance(value, Reduction) or value.operation != "sum":
            return None
        if self.shared(value) or element.pad is not None:
            return None  # loaded from a workspace, or padded
        if not value.dtype.is_float or not is_whole(element.index, axes):
            return None
        over = _renamed(value.over, _OVER)
        replaced = dict(zip((axis.name for axis in value.axes), element.index, strict=True))
        replaced |= {old.name: new.ref for old, new in zip(value.over, over, strict=True)}
        inner = self.extents((*axes, *over))
        match at(value.body, replaced):
            case Apply("mul", (left, right)):
                factors = [self.factor(each, inner) for each in (left, right)]
            case _:
                return None
        if factors[0] is None or factors[1] is None:
            return None
        # An element that a condition on an axis leaves out lies along that axis, too.
        one, other = (
            names_in((*each.index, *([] if each.where is None else [each.where])))
            for each in factors
            if each is not None
        )
        wide = [axis for axis in over if axis.extent != ir.Literal(1)]
        if not wide or not all(axis.name in one & other for axis in wide):
            return None
        part = _part(value, element.index, axes)
        if not names_in(element.index) - {part and part.name} <= one | other:
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
        return Product("product", value.dtype, down, across, tuple(wide), first, second, part=part)

    def factor(self, scalar: Scalar, axes: Mapping[str, ir.Expr]) -> Element | None:
        """The element that a factor of a product is, of one of the task's tensors or of a value
        that memory is to hold; None where it is none. Of another product whose places are digits
        (heads, whose columns are joined), that is a view of it, which is stored as it is read."""
        held = _factor(mapped(scalar, lambda element: looked_up(self.loops, element, axes)))
        found = _factor(resolved(self.loops, scalar, axes))
        if found is None or held is None:
            return found or held
        value = self.loops.values.get(found.source)
        joined = isinstance(value, Reduction) and is_product(value) and not self.shared(value)
        if joined and self.readers[found.source] == 1 and _has_digits(found.index):
            return held if is_plain(held.index) else found
        return found

    def running(self, element: Element, axes: Sequence[Axis]) -> Running | None:
        """The scan that an element reads, where its index is that of these axes; else None."""
        value = self.loops.values.get(element.source)
        return find_running(self.loops, value, element, axes, self.extents(axes))

    def chosen(self, element: Element, axes: Sequence[Axis]) -> Chosen | None:
        """The choice that an element reads, where its index is that of these axes; else None."""
        value = self.loops.values.get(element.source)
        if not isinstance(value, Best) or not is_of_axes(value, element, axes):
            return None
        (over,) = _renamed([value.over], _OVER)
        replaced = dict(zip((axis.name for axis in value.axes), element.index, strict=True))
        replaced[value.over.name] = over.ref
        axis = axis_along(value, element, axes)
        extents = self.extents((*axes, over))
        body = resolved(self.loops, at(value.body, replaced), extents)
        name = "place" if value.places else "best"
        return Chosen(name, value.dtype, axis, over, value.largest, value.places, body)

    def ranked(self, element: Element, axes: Sequence[Axis]) -> Ranked | None:
        """The place in an order that an element reads, where its index is that of these axes; else
        None."""
        value = self.loops.values.get(element.source)
        if not isinstance(value, Rank) or not is_of_axes(value, element, axes):
            return None
        axis = axis_along(value, element, axes)
        (over,) = _renamed([value.along], _OVER)
        own = dict(zip((each.name for each in value.axes), element.index, strict=True))
        extents = self.extents((*axes, over))
        body, other = (
            resolved(self.loops, at(value.body, own | {value.along.name: place}), extents)
            for place in (own[value.along.name], over.ref)
        )
        return Ranked("place", value.dtype, axis, over, value.descending, body, other)

    def stored(self, element: Element) -> Element:
        """The element of the tensor that memory holds: of a workspace, if its source is a value."""
        value = self.loops.values.get(element.source)
        return element if value is None else attrs.evolve(element, source=self.workspace(value))

    def rows(self, axes: Sequence[Axis], result: Scalar) -> tuple[Axis, ...]:
        """The rows of a phase: of the reductions in its result, the axes of that with the most."""
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
        over = _renamed(reduction.over, _OVER)
        replaced = dict(zip((axis.name for axis in reduction.axes), index, strict=True))
        replaced |= {old.name: new.ref for old, new in zip(reduction.over, over, strict=True)}
        inner = {**extents, **{axis.name: axis.extent for axis in over}}
        body = resolved(self.loops, at(reduction.body, replaced), inner)
        body = self.within(body, rows, inner, passes)
        over = tuple(axis for axis in over if axis.extent != ir.Literal(1))
        apart = _apart(over, passes.values())
        body = at(body, {old.name: new.ref for old, new in zip(over, apart, strict=True)})
        over = apart
        part = _part(reduction, index, rows)
        for each in passes.values():
            found = (each.operation, each.over, each.body, each.part)
            if found == (reduction.operation, over, body, part):
                return each.name
        name = free_name(_NAMES[reduction.operation], passes)
        passes[name] = Pass(name, reduction.operation, reduction.dtype, over, body, part)
        return name

    def workspace(self, value: Value) -> str:
        """The workspace that holds a value; the phases that compute it are added before its use."""
        if isinstance(value, Stepped):
            return self.stepped(value)
        if value.name not in self.held:
            noun = _NOUNS[0] if isinstance(value, Reduction) else _NOUNS[1]
            name = free_name(noun, self.shapes)
            self.held[value.name] = name
            self.shapes[name] = tuple(axis.extent for axis in value.axes)
            self.workspaces[name] = value.dtype
            axes = _renamed(value.axes, "ijklmnpq")
            index = tuple(axis.ref for axis in axes)
            wanted: Scalar = Element(value.name, index, value.dtype)
            if isinstance(value, Map) and value.stored:
                own = dict(zip((axis.name for axis in value.axes), index, strict=True))
                wanted = at(value.body, own)
            self.computing.add(value.name)
            self.tensor(name, axes, wanted)
            self.computing.discard(value.name)
        return self.held[value.name]

    def stepped(self, value: Stepped) -> str:
        """The workspace that holds a state after each step of a loop; at the first use of one of
        the loop's states, all phases of the loop are added."""
        if value.name not in self.held:
            if self.step is not None:
                refuse("the built-in Designer has no form for a loop within a loop")
            states = [
                other
                for other in self.loops.values.values()
                if isinstance(other, Stepped) and other.step == value.step
            ]
            for each in states:
                name = free_name(_NOUNS[2], self.shapes)
                self.held[each.name] = name
                behind = ir.Binary("+", each.step.extent, ir.Literal(each.ahead))
                extents = (axis.extent for axis in each.axes)
                self.shapes[name] = (symbolic.simplify(behind), *extents)
                self.workspaces[name] = each.dtype
                self.flat.fixed.add(name)
            for kept in kept_from_steps(self.loops, states):
                self.workspace(kept)
            self.states(states, first=True)
            self.step = value.step
            self.states(states, first=False)
            self.step = None
        return self.held[value.name]

    def states(self, states: Sequence[Stepped], *, first: bool) -> None:
        """Add the phases that compute the initial value of each state (`first`), or that after a
        step."""
        for each in states:
            axes = _renamed(each.axes, "ijklmnpq")
            own = {old.name: new.ref for old, new in zip(each.axes, axes, strict=True)}
            behind = ir.Binary("+", each.step.ref, ir.Literal(each.ahead))
            body = each.first if first else each.body
            place = ir.Literal(0) if first else symbolic.simplify(behind)
            if body is not None:
                self.tensor(self.held[each.name], axes, at(body, own), (place,))


def _part(value: Reduction, index: Index, axes: Sequence[Axis]) -> Axis | None:
    """The axis of a phase, of `axes`, at which only a part of a reduction's terms counts."""
    if value.part is None:
        return None
    place = index[value.axes.index(value.part)]
    return next(axis for axis in axes if axis.ref == place)


def _placed(
    scatter: Scatter,
    axes: Sequence[Axis],
    own: Mapping[str, ir.Expr],
    extents: Mapping[str, ir.Expr],
) -> Index:
    """The place of a scatter in a tensor with the axes `axes`, its axes replaced by `own`."""
    return tuple(
        ir.Literal(0) if axis.extent == ir.Literal(1) else simplified(substitute(e, own), extents)
        for axis, e in zip(axes, scatter.place, strict=True)
    )


def _has_digits(index: Index) -> bool:
    """Whether a subscript is made of quotients or remainders."""
    inner = (part for each in index for part in parts(each))
    return any(isinstance(part, ir.Binary) and part.operator in ("//", "%") for part in inner)


def _is_quotient(subscript: ir.Expr, axis: Axis) -> bool:
    """Whether a subscript is a quotient of an axis by a number that is no axis."""
    match subscript:
        case ir.Binary("//", left, ir.Literal() | ir.Ref(kind=ir.NameKind.SYMBOL)):
            return left == axis.ref
    return False


def _upper(subscript: ir.Expr, axis: Axis, lower: Axis) -> bool:
    """Whether a subscript is the upper digit of `axis`, whose lower one has `lower`'s extent."""
    return subscript == ir.Binary("//", axis.ref, lower.extent)


def _of_row(index: Index, rows: Sequence[Axis]) -> bool:
    """Whether an index is that of the row itself: `rows` in order, zeros aside."""
    held = [e for e in index if e != ir.Literal(0)]
    return [r.ref for r in rows] == held


def _factor(scalar: Scalar) -> Element | None:
    """The element that a factor is, a cast between floats aside; None where it is none."""
    if any(each.fetched for each in elements(scalar)):
        return None
    match scalar:
        case Apply("cast", (Element() as element,)) if scalar.dtype.is_float:
            return element if element.dtype.is_float else None
        case Element():
            return scalar
        case _:
            return None


def _readers(loops: Loops) -> Counter[str]:
    """For each value that memory holds, how many outputs and other such values read it, directly or
    through maps. What no output needs does not count."""
    found: Counter[str] = Counter()
    outputs = {name for _, name in loops.outputs}
    read = {
        value.name: {e.source for scalar in computed_from(value) for e in elements(scalar)}
        for value in loops.values.values()
    }
    needed: set[str] = set()
    left = [*outputs]
    while left:
        name = left.pop()
        if name in read and name not in needed:
            needed.add(name)
            left += read[name]
    through: dict[str, frozenset[str]] = {}
    for value in (each for each in loops.values.values() if each.name in needed):
        sources = read[value.name]
        reached = frozenset().union(*(through.get(source, frozenset()) for source in sources))
        if value.name in outputs or not is_expanded(value):
            found.update(reached)
        through[value.name] = reached if is_expanded(value) else frozenset({value.name})
    return found
