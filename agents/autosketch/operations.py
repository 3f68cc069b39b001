"""What each ATen operation is as a function of its index: the table of the built-in Designer.

PyTorch takes most operations apart into some hundred primitives (`prims`). Pointwise ones are
operations of the op table, views are index maps, and reductions combine a map.
"""

from __future__ import annotations

from sketchc.agents.autosketch.builder import Builder, plain
from sketchc.agents.autosketch.graph import Graph
from sketchc.agents.autosketch.loops import Loops
from sketchc.agents.autosketch.rules import (
    folds,
    lookups,
    orders,
    pointwise,
    products,
    recurrences,
    views,
)
from sketchc.base.diagnostics import UsageError

#: Families of operations: one that is added is a file with `RULES`, and its name here.
_FAMILIES = (pointwise, views, folds, products, lookups, orders, recurrences)
_TABLE = {name: rule for family in _FAMILIES for name, rule in family.RULES.items()}


class NoFormError(UsageError):
    """The task has operations for which the Designer has no form, whatever their sizes."""


def build_loops(graph: Graph) -> Loops:
    """Every node of the graph as loops.

    Raises `NoFormError` that lists the operations for which there is no form yet.
    """
    builder = Builder(graph)
    unknown: dict[str, int] = {}
    for node in graph.nodes:
        name = plain(node.operation)
        if name not in _TABLE:
            unknown[name] = unknown.get(name, 0) + 1
    if unknown:
        listed = ", ".join(f"{n} ({c} times)" if c > 1 else n for n, c in sorted(unknown.items()))
        raise NoFormError(f"the built-in Designer has no form for: {listed}")
    for number, node in enumerate(graph.nodes):
        builder.number = number
        _TABLE[plain(node.operation)](builder, node)
    return builder.loops()
