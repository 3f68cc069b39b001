"""Which loops of a sketch run again, and which tiles meet a second one and a ragged tail, at given
sizes.

A loop that is cut to one iteration is right at all sizes at which it has no other, and a tile that
forgets its neighbours where it has none. So a run shows something of a loop where that has two
iterations, and of a tile where the axis that it runs along goes on behind it, by a part of a tile.
The axis is seen apart from the loop, since what is wrong may be the loop. One more element behind
4096 is no second tile yet: a maximum rarely lies there.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import assert_never

from sketchc.base import records
from sketchc.checker.facts.scope import Branch, Step, host_path, root_scope
from sketchc.checker.facts.sites import Site, collect
from sketchc.checker.testing.crossings import NO_VALUE, Crossings, Draw
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.evaluate import Value
from sketchc.ir.show import show

#: Iterations looked at: the first of all loops, the last, and others (of a triangle).
_DRAWN = 6

AGAIN, SECOND, TAIL = "a second iteration", "a second tile", "a ragged tail"


@records.frozen
class Mark:
    """Something that a run may reach: `what` of `where`, in words. Equal marks of one sketch at
    different tile sizes are equal."""

    where: str
    what: str

    @property
    def text(self) -> str:
        return f"{self.what} of {self.where}"


class TileCrossings(Crossings):
    """The loops and tiled axes of a sketch."""

    def __init__(self, sketch: ir.Sketch) -> None:
        super().__init__(sketch, collect(sketch, root_scope(sketch)))
        #: The ways to loops without an access inside, which lie on the way to no site.
        self.bare = [
            way
            for phase, nest in enumerate(sketch.phases)
            for way in _bare(nest.body, host_path(sketch, phase))
        ]
        self.marks: set[Mark] = set()
        #: The tiled axes of the last run: the longest that each was, and its tile.
        self.axes: dict[str, tuple[int, int]] = {}

    @property
    def draw_type(self) -> type[Draw]:
        return _TileDraw

    def reached(self, host: Mapping[str, Value]) -> frozenset[Mark]:
        """What a run with these host scalars reaches."""
        self.marks, self.axes = set(), {}
        self.at(host, _DRAWN)
        generator = random.Random(0)
        for draw in range(_DRAWN):
            for way in self.bare:
                drawn = _TileDraw(self, dict(host), generator, draw, set())
                with suppress(*NO_VALUE):
                    for step in way:
                        drawn.step(step)
        return frozenset(self.marks)


class _TileDraw(Draw):
    """Notes marks on its way to a site."""

    def mark(self, where: str, what: str) -> None:
        assert isinstance(self.crossings, TileCrossings)
        self.crossings.marks.add(Mark(where, what))

    def loop(self, loop: ir.For | ir.HostFor) -> None:
        start, stop, step = (self.known(e, ()) for e in (loop.start, loop.stop, loop.step))
        if start is not None and stop is not None and step:
            count = len(range(int(start), int(stop), int(step)))
            if count > 1:
                self.mark(f"the loop `{_head(loop)}`", AGAIN)
        super().loop(loop)

    def access(self, site: Site, extents: Sequence[int], lanes: tuple[int, ...]) -> None:
        super().access(site, extents, lanes)
        if self.draw > 0:  # how an axis goes on is told where its first tile begins
            return
        axes = iter(range(len(extents)))
        shape = self.crossings.shapes.get(site.access.tensor, site.tensor.extents)
        for place, subscript in enumerate(site.access.subscripts):
            match subscript:
                case ir.SliceSubscript(lower, upper, _, step):
                    axis = next(axes, None)
                    if axis is not None:
                        tile = site.tile.extents[axis]
                        where = _axis(site, place, tile)
                        self.tiled(where, lower, (shape[place], *_bounds(upper)), tile, step)
                case ir.IndexSubscript(axis=axis) if axis is not None:
                    next(axes, None)
                case ir.IndexSubscript() | ir.ScalarSubscript():
                    pass

    def iota(
        self, extent: ir.Expr, lower: ir.Expr, upper: ir.Expr | None, lanes: tuple[int, ...]
    ) -> Value:
        if self.draw == 0 and upper is not None:
            where = f"`{show(upper)}` in tiles of {show(extent)}"
            self.tiled(where, lower, (upper, *_bounds(upper)), extent, ir.Literal(1))
        return super().iota(extent, lower, upper, lanes)

    def tiled(
        self,
        where: str,
        lower: ir.Expr,
        bounds: Sequence[ir.Expr],
        tile: ir.Expr,
        step: ir.Expr,
    ) -> None:
        """What there is behind a tile that begins at `lower`, before each of the bounds."""
        try:
            start, width, by = (int(self.value(e, ())) for e in (lower, tile, step))
        except NO_VALUE:
            return
        for bound in bounds:
            end = self.known(bound, ())
            length = 0 if end is None else -(-(int(end) - start) // max(by, 1))
            if by >= 1 and width >= 1 and length >= 1:
                assert isinstance(self.crossings, TileCrossings)
                axes = self.crossings.axes
                axes[where] = max((length, width), axes.get(where, (0, 0)))
                for what in behind(length, width):
                    self.mark(where, what)


def behind(length: int, width: int) -> Iterator[str]:
    """What there is behind the first tile of an axis: enough to show."""
    if 2 * length >= 3 * width and length > width:
        yield SECOND
        if 4 * (length % width) >= width:
            yield TAIL


def _bare(body: tuple[ir.Statement, ...], path: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    """The ways to loops of a body that hold no access, the loops themselves at their ends."""
    for statement in body:
        match statement:
            case ir.For():
                if not _accesses(statement.body):
                    yield (*path, statement)
                yield from _bare(statement.body, (*path, statement))
            case ir.If(condition, body=then, orelse=orelse):
                for holds, part in ((True, then), (False, orelse)):
                    yield from _bare(part, (*path, Branch(condition, holds)))
            case ir.Bind() | ir.Fetch():
                path = (*path, statement)
            case ir.Alloc() | ir.Compute() | ir.Load() | ir.Store() | ir.Atomic():
                pass
            case _:
                assert_never(statement)


def _accesses(body: tuple[ir.Statement, ...]) -> bool:
    moves = ir.Load | ir.Store | ir.Atomic | ir.Fetch
    return any(isinstance(statement, moves) for statement in walk.statements(body))


def _head(loop: ir.For | ir.HostFor) -> str:
    """A loop as it is written, without its end."""
    text = loop.text.strip().removesuffix(":")
    return text or f"for {loop.variable} in range({show(loop.start)}, {show(loop.stop)})"


def _axis(site: Site, place: int, tile: ir.Expr) -> str:
    return f"axis {place + 1} of {site.access.tensor} in tiles of {show(tile)}"


def _bounds(upper: ir.Expr) -> tuple[ir.Expr, ...]:
    """What else ends an axis: `H` in `min((j + 1)*T, H)`."""
    match upper:
        case ir.Binary("min", left, right):
            return (*_bounds(left), *_bounds(right))
        case ir.Binary() | ir.Unary() | ir.Function() | ir.Choice():
            return ()
        case _:
            return (upper,)
