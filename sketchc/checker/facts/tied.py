"""Sizes that a `require:` ties to others: with `D == DH*H`, D is that product wherever it stands.

A name that stands for another, or for a product, needs no atom of its own: digits by DH and H then
are digits of what D counts. Sums keep their names, since a quantity of one term is easier to divide
by; what is required of them stays a fact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import evaluate
from sketchc.ir.walk import references

_KINDS = (ir.NameKind.SYMBOL, ir.NameKind.PARAM)


def ties(sketch: ir.Sketch) -> tuple[tuple[str, ir.Expr], ...]:
    """The names that are tied, each with its value over names that are not or that come before."""
    integers = {symbol.name for symbol in sketch.symbols}
    integers |= {param.name for param in sketch.params if param.dtype.is_integer}
    found: dict[str, ir.Expr] = {}
    below: dict[str, frozenset[str]] = {}  # the names that a tied one depends on
    for require in sketch.requires:
        for name, value in _equalities(require.condition):
            used = frozenset(reference.name for reference in references(value))
            if name in found or name not in integers or not used <= integers:
                continue
            used = used.union(*(below.get(other, frozenset()) for other in used))
            if name in used:
                continue
            found[name], below[name] = value, used
            for other, names in below.items():
                if name in names:
                    below[other] = names | used
    return tuple((name, found[name]) for name in sorted(found, key=lambda n: len(below[n])))


def _equalities(condition: ir.Expr) -> Iterator[tuple[str, ir.Expr]]:
    match condition:
        case ir.Binary("and", left, right):
            yield from _equalities(left)
            yield from _equalities(right)
        case ir.Binary("==", left, right):
            for side, other in ((left, right), (right, left)):
                if isinstance(side, ir.Ref) and side.kind in _KINDS and _is_term(other):
                    yield side.name, other
        case _:
            pass


def _is_term(value: ir.Expr) -> bool:
    """A number, a name, or a product of such."""
    match value:
        case ir.Literal(number):
            return isinstance(number, int) and not isinstance(number, bool)
        case ir.Ref(kind=kind):
            return kind in _KINDS
        case ir.Binary("*", left, right):
            return _is_term(left) and _is_term(right)
        case _:
            return False


def with_ties(found: tuple[tuple[str, ir.Expr], ...], values: Mapping[str, Any]) -> dict[str, Any]:
    """Values of names with those of the tied ones among them put right."""
    result = dict(values)
    for name, value in found:
        if name in result:
            result[name] = evaluate(value, result)
    return result
