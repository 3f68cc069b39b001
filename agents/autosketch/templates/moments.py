"""The sum of a row's differences to its first term and that of its squared deviations from the
mean, as statements, in one pass over the row.

With d the differences to the first term, the squared deviations come to the sum of d * d less the
square of the sum of d over their number n (Chan, Golub, LeVeque 1983, "shifted data"). Since the
first term is one of the row's own, the square of its deviation is at most n times their mean; so
what cancels is less than n + 1 times the result: in f64, 2**-53 (n + 1) of it is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from sketchc.agents.autosketch.loops import Apply, Element, Number, Scalar, at, row_major
from sketchc.agents.autosketch.means import is_of_differences, number_of_squared
from sketchc.agents.autosketch.phase import Pass, Phases, mapped
from sketchc.agents.autosketch.templates.body import Body
from sketchc.agents.autosketch.templates.lanes import Dims, width
from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic

if TYPE_CHECKING:
    from sketchc.agents.autosketch.templates.writer import PhaseWriter


def write_moments(writer: PhaseWriter, scope: Body, total: Pass, squares: Pass, dims: Dims) -> bool:
    """Write two passes as one, where they are those two sums, which go on in f64 from part to part;
    False for any others, of which nothing is written."""
    count = _count(writer.phases, total, squares)
    along, loops = writer.cut(total.over)
    if count is None or not (loops or (along is not None and along.size is not None)):
        return False
    (own, kept), (other, also) = (writer.carried(scope, e, loops) for e in (total, squares))
    if not kept is also is DType.F64 or total.dtype is DType.F64:
        return False
    for name in (own, other):
        hint = 'llm_hint=["fastest", "accumulator"]'
        scope.say(f"{name} = alloc([{width(dims)}], f64, init=0, {hint})")
    assert isinstance(total.body, Apply)
    wide = [Apply("cast", (each,), DType.F64) for each in total.body.operands]
    for inner, lanes in writer.turns(scope, total.over, dims):
        term = writer.evaluated(inner, Apply("sub", tuple(wide), DType.F64), lanes)
        writer.combined(inner, "sum", term, (own, DType.F64), lanes, dims)
        writer.combined(inner, "sum", f"{term}*{term}", (other, DType.F64), lanes, dims)
    scope.finished()
    number = writer.operand(scope, count, dims)
    scope.say(f"copy({other} - {own}*{own}/({number}), {other})")
    for name, each in ((own, total), (other, squares)):
        writer.rounded(scope, name, each, dims)
    return True


def _count(phases: Phases, total: Pass, squares: Pass) -> Number | None:
    """The number of a row's terms, where `total` is the sum of their differences to the first, and
    `squares` that of their squared deviations from the mean; else None."""
    sums = total.operation == squares.operation == "sum"
    if total.part is not None or not sums or total.over != squares.over:
        return None
    held = Element(total.name, (), total.dtype)
    if not isinstance(total.body, Apply) or not is_of_differences(total.body, total.over):
        return None
    term, first = total.body.operands
    zeros = {axis.name: ir.Literal(0) for axis in total.over}
    if _in_memory(phases, first) != _in_memory(phases, at(term, zeros)):
        return None
    return number_of_squared(squares.body, term, held, first)


def _in_memory(phases: Phases, scalar: Scalar) -> Scalar:
    """The scalar with each element by its tensor, whatever view it is of, and its number there."""

    def placed(element: Element) -> Element:
        shape = phases.shapes.get(element.source)
        if shape is None or len(shape) != len(element.index):
            return element
        number = symbolic.simplify(row_major(element.index, shape))
        base = phases.views.get(element.source, element.source)
        return attrs.evolve(element, source=base, index=(number,))

    return mapped(scalar, placed)
