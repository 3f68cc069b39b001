"""What each ATen operation is as a function of its index: the table of the built-in Designer.

PyTorch takes most operations apart into some hundred primitives (`prims`). Pointwise ones are
operations of the op table, views are index maps, and reductions combine a map.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

from sketchc.agents.autosketch.builder import Builder, plain
from sketchc.agents.autosketch.graph import Graph, Node
from sketchc.agents.autosketch.loops import Index, Loops, Number, Scalar
from sketchc.agents.autosketch.rules import (
    folds,
    lookups,
    orders,
    pointwise,
    products,
    recurrences,
    views,
)
from sketchc.base.diagnostics import UsageError, refuse
from sketchc.base.types import DType

#: Families of operations: one that is added is a file with `RULES`, and its name here.
_FAMILIES = (pointwise, views, folds, products, lookups, orders, recurrences)
_TABLE = {name: rule for family in _FAMILIES for name, rule in family.RULES.items()}


_NO_FORM = "the built-in Designer has no form for"


class NoFormError(UsageError):
    """The task has operations for which the Designer has no form, whatever their sizes."""


def build_loops(graph: Graph) -> Loops:
    """Every node of the graph as loops.

    Raises `NoFormError` that lists the operations for which there is no form yet, or `UsageError`
    where each of them has one, of which the task needs more; both say all that is missing.
    """
    builder = Builder(graph)
    missing = _built(builder, graph)
    if not missing:
        return builder.loops()
    unknown = Counter(plain(graph.nodes[n].operation) for n, why in missing.items() if not why)
    variants = dict.fromkeys(why for why in missing.values() if why)
    listed = [f"{n} ({c} times)" if c > 1 else n for n, c in sorted(unknown.items())]
    if not unknown:
        refuse(f"{_NO_FORM} {'; '.join(variants)}")
    raise NoFormError(f"{_NO_FORM}: {'; '.join([', '.join(listed), *variants])}")


def without_form(graph: Graph) -> dict[int, str]:
    """The numbers of the nodes for which there is no form, each with what it has none for: "" is
    the operation as such."""
    return _built(Builder(graph), graph)


def _built(builder: Builder, graph: Graph) -> dict[int, str]:
    """Give every node of a graph its loops; those that have no form get zeros, and are returned."""
    missing: dict[int, str] = {}
    for number, node in enumerate(graph.nodes):
        builder.number = number
        rule = _TABLE.get(plain(node.operation))
        try:
            if rule is not None:
                rule(builder, node)
                continue
            missing[number] = ""
        except UsageError as error:
            missing[number] = str(error).removeprefix(f"{_NO_FORM} ")
        _stand_in(builder, node)
    return missing


def _stand_in(builder: Builder, node: Node) -> None:
    """Give the results of a node without a form values, for the rules of those that use them."""
    for of, result in enumerate(node.results):
        builder.map(node, partial(_zero, result.dtype), of)


def _zero(dtype: DType, index: Index) -> Scalar:
    """0 at any index."""
    del index
    return Number(0.0 if dtype.is_float else 0, dtype)
