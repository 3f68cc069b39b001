"""Passes over a row as statements: those that can be computed together, in one loop.

Passes that need nothing of each other share a loop, and so does a sum of exponentials with the
maximum that it takes off (Milakov, Gimelshein 2018, "Online normalizer calculation for softmax"):
where a tile has a new maximum, the sum so far is multiplied by the exponential of the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from sketchc.agents.autosketch.calls import identity_of, spelled
from sketchc.agents.autosketch.loops import Apply, Axis, Element, elements
from sketchc.agents.autosketch.phase import Pass, replaced
from sketchc.agents.autosketch.templates.body import Body
from sketchc.agents.autosketch.templates.lanes import Dims, width
from sketchc.base.types import DType

if TYPE_CHECKING:
    from sketchc.agents.autosketch.templates.writer import PhaseWriter


def together(passes: Sequence[Pass], online: bool) -> Sequence[Pass]:
    """The first of some passes, and those behind it that one loop can compute, too; `online`:
    among them a sum of exponentials, which takes several turns to go on from."""
    first, *others = passes
    group = [first]
    for each in others:
        read = {element.source for element in elements(each.body)} & {one.name for one in group}
        best = _taken_off(each, group) if online else None
        if (each.over, each.part) != (first.over, first.part) or read - {best and best.name}:
            break
        group.append(each)
    return group


def _taken_off(total: Pass, passes: Sequence[Pass]) -> Pass | None:
    """The pass of `passes` whose maximum the terms of a sum of exponentials take off."""
    match total.body:
        case Apply("exp", (Apply("sub", (term, Element(name, ()))),)) if total.operation == "sum":
            found = (p for p in passes if (p.name, p.operation, p.body) == (name, "max", term))
            return next(found, None)
    return None


#: A tile that goes on from part to part: its name and type.
_Total = tuple[str, DType]


def write_passes(writer: PhaseWriter, scope: Body, group: Sequence[Pass], dims: Dims) -> None:
    """Write passes that `together` has found as one loop over the row."""
    along, loops = writer.cut(group[0].over)
    looped = writer.in_turns(group[0].over)
    totals = {each.name: _begun(writer, scope, each, loops, dims, looped) for each in group}
    behind = {each.name: _taken_off(each, group) for each in group}
    for inner, own in writer.turns(scope, group[0].over, dims, part=group[0].part):
        left = [each.body for each in group]
        for each in group:
            del left[0]
            name, kept = totals[each.name]
            sums = [total for total in group if behind[total.name] is each]
            if sums:
                _online(
                    writer, inner, each, [(total, totals[total.name]) for total in sums], own, dims
                )
            if sums or behind[each.name] is not None:
                continue
            # How many terms of a block a lane adds up is the chip's: with few f32 is too short.
            body = each.body if kept is each.dtype else Apply("cast", (each.body,), kept)
            operand = writer.evaluated(inner, body, own, infix=True, then=left)
            if looped:
                writer.combined(inner, each.operation, operand, (name, kept), own, dims)
            elif along is not None:
                inner.say(f"reduce_{each.operation}({operand}, 0, {name})")
            else:
                inner.say(f"copy({operand}, {name})")
    scope.finished()
    for each in group:
        if (best := behind[each.name]) is not None:
            _whole(writer, scope, totals[each.name], best, dims)
        writer.rounded(scope, totals[each.name][0], each, dims)


def _begun(
    writer: PhaseWriter, scope: Body, each: Pass, loops: Sequence[Axis], dims: Dims, looped: bool
) -> _Total:
    """Write the tile of a pass's result so far, or of its result; returns its name and type."""
    start = f", init={identity_of(each.operation, each.dtype)}" if looped else ""
    hint = '"fastest", "accumulator"' if looped else '"fastest"'
    total = writer.carried(scope, each, loops) if looped else (each.name, each.dtype)
    name, kept = total
    scope.say(f"{name} = alloc([{width(dims)}]{spelled(kept)}{start}, llm_hint=[{hint}])")
    return total


def _online(
    writer: PhaseWriter,
    inner: Body,
    best: Pass,
    sums: Sequence[tuple[Pass, _Total]],
    own: Dims,
    dims: Dims,
) -> None:
    """Write one turn of a maximum, and of sums of exponentials that take it off. Of terms that are
    all -inf nothing is taken off, for their difference to their maximum is none."""
    extents = width(dims)
    bodies = [total.body for total, _ in sums]
    term = writer.evaluated(inner, best.body, own, infix=True, then=bodies)
    highest, taken = (writer.name(inner, name) for name in ("highest", "taken_off"))
    hint = 'llm_hint=["fastest"]'
    inner.say(f"{highest} = alloc([{extents}]{spelled(best.dtype)}, {hint})")
    inner.say(f"copy({best.name}, {highest})")
    writer.combined(inner, "max", term, (highest, best.dtype), own, dims)
    inner.say(f"{taken} = alloc([{extents}]{spelled(best.dtype)}, {hint})")
    inner.say(f"where({highest} == -inf, 0.0, {highest}, {taken})")
    held = Element(best.name, (), best.dtype)
    for number, (total, (name, kept)) in enumerate(sums):
        factor = _factor(writer, inner, f"{best.name} - {taken}", (total, kept), extents)
        inner.say(f"mul({name}, {factor}, {name})")
        writer.passes.add(taken)
        body = replaced(total.body, held, attrs.evolve(held, source=taken))
        wide = body if kept is total.dtype else Apply("cast", (body,), kept)
        operand = writer.evaluated(inner, wide, own, infix=True, then=bodies[number + 1 :])
        writer.combined(inner, "sum", operand, (name, kept), own, dims)
        writer.passes.discard(taken)
    inner.say(f"copy({highest}, {best.name})")


def _whole(writer: PhaseWriter, scope: Body, total: _Total, best: Pass, dims: Dims) -> None:
    """Write that a sum of exponentials that take off an infinite maximum is none."""
    name, kept = total
    exponent = f"{best.name} - {best.name}"
    factor = _factor(writer, scope, exponent, (best, kept), width(dims))
    scope.say(f"mul({name}, {factor}, {name})")


def _factor(
    writer: PhaseWriter, scope: Body, exponent: str, types: tuple[Pass, DType], dims: str
) -> str:
    """The exponential of a difference of maxima, of the extents `dims`, as an argument: of the type
    of `types[0]`, in that of `types[1]`."""
    each, kept = types
    if kept is each.dtype is DType.F32:
        return f"exp({exponent})"
    factor, hint = writer.name(scope, "factor"), 'llm_hint=["fastest"]'
    scope.say(f"{factor} = alloc([{dims}]{spelled(each.dtype)}, {hint})")
    scope.say(f"sub({exponent.replace(' - ', ', ')}, {factor})")
    scope.say(f"exp({factor}, {factor})")
    if kept is each.dtype:
        return factor
    wide = writer.name(scope, f"{factor}_{kept.value}")
    scope.say(f"{wide} = alloc([{dims}]{spelled(kept)}, {hint})")
    scope.say(f"cast({factor}, {wide})")
    return wide
