"""Which axis of a phase lies along its tiles, and how subscripts depend on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import attrs

from sketchc.agents.autosketch.loops import Axis, Index, elements, names_in
from sketchc.agents.autosketch.phase import Digits, Phase
from sketchc.agents.autosketch.windows import extents_of, is_digit, line_of
from sketchc.ir import nodes as ir
from sketchc.ir.show import show
from sketchc.ir.walk import names

#: An axis of a constant extent up to this is one tile.
_ONE_TILE = 1024


@attrs.frozen
class Lanes:
    """An axis that lies along a tile. `size`: the tuned size of a tile, None where one tile has the
    whole axis. `digits`: the axes that a joint axis runs through, as formulas over it. `first`: of
    tiles of that size, the first alone."""

    axis: Axis
    size: str | None
    digits: Digits = ()
    first: bool = False

    @property
    def names(self) -> set[str]:
        """The names of the axes that have a value in each lane: `axis` and its digits."""
        return {self.axis.name, *(axis.name for axis, _ in self.digits)}

    @property
    def tile(self) -> str:
        """The extent of the tile."""
        return self.size or show(self.axis.extent)

    @property
    def variable(self) -> str:
        """The name of the variable that counts the tiles."""
        return f"{self.axis.name}_tile"

    @property
    def count(self) -> str:
        """How many tiles there are, as text."""
        return f"ceil({show(self.axis.extent)}, {self.tile})"

    @property
    def start(self) -> str:
        """The index of the tile's first lane, as text."""
        return "0" if self.size is None or self.first else f"{self.variable}*{self.size}"


#: Up to this an axis of an attention that is summed over, or of values, is one block.
ONE_HEAD = 128

#: So many accesses weigh as much as one that depends on one more axis.
_HEAVIER = 8

#: The axes along a tile, in order; none for one number.
Dims = tuple[Lanes, ...]


def lanes_of(axis: Axis, digits: Digits = ()) -> Lanes:
    """The lanes of tiles along `axis`: all of a short axis, else the tuned size "T"; `digits` as in
    `Lanes`."""
    match axis.extent:
        case ir.Literal(int(extent)) if extent <= _ONE_TILE:
            return Lanes(axis, None, digits)
        case _:
            return Lanes(axis, "T", digits)


def block_size(axis: Axis, size: str, most: int) -> str | None:
    """The tuned size of a block of a matrix product; None for an axis that is one block: of a
    constant extent up to `most`."""
    extent = axis.extent
    small = isinstance(extent, ir.Literal) and extent.value <= most
    return None if small else size


def width(dims: Dims) -> str:
    """The extents of a tile, as text."""
    return ", ".join(each.tile for each in dims) or "1"


def runs_along(phase: Phase) -> Counter[str]:
    """How many accesses run through memory along each axis, by its name; those that depend on more
    axes weigh much more, since they are made more often. In `j*64 + r`, where `r` is the last digit
    of a number, only `r` counts."""
    found: Counter[str] = Counter()
    extents = extents_of(phase)
    axes = extents.keys()
    indices = [e.index for s in phase.scalars() for e in set(elements(s))] + [phase.place]
    for index in indices:
        if index:
            weight = _HEAVIER ** len(names_in(index) & axes)
            used = names(index[-1]) & axes
            last = {name for name in used if is_digit(index[-1], name, used - {name}, extents)}
            found.update(dict.fromkeys(last or used, weight))
    if phase.digits:
        found[phase.rows[-1].name] += found[phase.digits[-1][0].name]
    return found


def shaped(own: Dims, whole: Dims) -> str:
    """The suffix that broadcasts a tile along `own` to one along `whole`, such as `[:, None]`."""
    if len(whole) < 2 or len(own) != 1:
        return ""
    return "[:, None]" if own == whole[:1] else "[None, :]"


def last_place(index: Index, lanes: Lanes) -> int:
    """The position of the last subscript that depends on the axis of `lanes` or its digits."""
    return max(n for n, each in enumerate(index) if lanes.names & names(each))


def step_in(expression: ir.Expr, lanes: Lanes, used: Sequence[Lanes]) -> tuple[int, ir.Expr] | None:
    """Step and rest of a subscript that is linear in the axis of `lanes` and in no other `used`."""
    if any(each is not lanes and each.names & names(expression) for each in used):
        return None
    return line_of(expression, lanes.axis.name)
