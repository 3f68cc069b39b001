"""Phases that turn what they read as statements: in blocks, of which some tensors run along one
axis in memory, and the result along the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sketchc.agents.autosketch.loops import Axis, elements
from sketchc.agents.autosketch.phase import Phase
from sketchc.agents.autosketch.templates.body import Body
from sketchc.agents.autosketch.windows import ONE_BLOCK
from sketchc.ir import nodes as ir
from sketchc.ir.show import show

if TYPE_CHECKING:
    from sketchc.agents.autosketch.templates.writer import PhaseWriter


def turned_axes(phase: Phase) -> tuple[Axis, Axis] | None:
    """The axis along which a phase reads some tensor, and that along which it writes, where these
    are two of its columns, all else that it reads runs along one of them, and it computes each
    element by itself; else None."""
    if phase.passes or phase.fold is not None or not phase.place:
        return None
    columns: dict[ir.Expr, Axis] = {axis.ref: axis for axis in phase.columns}
    written = columns.get(phase.place[-1])
    lasts = {each.index[-1] for each in elements(phase.result) if each.index}
    if written is None or not lasts <= columns.keys():
        return None
    read = [columns[each] for each in lasts if each != written.ref]
    if len(read) != 1 or any(_is_short(axis) for axis in (*read, written)):
        return None
    return read[0], written


def _is_short(axis: Axis) -> bool:
    """Whether blocks along an axis would be few elements, which neighbours read in one line."""
    return isinstance(axis.extent, ir.Literal) and axis.extent.value <= ONE_BLOCK


def write_turned(writer: PhaseWriter, top: Body, axes: tuple[Axis, Axis]) -> None:
    """Write programs over blocks of the two axes of `turned_axes`."""
    blocks = writer.block(axes[0], "TL"), writer.block(axes[1], "TW")
    scope = top
    for axis in (each for each in writer.phase.columns if each not in axes):
        scope = writer.parallel(scope, axis.name, show(axis.extent))
    writer.result(writer.over_blocks(scope, blocks), blocks)
