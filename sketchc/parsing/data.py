"""Which expressions compute with data: element-wise operations, written infix or as functions.

`k*2 + 1` of integers is an index, with 64 bits; `x*2 + 1` of a tile of floats stands for operations
(LANGUAGE, element-wise expressions). What is compared may be data; the comparison itself is a
predicate, as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from sketchc.base import records
from sketchc.ops.host_functions import HOST_FUNCTIONS
from sketchc.ops.table import ARITHMETIC, OPS, Category, Op, Result
from sketchc.parsing import syntax


@records.frozen
class Nature:
    """Whether an expression has `lanes`, and whether a part of it is no index arithmetic: a float,
    or an element-wise operation that index expressions do not have (`other`)."""

    lanes: bool = False
    other: bool = False

    @property
    def data(self) -> bool:
        """Whether the expression stands for operations on tiles."""
        return self.lanes and self.other


def in_expressions(name: str) -> Op | None:
    """The element-wise operation of this name, if an expression can hold it: the result's type of
    `cast` and its like comes from a destination, which an expression lacks."""
    row = OPS.get(name)
    if row is None or row.category is not Category.ELEMENTWISE:
        return None
    return None if row.result is Result.DESTINATION else row


def nature(node: syntax.Expression, find: Callable[[str], Nature]) -> Nature:
    """The `Nature` of an expression; `find` gives that of a name."""

    def joined(nodes: Iterable[syntax.Expression]) -> Nature:
        parts = [nature(part, find) for part in nodes]
        return Nature(any(part.lanes for part in parts), any(part.other for part in parts))

    match node:
        case syntax.Number(value=value):
            return Nature(other=isinstance(value, float))
        case syntax.Name(id=name):
            return find(name)
        case syntax.Subscript(base=base):
            return nature(base, find)
        case syntax.Unary(operator=operator, operand=operand):
            found = nature(operand, find)
            return Nature(found.lanes) if operator == "not" else found
        case syntax.Binary(operator=operator, left=left, right=right):
            found = joined((left, right))
            return found if operator in ARITHMETIC else Nature(found.lanes)
        case syntax.Choice(condition=condition, then=then, otherwise=otherwise):
            return joined((condition, then, otherwise))
        case syntax.Call(function="iota"):
            return Nature(lanes=True)
        case syntax.Call(function=name, arguments=arguments):
            found = joined(arguments)
            row = in_expressions(name)
            own = row is not None and (name not in HOST_FUNCTIONS or row.result is Result.FLOAT)
            return Nature(found.lanes, found.other or own)
        case _:
            return Nature()


def computed_with(node: object) -> Iterator[syntax.Expression]:
    """The names, numbers and calls whose values an expression of data computes with; those in its
    conditions are not among them."""
    match node:
        case syntax.Binary(operator=operator) if operator not in ARITHMETIC:
            return
        case syntax.Subscript(base=base):
            yield from computed_with(base)
        case syntax.Name() | syntax.Number():
            yield node
        case syntax.Call(function=name, arguments=arguments):
            yield node
            row = in_expressions(name)
            if row is None or row.result is not Result.BOOL:
                for part in arguments[int(row is not None and row.conditional) :]:
                    yield from computed_with(part)
        case _:
            for inner in syntax.children(node):
                yield from computed_with(inner)
