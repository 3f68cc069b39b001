"""Facts of statements in loop programs that the emitter asks for."""

from __future__ import annotations

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.lowering.loops import nodes
from sketchc.lowering.loops.reads import divides


def computes(value: nodes.Value) -> bool:
    """Whether a value is an operation or takes divisions: the compiler would repeat it."""
    return any(
        isinstance(part, nodes.Apply) or (isinstance(part, ir.Expr) and divides(part))
        for part in (value, *nodes.parts(value))
    )


def is_of_bits(update: nodes.AtomicUpdate) -> bool:
    """Whether an atomic update is made on the bits of a float, as integers: TileLang's own maxima
    and minima pass NaN over."""
    return update.operation in ("max", "min") and update.dtype is DType.F32


def is_dealt(body: tuple[nodes.Statement, ...], buffer: str, inside: bool = False) -> bool:
    """Whether some statement writes a buffer that not all threads run."""
    for statement in body:
        dealt = inside or isinstance(statement, nodes.LaneLoop)
        dealt = dealt or (isinstance(statement, nodes.Loop) and _may_be_dealt(statement))
        match statement:
            case nodes.Write(name) | nodes.AtomicUpdate(_, name) if inside and name == buffer:
                return True
            case nodes.Accumulate(_, nodes.Element(name)) if inside and name == buffer:
                return True
            case nodes.Call(views=views) if any(v.buffer == buffer for v in views):
                return True
        if is_dealt(nodes.children(statement), buffer, dealt):
            return True
    return False


def _may_be_dealt(loop: nodes.Loop) -> bool:
    return nodes.is_scatter(loop) or any(
        isinstance(s, nodes.LaneLoop) for s in nodes.walk(loop.body)
    )
