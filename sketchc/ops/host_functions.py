"""The functions of scalar expressions, one row each: what parser, checker and evaluation know of
`ceil(M, T)`, `sqrt(D)` and their like. `iota` and `present`, which are no functions of numbers,
are the checker's own; how a target writes a function stands in the target.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from sketchc.base import records
from sketchc.base.types import DType

Value = float | int | bool


@records.frozen
class HostFunction:
    """A function of numbers."""

    reference: Callable[..., Value]
    result: DType | None  # None: that of what it takes
    arity: int = 1
    operator: str = ""  # what stands in the tree for a function of two numbers
    #: A comparison with a bound: where a function of one number has a value.
    domain: tuple[str, float] | None = None


def _quotient(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)


#: Where `exp` leaves the doubles.
_EXP_LIMIT = 709.782712893384

#: Every function by name.
HOST_FUNCTIONS = {
    "ceil": HostFunction(_quotient, DType.I64, 2, "cdiv"),
    "cdiv": HostFunction(_quotient, DType.I64, 2, "cdiv"),
    "min": HostFunction(min, None, 2, "min"),
    "max": HostFunction(max, None, 2, "max"),
    "sqrt": HostFunction(math.sqrt, DType.F64, domain=(">=", 0)),
    "rsqrt": HostFunction(lambda x: 1.0 / math.sqrt(x), DType.F64, domain=(">", 0)),
    "exp": HostFunction(math.exp, DType.F64, domain=("<=", _EXP_LIMIT)),
    "log": HostFunction(math.log, DType.F64, domain=(">", 0)),
    "log2": HostFunction(math.log2, DType.F64, domain=(">", 0)),
    "pow": HostFunction(math.pow, DType.F64, 2),
    "abs": HostFunction(abs, None),
    "float": HostFunction(float, DType.F64),
    "int": HostFunction(int, DType.I64),
}
#: Those that two numbers are joined with: the operator in the tree -> what it gives.
JOINING = {row.operator: row.reference for row in HOST_FUNCTIONS.values() if row.operator}
#: Those that may give an integer.
INTEGER_FUNCTIONS = frozenset(
    name for name, row in HOST_FUNCTIONS.items() if row.result is not DType.F64
)
