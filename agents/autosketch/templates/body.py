"""The statements of a sketch while they are written: nested bodies, and the tiles of each."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from sketchc.agents.autosketch.loops import Scalar

#: Above a loop whose loads may run ahead.
PIPELINE = '@llm_hint("pipeline")'


@attrs.define(eq=False)
class Body:
    """The statements of one body. `bound` are the axes that have a value in it, `held` the tile of
    each scalar computed so far, `lanes` the name of each axis's lane indices. A statement goes to
    `place`: the end, or above the loop being written, so a loop holds only what depends on it.
    `in_loop`: one program runs the body again and again; `once`: just once, between its loops.
    """

    bound: frozenset[str]
    parent: Body | None = None
    lines: list[str | Body] = attrs.field(factory=list)
    held: dict[Scalar, str] = attrs.field(factory=dict)
    lanes: dict[str, str] = attrs.field(factory=dict)
    named: set[str] = attrs.field(factory=set)
    place: int = 0
    in_loop: bool = False
    once: bool = False

    @property
    def names(self) -> set[str]:
        """The names of all tiles that are visible in this body, or made in a body within it."""
        around = set[str]() if self.parent is None else self.parent._visible()
        return around | self._within()

    def _visible(self) -> set[str]:
        return self.named if self.parent is None else self.named | self.parent._visible()

    def _within(self) -> set[str]:
        inner = (line._within() for line in self.lines if isinstance(line, Body))
        return self.named.union(*inner)

    def say(self, line: str) -> None:
        """Add a statement."""
        self.lines.insert(self.place, line)
        self.place += 1

    def finished(self) -> None:
        """Put all further statements below the loops written so far."""
        self.place = len(self.lines)

    def inner(self, variable: str, *header: str, in_loop: bool = False) -> Body:
        """Open a loop over `variable`; its body is returned. `in_loop`: one program runs it."""
        scope = Body(self.bound | {variable}, self, in_loop=in_loop)
        self.lines[self.place : self.place] = [*header, scope]
        return scope

    def beside(self, bound: set[str], before: Body | None) -> Body:
        """Open a body whose statements run once, between loops, and in which axes have values; what
        was computed in the body `before`, of the same axes, is there in it, too."""
        scope = Body(self.bound | bound, self, named=self.named, in_loop=True, once=True)
        if before is not None:
            scope.held, scope.lanes = before.held, before.lanes
        self.lines.insert(self.place, scope)
        return scope

    def text(self, indent: str = "") -> Iterator[str]:
        """The lines of this body and, indented, of the bodies within it."""
        for line in self.lines:
            if isinstance(line, Body):
                yield from line.text(indent if line.once else indent + "    ")
            else:
                yield indent + line

    def of(self, used: set[str]) -> Body:
        """The outermost body of this program in which all axes `used` have values."""
        if self.in_loop and self.parent is not None and used <= self.parent.bound:
            return self.parent.of(used)
        return self
