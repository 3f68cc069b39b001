"""Merges neighbouring axes of a phase into one, where tensors or views of them allow it."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterator, Sequence

import attrs

from sketchc.agents.autosketch.loops import (
    Axis,
    Element,
    Index,
    Number,
    elements,
    parts,
    row_major,
    simplified,
)
from sketchc.agents.autosketch.phase import Digits, Phase, Product
from sketchc.agents.autosketch.windows import windows
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic
from sketchc.ir.walk import free_name, names, substitute


class Flattener:
    """Merges axes where every access allows it. `shapes` are the extents of all tensors and views,
    those it makes included; `views` is the tensor of each view. No view is made of the tensors in
    `fixed`: that a loop stored what it loads is proved only where both have the same axes."""

    def __init__(self, shapes: dict[str, tuple[ir.Expr, ...]]) -> None:
        self.shapes = shapes
        self.views: dict[str, str] = {}
        self.fixed: set[str] = set()

    def flattened(self, phase: Phase, planes: bool) -> Phase:
        """The phase with neighbouring axes merged where every access allows it, by views of the
        tensors in which they are one axis. `planes`: the axes along which windows move are digits
        of one, too."""
        phase = phase.changed(lambda own: own, self.undivided)
        while True:
            pairs = [pair for group in phase.groups for pair in itertools.pairwise(group)]
            pair = next((pair for pair in pairs if self.joinable(phase, *pair)), None)
            if pair is not None:
                phase = self.joined(phase, *pair)
                continue
            divided = (self.divided(phase, *pair) for pair in pairs)
            cut = (self.cut(phase, *pair) for pair in pairs)
            whole = itertools.chain(divided, cut)
            found = next((each for each in whole if each is not None), None)
            if found is None:
                break
            phase = found
        phase = self.in_steps(phase)
        for group in () if phase.fold is None else phase.fold.groups:
            if len(group) > 1:
                phase = self.counted(phase, group)
        plane = _plane(phase) if planes else ()
        return phase if len(plane) < 2 else self.counted(phase, plane)

    def in_steps(self, phase: Phase) -> Phase:
        """The phase with a view of its target that has an axis for each digit of a subscript, where
        the upper digit is an axis of the fold and the lower one of the rows: that the steps of two
        programs never meet is proved of axes."""
        folded = () if phase.fold is None else itertools.chain.from_iterable(phase.fold.groups)
        pairs = [(upper, lower) for upper in folded for lower in phase.rows]
        shape: list[ir.Expr] = []
        place: list[ir.Expr] = []
        for subscript, extent in zip(phase.place, self.shapes[phase.target], strict=True):
            pair = next((p for p in pairs if symbolic.equal(subscript, joined_number(p))), ())
            parts = tuple(axis.extent for axis in pair)
            if not pair or not symbolic.equal(_product(*parts), extent):
                pair, parts = (), (extent,)
            place += [axis.ref for axis in pair] or [subscript]
            shape += parts
        if len(place) == len(phase.place):
            return phase
        return attrs.evolve(
            phase, target=self.view_as(phase.target, tuple(shape)), place=tuple(place)
        )

    def joinable(self, phase: Phase, first: Axis, second: Axis) -> bool:
        """Whether all accesses have the two axes side by side, as one axis of a view needs it."""
        pair = {first.name, second.name}
        if pair & _besides(phase):
            return False
        for source, index in accesses(phase):
            held = [n for n, each in enumerate(index) if names(each) & pair]
            if not held:
                continue
            if source in self.fixed or len(held) != 2 or held[1] != held[0] + 1:
                return False
            if [index[held[0]], index[held[1]]] != [first.ref, second.ref]:
                return False
            if not symbolic.equal(self.shapes[source][held[1]], second.extent):
                return False
        return True

    def divided(self, phase: Phase, first: Axis, second: Axis) -> Phase | None:
        """The phase with views that have `first` as an axis of their own, where a tensor has it as
        the last digit of a subscript, as `i*42 + c`; None where `first` and `second` are not
        joinable then, either."""
        upper = [axis for group in phase.groups for axis in group if axis != first]

        def element(each: Element) -> Element:
            if not each.index or each.source in self.fixed:
                return each
            shape = self.shapes[each.source]
            for place, (subscript, extent) in enumerate(zip(each.index, shape, strict=True)):
                if first.name not in names(subscript) or subscript == first.ref:
                    continue
                for axis in upper:
                    whole = _product(axis.extent, first.extent)
                    number = joined_number((axis, first))
                    if symbolic.equal(whole, extent) and symbolic.equal(subscript, number):
                        parts = (axis.extent, first.extent)
                        source = self.view_as(
                            each.source, (*shape[:place], *parts, *shape[place + 1 :])
                        )
                        index = (*each.index[:place], axis.ref, first.ref, *each.index[place + 1 :])
                        return attrs.evolve(each, source=source, index=index)
            return each

        changed = phase.changed(lambda own: own, element)
        differs = [*accesses(changed)] != [*accesses(phase)]
        return changed if differs and self.joinable(changed, first, second) else None

    def cut(self, phase: Phase, first: Axis, second: Axis) -> Phase | None:
        """The phase with `first` split into two axes, where an access has its upper digit, as
        `c//42`; None where the lower axis is not joinable with `second` then."""
        found = {
            (symbolic.simplify(extent), subscript.right)
            for source, index in accesses(phase)
            for subscript, extent in zip(index, self.shapes.get(source, ()), strict=False)
            if isinstance(subscript, ir.Binary)
            and (subscript.operator, subscript.left) == ("//", first.ref)
        }
        if len(found) != 1 or first.name in _besides(phase):
            return None
        ((extent, divisor),) = found
        if not symbolic.equal(ir.Binary("*", extent, divisor), first.extent):
            return None
        extents = {axis.name: axis.extent for group in phase.groups for axis in group}
        upper = upper_digit(first, extent, extents)
        lower = Axis(first.name, divisor)
        number = {first.name: joined_number((upper, lower))}
        extents |= {upper.name: upper.extent, lower.name: lower.extent}

        def axes(own: tuple[Axis, ...]) -> tuple[Axis, ...]:
            pairs = ((upper, lower) if each == first else (each,) for each in own)
            return tuple(itertools.chain.from_iterable(pairs))

        def element(each: Element) -> Element:
            moved = (simplified(substitute(e, number), extents) for e in each.index)
            return attrs.evolve(each, index=tuple(moved))

        return self.divided(phase.changed(axes, element), lower, second)

    def joined(self, phase: Phase, first: Axis, second: Axis) -> Phase:
        """The phase with the axes `first` and `second` merged into one."""
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
        """The phase with the axes of `group`, of the fold or the last of the rows, replaced by one
        axis whose digits they are; an access that has them side by side becomes an access of a view
        by that axis."""
        joint, digits = counter(group)

        def axes(own: tuple[Axis, ...]) -> tuple[Axis, ...]:
            return (*own[: -len(group)], joint) if own[-len(group) :] == group else own

        changed = phase.changed(axes, lambda each: self.viewed(each, group, joint))
        if not isinstance(changed.fold, Product):
            return attrs.evolve(changed, digits=digits)
        held = {**changed.fold.digits, joint.name: digits}
        return attrs.evolve(changed, fold=attrs.evolve(changed.fold, digits=held))

    def viewed(self, each: Element, group: tuple[Axis, ...], joint: Axis) -> Element:
        """The access, of a view by `joint` where it has the axes of `group` side by side."""
        refs = tuple(axis.ref for axis in group)
        starts = range(len(each.index) - len(group) + 1)
        found = (n for n in starts if each.index[n : n + len(group)] == refs)
        place = next(found, None)
        if place is None or each.source in self.fixed or not self.dense(each.source, place, group):
            return each
        source = each.source
        for _ in group[1:]:
            source = self.view(source, place)
        index = (*each.index[:place], joint.ref, *each.index[place + len(group) :])
        return attrs.evolve(each, source=source, index=index)

    def undivided(self, each: Element) -> Element:
        """The access, of a view with a number in place of two subscripts that are its digits."""
        while each.source not in self.fixed:
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
        return each

    def dense(self, source: str, place: int, group: tuple[Axis, ...]) -> bool:
        """Whether the tensor's extents from `place` on are the group's, the first of them aside."""
        own = self.shapes[source][place + 1 : place + len(group)]
        return all(
            symbolic.equal(extent, axis.extent) for extent, axis in zip(own, group[1:], strict=True)
        )

    def view(self, source: str, place: int) -> str:
        """The name of a view of `source` in which axis `place` and the next one are one axis."""
        own = self.shapes[source]
        extent = _product(own[place], own[place + 1])
        return self.view_as(source, (*own[:place], extent, *own[place + 2 :]))

    def view_as(self, source: str, shape: Index) -> str:
        """The name of a view of `source` with the extents `shape`, an existing one if possible."""
        base = self.views.get(source, source)
        for name, other in self.views.items():
            if other == base and self.shapes[name] == shape:
                return name
        name = free_name(f"{base}_FLAT", self.shapes)
        self.shapes[name], self.views[name] = shape, base
        return name


def accesses(phase: Phase) -> Iterator[tuple[str, Index]]:
    """All tensors and views that a phase accesses, each with the index."""
    yield phase.target, phase.place
    for scalar in phase.scalars():
        for element in elements(scalar):
            yield element.source, element.index


def _plane(phase: Phase) -> tuple[Axis, ...]:
    """The last axes of the rows along which windows move, where rows reduce windows alone: lanes
    along one of these would be few in a small image, and its edges few in a large one."""
    moving = windows(phase)
    over = [axis for each in phase.passes for axis in each.over]
    if phase.fold is not None or not over or not all(axis.name in moving for axis in over):
        return ()
    subscripts = [names(each) for _, index in accesses(phase) for each in index]
    moved = set[str]().union(*(used for used in subscripts if used & moving))
    behind = itertools.takewhile(lambda axis: axis.name in moved, reversed(phase.rows))
    return tuple(behind)[::-1]


def _besides(phase: Phase) -> set[str]:
    """The names of axes that a phase uses in numbers and conditions, outside of any index, or for
    parts of a reduction."""
    parts_of = [each.part for each in phase.passes]
    if isinstance(phase.fold, Product):
        parts_of.append(phase.fold.part)
    found = {axis.name for axis in parts_of if axis is not None}
    if isinstance(phase.fold, Product) and phase.fold.where is not None:
        found |= set(names(phase.fold.where))
    for part in itertools.chain.from_iterable(map(parts, phase.scalars())):
        match part:
            case Number(value) if isinstance(value, ir.Expr):
                found |= set(names(value))
            case Element(where=where) if where is not None:
                found |= set(names(where))
    return found


def upper_digit(axis: Axis, extent: ir.Expr, taken: Container[str]) -> Axis:
    """The axis of the upper digit of `axis`, whose lower one keeps its name: named after it, as no
    axis in `taken` is."""
    return Axis(free_name(f"{axis.name}g", taken), extent)


def counter(group: tuple[Axis, ...]) -> tuple[Axis, Digits]:
    """The joint axis that runs through a group of axes, and each of these as a digit of it."""
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
    """The product of two extents, not normalized: a normal form would spell the factors unlike the
    tensors' extents, which proofs compare them with."""
    if ir.Literal(1) in (one, other):
        return other if one == ir.Literal(1) else one
    whole = ir.Binary("*", one, other)
    value = symbolic.constant_value(whole)
    return whole if value is None else ir.Literal(value)


def joined_number(group: Sequence[Axis]) -> ir.Expr:
    """The row-major number of an index along the axes of `group`, as a formula over them."""
    whole = row_major([axis.ref for axis in group], [axis.extent for axis in group])
    return symbolic.simplify(whole)


def is_plain(index: Index) -> bool:
    """Whether an index consists of different axes, zeros aside."""
    held = [each for each in index if each != ir.Literal(0)]
    return len(held) == len(set(held)) and all(isinstance(each, ir.Ref) for each in held)


def is_whole(index: Index, axes: Sequence[Axis]) -> bool:
    """Whether an index consists of these axes, none of them twice, and of numbers whose digits they
    are; zeros aside."""
    seen: set[str] = set()
    for each in (e for e in index if e != ir.Literal(0)):
        own = set(names(each))
        digits = [axis for axis in axes if axis.name in own]
        if own & seen or len(digits) < len(own):
            return False
        if not isinstance(each, ir.Ref) and not symbolic.equal(each, joined_number(digits)):
            return False
        seen |= own
    return True


def _undivided(first: ir.Expr, second: ir.Expr, extent: ir.Expr) -> ir.Expr | None:
    """The number whose digits are `first` and `second`, the latter modulo `extent`; else None."""
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
