"""Lanes that nobody reads are not computed.

A tile is often valid at all of its lanes while a store takes only those inside of a tensor: a
padded load fills a whole tile, of which the last columns lie behind the edge. `narrow` follows
backwards which lanes of each tile are read, and has the nests that write the tile run over these
alone. It is done before fusion, since loops over the same lanes become one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from sketchc.ir import nodes as ir
from sketchc.ir.symbolic import equal
from sketchc.ir.walk import names, statements
from sketchc.lowering.loops.fusion import Block, Leaf, leaves
from sketchc.lowering.loops.nest_maker import NestMaker
from sketchc.lowering.loops.nests import ZERO, Axis, Kind, Nest, Reference

#: The lanes of a tile's axis that are read: a range, or all of them (None). No entry: none yet.
_Demands = dict[tuple[str, int], Axis | None]


def narrow(tree: Block, maker: NestMaker, changing: frozenset[str]) -> None:
    """Restrict the nests of an unfused tree to the lanes that are read of what they write;
    `changing` are the names that may have another value where a tile is read."""
    found = list(leaves(tree.children))
    demands = _Narrowing(maker, changing).settled([leaf.nest for leaf in found])
    for leaf in found:
        _restrict(leaf, maker, demands)


def changing_names(body: tuple[ir.Statement, ...]) -> Iterator[str]:
    """The names that statements of a phase define: loop variables, bound and fetched scalars."""
    for statement in statements(body):
        match statement:
            case ir.For(variable=name) | ir.Bind(name=name) | ir.Fetch(name=name):
                yield name


def _restrict(leaf: Leaf, maker: NestMaker, demands: _Demands) -> None:
    narrowed = _narrowed(leaf.nest, maker, demands)
    axes = tuple(axis for axis in narrowed if axis is not None)
    if len(axes) == len(narrowed):
        leaf.nest = attrs.evolve(leaf.nest, axes=axes)


def _narrowed(nest: Nest, maker: NestMaker, demands: _Demands) -> tuple[Axis | None, ...]:
    """The loops of a nest where it computes no more than is read of its target; None for a loop of
    which nothing is read yet."""
    axes: list[Axis | None] = list(nest.axes)
    if nest.target.tensor or nest.kind is Kind.CALL:
        return tuple(axes)
    extents = maker.extents(nest.target.name)
    for number, (term, extent) in enumerate(zip(nest.target.terms, extents, strict=True)):
        # Other bounds than the tile's own follow from what is valid there.
        if term.axis is None or not term.plain or not _whole(nest.axes[term.axis], extent):
            continue
        key = (nest.target.name, number)
        wanted = demands.get(key)
        if key not in demands:
            axes[term.axis] = None
        elif wanted is not None:
            axes[term.axis] = wanted
    return tuple(axes)


def _whole(axis: Axis, extent: ir.Expr) -> bool:
    return axis.lower == ZERO and equal(axis.upper, extent)


@attrs.define
class _Narrowing:
    """Finds the lanes that are read, from the stores backwards: what is demanded only grows, from
    nothing over one range to all lanes, so that it comes to rest."""

    maker: NestMaker
    changing: frozenset[str]
    demands: _Demands = attrs.field(factory=dict)

    def settled(self, nests: Iterable[Nest]) -> _Demands:
        """The lanes that are read of each axis of each tile."""
        # Readers mostly stand behind the writers.
        order = list(reversed(list(nests)))
        grown = 1
        while grown:
            grown = sum(map(self._grows, order))
        return self.demands

    def _grows(self, nest: Nest) -> bool:
        """Add what a nest reads; whether that was new."""
        axes = _narrowed(nest, self.maker, self.demands)
        if any(axis is None for axis in axes):
            return False
        read = [read.reference for read in nest.reads if not read.reference.tensor]
        if nest.kind is Kind.CALL:
            read += (target for target in nest.targets if not target.tensor)
        return sum(self._demanded(nest, reference, axes) for reference in read) > 0

    def _demanded(self, nest: Nest, reference: Reference, axes: tuple[Axis | None, ...]) -> bool:
        new = False
        for number, term in enumerate(reference.terms):
            key, wanted = (reference.name, number), None
            if nest.kind is not Kind.CALL and term.axis is not None and term.plain:
                wanted = axes[term.axis]
            if wanted is not None and self._changes(wanted):
                wanted = None
            if key not in self.demands:
                self.demands[key] = wanted
                new = True
            elif self.demands[key] is not None and not _same(self.demands[key], wanted):
                self.demands[key] = None
                new = True
        return new

    def _changes(self, axis: Axis) -> bool:
        used = {*names(axis.lower), *names(axis.upper)}
        return not self.changing.isdisjoint(used)


def _same(one: Axis | None, other: Axis | None) -> bool:
    if one is None or other is None:
        return one is other
    return equal(one.lower, other.lower) and equal(one.upper, other.upper)
