"""Which axis of a phase lies along its tiles, and how subscripts follow it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import attrs

from sketchc.agents.autosketch.loops import Axis, Index, elements, names_in
from sketchc.agents.autosketch.phase import Digits, Phase
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic
from sketchc.ir.show import show
from sketchc.ir.walk import names, substitute

#: Lanes up to which an axis of a known extent is one tile.
_ONE_TILE = 1024


@attrs.frozen
class Lanes:
    """An axis that lies along a tile, and how many lanes a tile has: a tuned size, or all.
    `digits`: the axes that it runs through, where it runs through several."""

    axis: Axis
    size: str | None
    digits: Digits = ()

    @property
    def names(self) -> set[str]:
        """All that have a value in each lane."""
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
        return "0" if self.size is None else f"{self.variable}*{self.size}"


#: So many rows or columns of a matrix product are one block.
_ONE_BLOCK = 16

#: So many accesses are as much as one that differs along one more axis.
_HEAVIER = 8

#: The axes along a tile, in order; none for one number.
Dims = tuple[Lanes, ...]


def lanes_of(axis: Axis) -> Lanes:
    """The lanes of tiles along an axis: all of a short one."""
    match axis.extent:
        case ir.Literal(int(extent)) if extent <= _ONE_TILE:
            return Lanes(axis, None)
        case _:
            return Lanes(axis, "T")


def block_size(axis: Axis, size: str) -> str | None:
    """The tuned size of a block of a matrix product; None for an axis that is one block."""
    extent = axis.extent
    small = isinstance(extent, ir.Literal) and extent.value <= _ONE_BLOCK
    return None if small else size


def width(dims: Dims) -> str:
    """The extents of a tile, as text."""
    return ", ".join(each.tile for each in dims) or "1"


def runs_along(phase: Phase) -> Counter[str]:
    """What runs through memory along each axis: accesses, those that differ along more axes much
    heavier, since they are made more often. Of a number and its last digit, as in `j*64 + r`, it is
    the digit that does."""
    found: Counter[str] = Counter()
    extents = _extents(phase)
    axes = extents.keys()
    indices = [e.index for s in phase.scalars() for e in set(elements(s))] + [phase.place]
    for index in indices:
        if index:
            weight = _HEAVIER ** len(names_in(index) & axes)
            used = names(index[-1]) & axes
            last = {name for name in used if _is_digit(index[-1], name, used - {name}, extents)}
            found.update(dict.fromkeys(last or used, weight))
    return found


def windows(phase: Phase) -> set[str]:
    """The axes of windows: they move a subscript that another axis decides, and are no digits."""
    rows = {axis.name for axis in (*phase.rows, *phase.columns)}
    extents = _extents(phase)
    found: set[str] = set()
    for subscript in (i for s in phase.scalars() for e in elements(s) for i in e.index):
        own = names(subscript) & rows
        others = names(subscript) - rows if own else set[str]()
        found |= {name for name in others if not _is_digit(subscript, name, own, extents)}
    return found


def _extents(phase: Phase) -> dict[str, ir.Expr]:
    return {axis.name: axis.extent for group in phase.groups for axis in group}


def _is_digit(
    subscript: ir.Expr, name: str, others: Collection[str], extents: Mapping[str, ir.Expr]
) -> bool:
    """Whether a subscript is a number with this as its last digit, of more values than a window
    has: another axis moves it by just the digit's extent."""
    extent = extents.get(name)
    if extent is None or (isinstance(extent, ir.Literal) and extent.value <= _ONE_BLOCK):
        return False
    line = line_of(subscript, name)
    return (
        line is not None
        and line[0] == 1
        and any(symbolic.equal(_moved(subscript, other), extent) for other in others)
    )


def _moved(subscript: ir.Expr, name: str) -> ir.Expr:
    """By how much a subscript grows with an axis."""
    further = ir.Binary("+", ir.Ref(name, ir.NameKind.LOOP), ir.Literal(1))
    return ir.Binary("-", substitute(subscript, {name: further}), subscript)


def shaped(own: Dims, whole: Dims) -> str:
    """`[:, None]` and such: a tile along some axes beside others along more."""
    if len(whole) < 2 or len(own) != 1:
        return ""
    return "[:, None]" if own == whole[:1] else "[None, :]"


def last_place(index: Index, lanes: Lanes) -> int:
    """The last subscript that an axis decides."""
    return max(n for n, each in enumerate(index) if lanes.names & names(each))


def step_in(expression: ir.Expr, lanes: Lanes, used: Sequence[Lanes]) -> tuple[int, ir.Expr] | None:
    """Step and rest of a subscript that is linear in one axis of the tile."""
    if any(each is not lanes and each.names & names(expression) for each in used):
        return None
    return line_of(expression, lanes.axis.name)


def line_of(expression: ir.Expr, lane: str) -> tuple[int, ir.Expr] | None:
    """Step and rest where an index is step*lane + rest."""
    ref = ir.Ref(lane, ir.NameKind.LOOP)
    moved = substitute(expression, {lane: ir.Binary("+", ref, ir.Literal(1))})
    step = symbolic.constant_value(ir.Binary("-", moved, expression))
    if step is None or step == 0:
        return None
    rest = symbolic.simplify(ir.Binary("-", expression, ir.Binary("*", ir.Literal(step), ref)))
    return None if lane in names(rest) else (step, rest)
