"""Which lane loops a thread runs several lanes at a time of, so that it reads and writes up to 16
bytes at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import attrs

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir.symbolic import constant_value
from sketchc.ir.walk import references, substitute
from sketchc.lowering.loops import nodes

#: Bytes that a thread reads or writes at once.
BYTES = 16
#: Turns that a thread has on its way at a time, where each applies at most so many operations to a
#: lane: more would only make the code longer.
_TURNS = ((3, 4), (8, 2))


@attrs.frozen
class Vectors:
    """How many neighbouring lanes a thread runs at a time, the buffers (with their types) whose
    elements at the lanes are read and written, whether the lane's number is used besides, how many
    turns of such lanes are run at a time, and the f32 that all lanes are divided by."""

    width: int
    read: tuple[tuple[str, DType], ...]
    written: tuple[tuple[str, DType], ...]
    numbered: bool
    turns: int
    divisors: tuple[nodes.Value, ...]


def vectors_of(
    loop: nodes.LaneLoop, threads: int, constants: Mapping[str, ir.Expr]
) -> Vectors | None:
    """How the lanes of a loop are run by `threads` threads; None: one by one."""
    found = at_lanes(loop)
    if found is None:
        return None
    width, turns, most = found.width, found.turns, most_lanes(loop.upper, constants)
    while most is not None and width * threads > most:
        width //= 2
    while most is not None and turns > 1 and turns * width * threads > most:
        turns //= 2
    return attrs.evolve(found, width=width, turns=turns) if width > 1 else None


def at_lanes(loop: nodes.LaneLoop) -> Vectors | None:
    """How a thread runs as many lanes of a loop as it can; None: one by one.

    What is read must be there for all lanes: an element at the lane, which is read where the lane
    exists, or one that is the same for all lanes.
    """
    read: dict[str, DType] = {}
    written: dict[str, DType] = {}
    numbered, applied = False, 0

    def is_at_lane(index: ir.Expr) -> bool:
        return isinstance(index, ir.Ref) and index.name == loop.variable

    own = {loop.variable, *(each.name for each in loop.body if isinstance(each, nodes.Define))}

    def moves(expression: ir.Expr) -> bool:
        return any(name.name in own for name in references(expression))

    for statement in loop.body:
        match statement:
            case nodes.Write(buffer, index, value) if is_at_lane(index):
                written[buffer] = value.dtype
            case nodes.Accumulate(_, nodes.Local()) | nodes.Define() | nodes.Note():
                pass
            case _:
                return None
        for part in nodes.parts(statement):
            applied += isinstance(part, nodes.Apply)
            match part:
                case nodes.Element(buffer, index, dtype) if is_at_lane(index):
                    read[buffer] = dtype
                case nodes.Element(index=index) if moves(index):
                    return None
                case nodes.Select() if any(isinstance(p, nodes.Element) for p in nodes.parts(part)):
                    return None  # what is not chosen may not be there
                case nodes.Scalar(value=number) | nodes.Select(condition=number):
                    # What an earlier definition holds needs no number of a lane to be read.
                    numbered |= any(name.name == loop.variable for name in references(number))
    if not read and not written:
        return None
    width = BYTES // max(dtype.bytes for dtype in (*read.values(), *written.values()))
    turns = next((turns for operations, turns in _TURNS if applied <= operations), 1)
    return Vectors(
        width, tuple(read.items()), tuple(written.items()), numbered, turns, _divisors(loop, own)
    )


def _divisors(loop: nodes.LaneLoop, own: Collection[str]) -> tuple[nodes.Value, ...]:
    """What lanes are divided by that no name of the loop's `own`, and no memory, has a part in."""
    changes = {*own, *(each.name for each in loop.reductions)}
    changes |= {each.name for each in loop.body if isinstance(each, nodes.Assign)}
    found: dict[nodes.Value, None] = {}
    for statement in loop.body:
        for part in nodes.parts(statement):
            match part:
                case nodes.Apply("div", (_, nodes.Local(name) as by), DType.F32):
                    found |= {} if name in changes else {by: None}
                case nodes.Apply("div", (_, nodes.Scalar(value) as by), DType.F32):
                    moves = any(name.name in changes for name in references(value))
                    found |= {} if moves else {by: None}
    return tuple(found)


def most_lanes(upper: ir.Expr, constants: Mapping[str, ir.Expr]) -> int | None:
    """A number that the bound of a loop does not exceed, if one is easily seen."""
    if isinstance(upper, ir.Binary) and upper.operator == "min":
        bounds = [most_lanes(side, constants) for side in (upper.left, upper.right)]
        return min((bound for bound in bounds if bound is not None), default=None)
    return constant_value(substitute(upper, constants))
