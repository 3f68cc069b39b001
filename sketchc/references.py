"""Reference semantics of the less trivial operations, as functions of the NumPy module.

They take and return float64 (or int64 / bool) arrays of any shape; the op table refers to them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Array = Any
Reference = Callable[..., Array]


def erf(np: Any, x: Array) -> Array:
    import math

    return np.vectorize(math.erf, otypes=[np.float64])(x)


def where_positive(np: Any, x: Array, other: Array) -> Array:
    return np.where(np.isnan(x), x, np.where(x > 0, x, other))


def softplus(np: Any, x: Array) -> Array:
    return np.where(x > 30, x, np.log1p(np.exp(np.minimum(x, 30))))


SELU_SCALE = 1.0507009873554804934193349852946
SELU_ALPHA = 1.6732632423543772848170429916717


def to_integral(name: str) -> Reference:
    """A rounding function of NumPy; integers are left alone, also beyond 2**53."""
    return lambda np, x: x if x.dtype.kind in "iub" else getattr(np, name)(x)


def clamp(np: Any, x: Array, low: Any = None, high: Any = None) -> Array:
    lowest = x if low is None else np.maximum(x, np.asarray(low).astype(x.dtype))
    return lowest if high is None else np.minimum(lowest, np.asarray(high).astype(x.dtype))


def sigmoid(np: Any, x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


def gelu(np: Any, x: Array) -> Array:
    return 0.5 * x * (1.0 + erf(np, x / np.sqrt(2.0)))


def gelu_with(np: Any, x: Array, approximate: str = "none") -> Array:
    if approximate == "tanh":
        return 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))
    return gelu(np, x)
