"""Which lane loops a thread runs several lanes at a time of, so that it reads and writes up to 16
bytes at once."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir.symbolic import constant_value
from sketchc.ir.walk import references, substitute
from sketchc.lowering.loops import nodes

#: Bytes that a thread reads or writes at once.
_BYTES = 16


@attrs.frozen
class Vectors:
    """How many neighbouring lanes a thread runs at a time, the buffers (with their types) whose
    elements at the lanes are read and written, and whether the lane's number is used besides."""

    width: int
    read: tuple[tuple[str, DType], ...]
    written: tuple[tuple[str, DType], ...]
    numbered: bool


def vectors_of(
    loop: nodes.LaneLoop, threads: int, constants: Mapping[str, ir.Expr]
) -> Vectors | None:
    """How the lanes of a loop are run by `threads` threads; None: one by one."""
    found = at_lanes(loop)
    if found is None:
        return None
    width, most = found.width, most_lanes(loop.upper, constants)
    while most is not None and width * threads > most:
        width //= 2
    return attrs.evolve(found, width=width) if width > 1 else None


def at_lanes(loop: nodes.LaneLoop) -> Vectors | None:
    """How a thread runs as many lanes of a loop as it can; None: one by one.

    What is read must be there for all lanes: an element at the lane, which is read where the lane
    exists, or one that is the same for all lanes.
    """
    read: dict[str, DType] = {}
    written: dict[str, DType] = {}
    numbered = False

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
            match part:
                case nodes.Element(buffer, index, dtype) if is_at_lane(index):
                    read[buffer] = dtype
                case nodes.Element(index=index) if moves(index):
                    return None
                case nodes.Select() if any(isinstance(p, nodes.Element) for p in nodes.parts(part)):
                    return None  # what is not chosen may not be there
                case nodes.Scalar(value=number) | nodes.Select(condition=number):
                    numbered = numbered or moves(number)
    if not read and not written:
        return None
    width = _BYTES // max(dtype.bytes for dtype in (*read.values(), *written.values()))
    return Vectors(width, tuple(read.items()), tuple(written.items()), numbered)


def most_lanes(upper: ir.Expr, constants: Mapping[str, ir.Expr]) -> int | None:
    """A number that the bound of a loop does not exceed, if one is easily seen."""
    if isinstance(upper, ir.Binary) and upper.operator == "min":
        bounds = [most_lanes(side, constants) for side in (upper.left, upper.right)]
        return min((bound for bound in bounds if bound is not None), default=None)
    return constant_value(substitute(upper, constants))
