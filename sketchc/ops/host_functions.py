"""The functions of scalar expressions, `ceil(M, T)`, `sqrt(D)` and their like, one row each. `iota`
and `present`, which take no numbers, are the checker's; a target says how it writes a function.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from sketchc.base import records
from sketchc.base.types import DType, Scalar


@records.frozen
class HostFunction:
    """A function of numbers."""

    reference: Callable[..., Scalar]
    result: DType | None  # None: the type of the arguments
    arity: int = 1
    operator: str = ""  # the binary operator that stands for the function in the tree
    domain: tuple[str, float] | None = None  # the comparison that its argument must fulfil


_CEILING = HostFunction(lambda a, b: -(-a // b), DType.I64, 2, "cdiv")

#: Every function by name.
HOST_FUNCTIONS = {
    "ceil": _CEILING,
    "cdiv": _CEILING,
    "min": HostFunction(min, None, 2, "min"),
    "max": HostFunction(max, None, 2, "max"),
    "sqrt": HostFunction(math.sqrt, DType.F64, domain=(">=", 0)),
    "rsqrt": HostFunction(lambda x: 1.0 / math.sqrt(x), DType.F64, domain=(">", 0)),
    "exp": HostFunction(math.exp, DType.F64, domain=("<=", 709.782712893384)),  # of doubles
    "log": HostFunction(math.log, DType.F64, domain=(">", 0)),
    "log2": HostFunction(math.log2, DType.F64, domain=(">", 0)),
    "pow": HostFunction(math.pow, DType.F64, 2),
    "abs": HostFunction(abs, None),
    "float": HostFunction(float, DType.F64),
    "int": HostFunction(int, DType.I64),
}
#: The functions that are binary operators in the tree: the operator -> its reference.
JOINING = {row.operator: row.reference for row in HOST_FUNCTIONS.values() if row.operator}
#: The names of the functions that may give an integer.
INTEGER_FUNCTIONS = frozenset(
    name for name, row in HOST_FUNCTIONS.items() if row.result is not DType.F64
)
