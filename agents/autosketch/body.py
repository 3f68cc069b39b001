"""The statements of a sketch while they are written: nested bodies, and what each of them holds."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from sketchc.agents.autosketch.loops import Scalar


@attrs.define(eq=False)
class Body:
    """The statements of one body. `bound` are the axes that have a value there, and `held` the
    tiles that hold scalars; `lanes` names the indices of lanes. What is said goes to the end, or
    above the loop that is being written, so that a loop needs nothing but what its scalars need.
    """

    bound: frozenset[str]
    parent: Body | None = None
    lines: list[str | Body] = attrs.field(factory=list)
    held: dict[Scalar, str] = attrs.field(factory=dict)
    lanes: dict[str, str] = attrs.field(factory=dict)
    named: set[str] = attrs.field(factory=set)
    place: int = 0
    in_loop: bool = False

    @property
    def names(self) -> set[str]:
        """The names of all tiles that are visible here, or in a body within."""
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
        """What is said from now on stands below the loops so far."""
        self.place = len(self.lines)

    def inner(self, variable: str, *header: str, in_loop: bool = False) -> Body:
        """The body of a loop over `variable`; `in_loop` where one program runs it."""
        scope = Body(self.bound | {variable}, self, in_loop=in_loop)
        self.lines[self.place : self.place] = [*header, scope]
        return scope

    def text(self, indent: str = "") -> Iterator[str]:
        """The lines, with those of bodies within."""
        for line in self.lines:
            if isinstance(line, Body):
                yield from line.text(indent + "    ")
            else:
                yield indent + line

    def of(self, used: set[str]) -> Body:
        """The outermost body of this program in which these axes have values."""
        if self.in_loop and self.parent is not None and used <= self.parent.bound:
            return self.parent.of(used)
        return self
