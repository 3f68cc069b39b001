"""Host values that only launches with some optional tensor need.

`let: per = ceil(N, G);` divides by G wherever it is used or not. Where all uses stand under
`if present(S)`, a launch without `S` need not have a G to divide by: the value is 0 there, and
nobody reads it.
"""

from __future__ import annotations

from collections.abc import Iterator

from sketchc.base import records
from sketchc.base.types import DType
from sketchc.checker.context.context import Context
from sketchc.checker.context.shapes import signs
from sketchc.ir import nodes as ir
from sketchc.ir.symbolic import conjunction
from sketchc.ir.walk import children
from sketchc.launch.conditions import domain
from sketchc.parsing import syntax

_NONE: frozenset[str] = frozenset()


def needed_with(tree: syntax.Sketch) -> dict[str, frozenset[str]]:
    """For each `let` the optional tensors without which nothing uses it; lets that are needed
    without any are left out."""
    lets = [
        let
        for section in tree.sections
        if isinstance(section, syntax.LetSection)
        for let in section.lets
    ]
    uses: dict[str, list[frozenset[str]]] = {let.name: [] for let in lets}

    def note(node: object, given: frozenset[str]) -> None:
        for name, tensors in _uses(node, given):
            if name in uses:
                uses[name].append(tensors)

    for section in tree.sections:
        if not isinstance(section, syntax.LetSection):
            note(section, _NONE)
    note(tree.body, _NONE)
    found: dict[str, frozenset[str]] = {}
    for let in reversed(lets):
        places = uses[let.name]
        common = frozenset.intersection(*places) if places else _NONE
        if common:
            found[let.name] = common
        note(let.value, common)
    return found


def _uses(node: object, given: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    """The names below a node, each with the optional tensors that are present there."""
    match node:
        case syntax.Name(id=name):
            yield name, given
        case tuple():
            for part in node:
                yield from _uses(part, given)
        case syntax.If(condition, body, orelse):
            yield from _uses(condition, given)
            yield from _uses(body, given | _present(condition, True))
            yield from _uses(orelse, given | _present(condition, False))
        case syntax.Alloc(extents=extents):  # the host makes room for tiles of all branches
            yield from _uses(extents, _NONE)
            yield from _uses(node.init, given)
        case _ if records.has(kind := type(node)):
            for field in records.fields(kind):
                yield from _uses(getattr(node, field.name), given)
        case _:
            pass


def _present(condition: syntax.Expression, holds: bool) -> frozenset[str]:
    """The optional tensors that are present where a condition holds, or does not: as
    `branches.given`, of conditions as they are written. They have no types yet, for `let`s, which
    they may use, are declared first."""
    match condition:
        case syntax.Call("present", (syntax.Name(id=name),)):
            return frozenset([name]) if holds else _NONE
        case syntax.Unary("not", operand):
            return _present(operand, not holds)
        case syntax.Binary("and" | "or" as operator, left, right):
            both = holds == (operator == "and")
            one, two = _present(left, holds), _present(right, holds)
            return one | two if both else one & two
        case _:
            return _NONE


def guarded(context: Context, value: ir.Expr, dtype: DType) -> ir.Expr:
    """A host value that has a value in every launch: 0 where no branch is taken that needs it, and
    what it divides by, say, is not as it must be. The launches that take one are asked for it."""
    if not context.guards:
        return value
    wanted = list(dict.fromkeys([*_divisors(context, value), *domain(value)]))
    if not wanted:
        return value
    for condition in wanted:
        context.require(condition, value.span)
    nothing: int | float | bool = 0.0 if dtype.is_float else 0
    other = ir.Literal(False if dtype is DType.BOOL else nothing)
    return ir.Choice(conjunction(wanted), value, other, span=value.span)


def _divisors(context: Context, value: ir.Expr) -> Iterator[ir.Expr]:
    """That the integer divisors of an expression are at least 1, where that is not plain."""
    for part in children(value):
        yield from _divisors(context, part)
    if isinstance(value, ir.Binary) and value.operator in ("//", "%", "cdiv"):
        low = signs(context, value.right)[0]
        if low is None or low < 1:
            yield ir.Binary(">=", value.right, ir.Literal(1))
