"""Scatters as statements: stores to places that are data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sketchc.agents.autosketch.calls import PERMUTED
from sketchc.agents.autosketch.loops import Element
from sketchc.agents.autosketch.phase import Scattered
from sketchc.agents.autosketch.templates.body import Body
from sketchc.agents.autosketch.templates.lanes import Dims, width

if TYPE_CHECKING:
    from sketchc.agents.autosketch.templates.writer import PhaseWriter


def write_scatter(writer: PhaseWriter, scope: Body, scatter: Scattered, dims: Dims) -> None:
    """Write stores to places that are data, combined with what they hold where that counts."""
    phase = writer.phase
    inner = writer.opened(scope, scatter.over, None)
    places = [place for _, place in scatter.fetched]
    tile = writer.evaluated(inner, phase.result, dims, then=places)
    goal = Element(phase.target, phase.place, phase.dtype, fetched=scatter.fetched)
    target = writer.access(inner, goal, dims)
    if scatter.operation != "set":
        held = writer.alloc(inner, phase.target.lower(), phase.dtype, width(dims))
        inner.say(f"load({target} -> {held})")
        inner.say(f"{scatter.operation}({held}, {tile}, {held})")
        tile = held
    inner.say(f"store({tile} -> {target}{PERMUTED if scatter.whole else ''})")
