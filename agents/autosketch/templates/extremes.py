"""The largest or smallest of a row and where it stands, as statements, in one pass over the row.

Of rows side by side, each lane holds its best so far and the place of that. A term that is better
takes both; NaN is better than all else, and of equal terms the first stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sketchc.agents.autosketch.builder import place_if_found
from sketchc.agents.autosketch.calls import identity_of, spelled
from sketchc.agents.autosketch.flattening import joined_number
from sketchc.agents.autosketch.loops import Element
from sketchc.agents.autosketch.phase import Pass
from sketchc.agents.autosketch.templates.body import Body
from sketchc.agents.autosketch.templates.lanes import Dims, width
from sketchc.ir.show import show

if TYPE_CHECKING:
    from sketchc.agents.autosketch.templates.writer import PhaseWriter


def is_place_of(place: Pass, best: Pass) -> bool:
    """Whether a pass gives the first place at which the result of another pass stands."""
    if (
        best.part is not None
        or best.operation not in ("max", "min")
        or place.operation != "min"
        or place.over != best.over
    ):
        return False
    held = Element(best.name, (), best.dtype)
    index, shape = tuple(axis.ref for axis in best.over), [axis.extent for axis in best.over]
    return place.body == place_if_found(best.body, held, index, shape)


def write_extreme(writer: PhaseWriter, scope: Body, best: Pass, place: Pass, dims: Dims) -> None:
    """Write both passes as one. Where nothing is better than what a pass begins with, all terms
    are equal to it, and the place is the first."""
    extents, hint = width(dims), 'llm_hint=["fastest", "accumulator"]'
    worst = identity_of(best.operation, best.dtype)
    scope.say(f"{best.name} = alloc([{extents}]{spelled(best.dtype)}, init={worst}, {hint})")
    scope.say(f"{place.name} = alloc([{extents}], i64, init=0, {hint})")
    inner = writer.opened(scope, best.over, None)
    term = writer.evaluated(inner, best.body, dims)
    sign, other = (">", "<=") if best.operation == "max" else ("<", ">=")
    better = f"{term} {sign} {best.name}"
    if best.dtype.is_float:  # NaN is neither
        better = f"not {term} {other} {best.name} and {best.name} == {best.name}"
    condition = writer.name(inner, "better")
    inner.say(f"{condition} = {better}")
    inner.say(f"where({condition}, {term}, {best.name}, {best.name})")
    number = show(joined_number(best.over))
    inner.say(f"where({condition}, {number}, {place.name}, {place.name})")
    scope.finished()
