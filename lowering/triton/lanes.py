"""Which axis of a tile the lanes of an access go along.

Triton lets neighbouring lanes take the elements of the axis along which it sees neighbouring
addresses. Where it sees none on either axis (a remainder, a step of 2), it takes the first axis:
each lane has a row of its own then, which memory serves element by element, and shared memory keeps
the tile turned. An access whose address, mask and value are turned has lanes along the last axis.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import attrs

from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.lowering.precedence import PYTHON, Code
from sketchc.lowering.triton.scope import Scope, broadcast_to, index_shape

#: The neighbours that lanes take through a remainder by a name that has nothing to do with the
#: tensor's rows: as a rule, the width of a window.
_WINDOW = 4


@attrs.frozen
class _Run:
    """How many lanes of an axis take neighbouring elements one after the other, and whether Triton
    sees that they do."""

    lanes: float
    seen: bool = False


def along_last(statement: ir.Load | ir.Store, scope: Scope) -> bool:
    """Whether an access of a tile of two axes is to be turned: more lanes of its last axis than of
    its first take neighbouring elements, and Triton does not see it."""
    shape = scope.shape(statement.tile)
    if not scope.dialect.launch_options or len(shape) != 2 or Code("1") in shape:
        return False
    subscripts = list(statement.access.subscripts)
    while subscripts and isinstance(subscripts[-1], ir.ScalarSubscript):
        subscripts.pop()
    # Between the elements of one subscript are those of the ones behind it, which do not vary.
    apart = len(subscripts) < len(statement.access.subscripts)
    match subscripts[-1]:
        case ir.SliceSubscript(step=step):
            return apart or step != ir.Literal(1)
        case ir.IndexSubscript(value, axis=None):
            runs = _Runs.of(scope, statement.access)
            first, last = (runs.along(value, axis, 2) for axis in (0, 1))
        case _:
            return False
    if last is None or (last.seen and not apart) or (first is not None and first.seen):
        return False
    return first is None or last.lanes > first.lanes


def turned(code: Code, scalar: bool, tile: str, scope: Scope) -> Code:
    """A tile's address, mask or value with its axes turned; `scalar`: it is the same for all."""
    return PYTHON.call("tl.trans", broadcast_to(code, scope.shape(tile)) if scalar else code)


@attrs.frozen
class _Runs:
    """The runs of index tiles: `binds` are the values of bindings, and `row` the names of which a
    row of the tensor grows longer."""

    scope: Scope
    binds: Mapping[str, ir.Expr]
    row: frozenset[str]

    @staticmethod
    def of(scope: Scope, access: ir.Access) -> _Runs:
        """The runs of the last subscript of an access."""
        found = walk.statements(scope.phase.body)
        binds = {each.name: each.value for each in found if isinstance(each, ir.Bind)}
        extent = scope.plan.sketch.extents(access.tensor)[-1]
        return _Runs(scope, binds, _names(extent, scope))

    def along(self, value: ir.Expr, axis: int, rank: int) -> _Run | None:
        """How an index tile of so many axes, seen as one of `rank`, runs along an axis; None where
        it is the same on all of its lanes."""
        match value:
            case ir.Ref(name, ir.NameKind.BINDING, layout=layout) if name in self.binds:
                bound = self.binds[name]
                axes = len(index_shape(bound, self.scope))
                place = _own(layout, axes, axis, rank) if axes else None
                return None if place is None else self.along(bound, place, axes)
            case ir.Iota(layout=layout):
                own = _own(layout, 1, axis, rank)
                return None if own is None else _Run(math.inf, seen=True)
            case ir.TileLanes(extents=extents, layout=layout):
                return None if _own(layout, len(extents), axis, rank) is None else _Run(1)
            case ir.Binary(operator, left, right):
                one, two = (self.along(each, axis, rank) for each in (left, right))
                return self.combined(operator, right, one, two)
            case ir.Unary(operand=operand):
                return _least(self.along(operand, axis, rank))
            case ir.Choice():
                return _least(*(self.along(each, axis, rank) for each in value.parts))
            case _:
                return None

    def combined(
        self, operator: str, right: ir.Expr, one: _Run | None, two: _Run | None
    ) -> _Run | None:
        """The run of an operation, from those of its operands; `right` is the second of these."""
        if two is None and operator in ("+", "-"):
            return one
        if one is None and operator == "+":
            return two
        least = _least(one, two)
        if least is None or two is not None:
            return least
        match operator, right:
            case "%", ir.Literal(int(modulus)):
                return _Run(min(least.lanes, modulus))
            case "%", _ if not _names(right, self.scope) & self.row:
                return _Run(min(least.lanes, _WINDOW))
            case "//", ir.Ref() | ir.Binary():
                return _Run(1)
            case _:
                return least


def _own(layout: tuple[bool, ...] | None, axes: int, axis: int, rank: int) -> int | None:
    """The axis, of those of a part without new axes, that lies along `axis` of `rank`."""
    laid = layout or (True,) * axes
    place = axis - (rank - len(laid))
    return sum(laid[:place]) if place >= 0 and laid[place] else None


def _least(*runs: _Run | None) -> _Run | None:
    """The shortest of several runs."""
    found = [run.lanes for run in runs if run is not None]
    return _Run(min(found)) if found else None


def _names(expression: ir.Expr, scope: Scope) -> frozenset[str]:
    """The names of which an extent is made, those of the values of lets among them."""
    lets = {let.name: let.value for let in scope.plan.sketch.lets}
    found: set[str] = set()
    left = [expression]
    while left:
        for name in set(walk.names(left.pop())) - found:
            found.add(name)
            left += [lets[name]] if name in lets else []
    return frozenset(found)
