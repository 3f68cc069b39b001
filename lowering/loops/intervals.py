"""Loops over lanes are split where a guard holds for an interval of lanes.

Lanes that a padded load finds outside of its tensor take the padding, and a guard on each single
lane keeps a compiler from making vectors of what the others read with a stride. `split_guards`
makes three loops of one: before the interval and behind it all lanes take the padding, inside of it
none does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from sketchc.ir import nodes as ir
from sketchc.ir.walk import names
from sketchc.lowering.loops import nodes


def split_guards(
    body: tuple[nodes.Statement, ...], fresh: Callable[[str], str], tensors: frozenset[str]
) -> tuple[nodes.Statement, ...]:
    """The statements with their loops over lanes split. Loops that write `tensors`, which may be
    written past the caches in blocks, and those that combine lanes, whose order would change, stay
    whole; `fresh` makes unused names."""

    def change(loop: nodes.LaneLoop) -> list[nodes.Statement] | None:
        if loop.reductions or any(_writes(each, tensors) for each in nodes.walk(loop.body)):
            return None
        splitter = _Splitter(loop.variable, _defined(loop))
        splitter.look_at(loop.body)
        if splitter.mixed or splitter.found is None:
            return None
        return splitter.split(loop, fresh)

    return nodes.expanded(body, nodes.LaneLoop, change)


def _writes(statement: nodes.Statement, tensors: frozenset[str]) -> bool:
    match statement:
        case nodes.Write(buffer) | nodes.AtomicUpdate(buffer=buffer):
            return buffer in tensors
        case nodes.Accumulate(target=nodes.Element(buffer=buffer)):
            return buffer in tensors
    return False


def _defined(loop: nodes.LaneLoop) -> frozenset[str]:
    """The names that differ from lane to lane, or within a lane: its locals, and the variables of
    loops that go through rows inside of it."""
    inside = nodes.walk(loop.body)
    own = {each.name for each in inside if isinstance(each, nodes.Define | nodes.Assign)}
    own |= {each.variable for each in inside if isinstance(each, nodes.Loop)}
    return frozenset({loop.variable, *own})


def _needed(body: tuple[nodes.Statement, ...]) -> tuple[nodes.Statement, ...]:
    """The statements of a loop without the locals that nothing reads: where all lanes take the
    padding, nothing asks where the others' elements are."""
    used: set[str] = set()
    for statement in nodes.walk(body):
        used |= {statement.name} if isinstance(statement, nodes.Assign) else set()
        for part in nodes.parts(statement):
            if isinstance(part, nodes.Local):
                used.add(part.name)
            elif isinstance(part, ir.Expr):
                used |= names(part)

    def kept(arm: tuple[nodes.Statement, ...]) -> tuple[nodes.Statement, ...]:
        return tuple(
            nodes.with_bodies(each, kept)
            for each in arm
            if not isinstance(each, nodes.Define) or each.name in used
        )

    smaller = kept(body)
    return body if smaller == body else _needed(smaller)


def _conjuncts(condition: ir.Expr) -> list[ir.Expr]:
    match condition:
        case ir.Binary("and", left, right):
            return [*_conjuncts(left), *_conjuncts(right)]
    return [condition]


@attrs.define
class _Splitter:
    """The interval for which the guards of one loop hold: the comparisons `found` that all of them
    share; `mixed` where one has others, or is no interval."""

    variable: str
    changing: frozenset[str]
    found: frozenset[ir.Expr] | None = None
    mixed: bool = False

    def look_at(self, body: tuple[nodes.Statement, ...]) -> None:
        """Go through the guards of the statements."""
        for statement in nodes.walk(body):
            for part in nodes.parts(statement):
                if isinstance(part, nodes.Select) and self._varies(part.condition):
                    own = [each for each in _conjuncts(part.condition) if self._varies(each)]
                    bounds = frozenset(own)
                    self.found = self.found or bounds
                    self.mixed |= bounds != self.found or not all(map(self._is_bound, own))

    def _varies(self, condition: ir.Expr) -> bool:
        return not self.changing.isdisjoint(names(condition))

    def _is_bound(self, condition: ir.Expr) -> bool:
        """Whether a comparison is `first <= lane` or `lane < end`."""
        match condition:
            case ir.Binary("<=", first, ir.Ref(name)):
                return name == self.variable and not self._varies(first)
            case ir.Binary("<", ir.Ref(name), end):
                return name == self.variable and not self._varies(end)
        return False

    def split(self, loop: nodes.LaneLoop, fresh: Callable[[str], str]) -> list[nodes.Statement]:
        """The ends of the interval and the three loops."""
        first, last = loop.lower, loop.upper
        for bound in sorted(self.found or (), key=repr):
            match bound:
                case ir.Binary("<=", start, _):
                    first = ir.Binary("max", first, start)
                case ir.Binary("<", _, stop):
                    last = ir.Binary("min", last, stop)
        begin = nodes.bound(fresh("first_inside"), ir.Binary("min", first, loop.upper), ())
        inside = ir.Ref(begin.name, ir.NameKind.BINDING)
        end = nodes.bound(fresh("last_inside"), ir.Binary("max", inside, last), ())
        behind = ir.Ref(end.name, ir.NameKind.BINDING)
        without, within = _needed(self._changed(loop.body, False)), self._changed(loop.body, True)
        return [
            *(attrs.evolve(each, origins=loop.origins) for each in (begin, end)),
            attrs.evolve(loop, upper=inside, body=without),
            attrs.evolve(loop, lower=inside, upper=behind, body=within),
            attrs.evolve(loop, lower=behind, body=without),
        ]

    def _changed(
        self, body: tuple[nodes.Statement, ...], within: bool
    ) -> tuple[nodes.Statement, ...]:
        """The statements for lanes inside of the interval, or for those outside."""

        def chosen(part: Any) -> Any:
            if isinstance(part, ir.Expr):
                return part
            if isinstance(part, nodes.Select) and self._varies(part.condition):
                if not within:
                    return nodes.with_parts(part.otherwise, chosen)
                rest = [each for each in _conjuncts(part.condition) if not self._varies(each)]
                if not rest:
                    return nodes.with_parts(part.value, chosen)
                condition = rest[0]
                for each in rest[1:]:
                    condition = ir.Binary("and", condition, each)
                part = attrs.evolve(part, condition=condition)
            return nodes.with_parts(part, chosen)

        def changed(arm: tuple[nodes.Statement, ...]) -> tuple[nodes.Statement, ...]:
            return tuple(nodes.with_parts(nodes.with_bodies(s, changed), chosen) for s in arm)

        return changed(body)
