"""Places in an order, and the best of a row, as statements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sketchc.agents.autosketch.calls import spelled
from sketchc.agents.autosketch.phase import Chosen, Ranked
from sketchc.agents.autosketch.templates.body import Body
from sketchc.agents.autosketch.templates.lanes import Dims, Lanes
from sketchc.ir.show import show

if TYPE_CHECKING:
    from sketchc.agents.autosketch.templates.writer import PhaseWriter


def write_places(writer: PhaseWriter, scope: Body, order: Ranked, dims: Dims) -> None:
    """Write the loop that counts, for each element of a tile of a row, those before it."""
    (own,), along = dims, writer.block(order.over, "TN")
    hint = 'llm_hint=["fastest", "accumulator"]'
    scope.bound |= own.names
    operand = writer.evaluated(scope, order.body, dims)
    scope.say(f"{order.name} = alloc([{own.tile}]{spelled(order.dtype)}, init=0, {hint})")
    place = show(writer.bindings(scope, [own.axis.ref], dims)[own.axis.name])
    inner, other, theirs = scope, operand, place
    if own.size is not None or along.size is not None:  # else the tile has the whole row
        inner = writer.opened(scope, (), along)
        other = writer.evaluated(inner, order.other, (along,))
        theirs = show(writer.bindings(inner, [along.axis.ref], (along,))[along.axis.name])
    order_of = ", descending=True" if order.descending else ""
    inner.say(f"rank({operand}, {place}, {other}, {theirs}, 0, {order.name}{order_of})")
    scope.finished()


def write_best(writer: PhaseWriter, scope: Body, choice: Chosen) -> Dims:
    """Write the loop that updates a row's best with each block; returns their tile's axes."""
    own, along = Lanes(choice.axis, None), writer.lanes(choice.over)
    dtype = choice.body.dtype
    limits = dtype.limits
    worst: object = "-inf" if choice.largest else "inf"
    if limits is not None:
        worst = limits[0 if choice.largest else 1]
    names = {kind: writer.name(scope, f"{kind}_so_far") for kind in ("best", "place")}
    names["place" if choice.places else "best"] = choice.name
    hint = 'llm_hint=["fastest", "accumulator"]'
    scope.say(f"{names['best']} = alloc([{own.tile}]{spelled(dtype)}, init={worst}, {hint})")
    scope.say(f"{names['place']} = alloc([{own.tile}], i64, init=-1, {hint})")
    inner = writer.opened(scope, (), along)
    operand = writer.evaluated(inner, choice.body, (along,))
    lane = show(writer.bindings(inner, [along.axis.ref], (along,))[along.axis.name])
    order = "" if choice.largest else ", largest=False"
    inner.say(f"topk({operand}, {lane}, 0, {names['best']}, {names['place']}{order})")
    scope.finished()
    scope.bound |= own.names
    return (own,)
