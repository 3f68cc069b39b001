"""Index tiles evaluated with NumPy, lane by lane as the language defines them (LANGUAGE R1).

An oracle for tests of the checker: it shares no code with `sketchc.checker.facts.lane_forms`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sketchc.ir import nodes as ir

OPERATORS: dict[str, Any] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "//": np.floor_divide,
    "%": np.mod,
    "min": np.minimum,
    "max": np.maximum,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "cdiv": lambda a, b: -(np.negative(a) // b),
}


def lanes_of(value: ir.Expr, names: Mapping[str, Any]) -> Any:
    """The value of an expression, an array where it has lanes. `names` maps scalars, bindings and
    tiles to their values. Void lanes have what the expression without bounds gives."""
    match value:
        case ir.Literal(literal):
            return literal
        case ir.Ref(name=name, layout=layout):
            return _placed(np.asarray(names[name]), layout) if layout else names[name]
        case ir.TileLanes(tile=tile, layout=layout):
            return _placed(np.asarray(names[tile]), layout)
        case ir.Iota(extent, lower, _, layout):
            count = np.arange(int(lanes_of(extent, names)), dtype=np.int64)
            return _placed(count + lanes_of(lower, names), layout)
        case ir.Unary(operator, operand):
            inner = lanes_of(operand, names)
            return np.negative(inner) if operator == "-" else np.logical_not(inner)
        case ir.Binary(operator, left, right):
            return OPERATORS[operator](lanes_of(left, names), lanes_of(right, names))
        case _:
            raise AssertionError(value)


def _placed(array: Any, layout: tuple[bool, ...]) -> Any:
    own = iter(array.shape)
    return array.reshape([next(own) if present else 1 for present in layout])


def selected(
    domain: ir.Domain, guards: tuple[ir.Expr, ...], shape: tuple[int, ...], names: Mapping[str, Any]
) -> Any:
    """The lanes of a domain for which all guards hold, as an array of bool."""
    result = np.ones(shape, dtype=bool)
    for axis, valid in enumerate(domain):
        lane = np.arange(shape[axis]).reshape([-1 if a == axis else 1 for a in range(len(shape))])
        for bound in valid.lower:
            result &= lane >= lanes_of(bound, names)
        for bound in valid.upper:
            result &= lane < lanes_of(bound, names)
    for guard in guards:
        result &= np.broadcast_to(lanes_of(guard, names), shape)
    return result
