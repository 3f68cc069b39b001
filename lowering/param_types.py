"""Which float params a generated host function has to round to their types.

A param arrives as the language of the host holds it, in 64 bits, and means its value rounded to the
type that the sketch declares, wherever it is read. A tile operation in f32 rounds an f32 param when
it takes it as an operand; whatever else reads one takes the value that the host holds.
"""

from __future__ import annotations

from collections.abc import Iterator

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.walk import expressions


def params_to_round(sketch: ir.Sketch) -> tuple[ir.Param, ...]:
    """The params narrower than f64 that more than a tile operation in f32 may read, in order."""
    wide = any(tile.dtype is DType.F64 for tile in sketch.tiles)
    read = {ref.name for value in _read(sketch) for ref in walk.references(value)}
    return tuple(
        param
        for param in sketch.params
        if param.dtype.is_float and param.dtype is not DType.F64
        if wide or param.dtype is not DType.F32 or param.name in read
    )


def _read(sketch: ir.Sketch) -> Iterator[ir.Expr]:
    """Every expression but params by themselves as operands."""
    yield from (let.value for let in sketch.lets)
    yield from (require.condition for require in sketch.requires)
    for step in walk.steps(sketch.schedule):
        yield from walk.step_expressions(step)
    for statement in walk.in_phases(sketch.phases):
        for value in expressions(statement):
            if not (isinstance(statement, ir.Compute) and isinstance(value, ir.Ref)):
                yield value
