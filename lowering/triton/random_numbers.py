"""rand and randn of one kernel."""

from __future__ import annotations

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.lowering.precedence import PYTHON
from sketchc.lowering.triton.dialect import TL
from sketchc.lowering.triton.scope import Scope
from sketchc.lowering.triton.values import Value, operand_value

_FUNCTIONS = {"rand": "uniform", "randn": "normal"}


def random_tile(statement: ir.Compute, scope: Scope) -> Value:
    """One number per offset, in f32; the write brings it to the destination's type and shape."""
    rank = len(scope.shape(statement.destination))
    values = [operand_value(operand, DType.I64, rank, scope) for operand in statement.operands]
    words = [
        value.code if value.shape else PYTHON.call("tl.cast", value.code, TL[DType.I64])
        for value in values
    ]
    code = scope.call(_FUNCTIONS[statement.operation], *words)
    return Value(code, DType.F32, values[1].shape)
