"""Which rows a program keeps in its tiles from one pass to the next, so that they are loaded once.

The first block of a row is one tile, which all passes of the row share; what is left of a longer
row is loaded by each pass. A block is as long as the rows of the task's own inputs, so that at
these nothing is left; the sketch is right at any. Of rows that lie side by side, a tile holds as
many as fit.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from sketchc.agents.autosketch.loops import Axis, Scalar, elements, names_in
from sketchc.agents.autosketch.phase import Phase
from sketchc.agents.autosketch.templates.lanes import lanes_of
from sketchc.ir.evaluate import evaluate
from sketchc.ir.walk import names

#: The elements that a program keeps: in 32 registers of each thread of 32 warps there is room for
#: so many. Of longer rows, keeping a part gains nothing (docs/BENCHMARKS.md).
_MOST = 1 << 15
#: The extents of blocks of one row, and of the tiles of what is left.
_FEWEST, _TILE = 1 << 8, 1 << 11
#: Of rows side by side: the elements of a block, the fewest rows, for a warp's access to memory,
#: and the most terms of one.
_BESIDE, _ROWS, _TERMS = 1 << 12, 1 << 5, 1 << 9


@attrs.frozen
class Block:
    """`first`: the name of the extent of the block of each row that is kept. `size`: that of the
    tiles of what is left of the row, or of rows side by side; None for the tuned size."""

    first: str
    size: str | None


@attrs.frozen
class Kept:
    """`exist`: whether a target's tiles lie in registers of threads, which are many. `sizes`: the
    largest of the symbols in the task's own inputs. `extents`: by name, those of the blocks of the
    phases so far."""

    exist: bool
    sizes: Mapping[str, int]
    extents: dict[str, int] = attrs.field(factory=dict, eq=False)

    def block(self, phase: Phase, beside: Axis | None) -> Block | None:
        """The block of a row that the passes of a phase share; None where each loads the row for
        itself, or a row is too long. `beside`: the axis of rows that lie side by side."""
        over = phase.passes[0].over if phase.passes and phase.fold is None else ()
        if not self.exist or len(over) != 1 or not _is_read_again(phase, over[0]):
            return None
        length = self._length(over[0])
        extent = 1 << max(length - 1, 0).bit_length()
        loaded = len({element for scalar in phase.scalars() for element in _along(scalar, over[0])})
        if not length:
            return None
        if beside is not None:
            rows = max(_BESIDE // extent, _ROWS)
            one = lanes_of(beside).size is None  # all rows are in one tile
            fits = self._length(beside) * extent <= 2 * _BESIDE if one else extent <= _TERMS
            if not fits or not phase.columns or self._length(beside) < _ROWS:
                return None
            return Block(self._named(extent), None if one else self._named(rows))
        if lanes_of(over[0]).size is None:
            return None
        extent = max(extent, _FEWEST)
        if extent * loaded > _MOST:
            return None
        name = self._named(extent)
        return Block(name, name if extent < _TILE else None)

    def _length(self, axis: Axis) -> int:
        """The extent of an axis, 0 for one that is not known."""
        if not self.sizes.keys() >= set(names(axis.extent)):
            return 0
        return int(evaluate(axis.extent, self.sizes))

    def _named(self, extent: int) -> str:
        """The name of an extent of blocks, which is the first one's "TR"."""
        known = {each: name for name, each in self.extents.items()}
        name = known.get(extent, f"TR_{extent}" if known else "TR")
        self.extents[name] = extent
        return name


def _is_read_again(phase: Phase, axis: Axis) -> bool:
    """Whether passes over a row, and its columns, run along `axis` alone, and more than one of
    them loads what another has loaded."""
    ranges = [each.over for each in phase.passes] + ([phase.columns] if phase.columns else [])
    if any(over != (axis,) for over in ranges) or any(each.part for each in phase.passes):
        return False
    scalars: list[Scalar] = [each.body for each in phase.passes]
    if phase.columns:
        scalars.append(phase.result)
    read = [_along(scalar, axis) for scalar in scalars]
    return any(one & other for n, one in enumerate(read) for other in read[n + 1 :])


def _along(scalar: Scalar, axis: Axis) -> set[Scalar]:
    """The elements of a scalar that differ along an axis."""
    return {each for each in elements(scalar) if axis.name in names_in(each.index)}
